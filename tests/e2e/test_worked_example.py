"""The worked example of the ending rules, as a run: three pass, two fail, one is cut with the bug still there, two are
lost with their host. Everything is read from the stored run, through the names that users import.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rollbook
from rollbook.policy import Completion, TokenIds
from rollbook.store import RunReader
from rollbook.trace import Drop, Finish, LogprobKind, Message, Reason, RolloutFailure, facts, samples
from tests.cases.case import STOP, byte_ids, bytes_renderer

SAID = ("right", "right", "right", "wrong", "wrong", "go on", "lost", "lost")
"""What each member replies."""
REASONS = [*(["final_answer"] * 5), "max_turns", "sandbox_lost", "sandbox_lost"]
RIGHT = {0: 0.5, 1: 0.5, 2: 0.5, 3: -0.5, 4: -0.5, 5: -0.5, 6: None, 7: None}
"""The advantage of each member; None: it has none."""


class Repair(rollbook.Environment):
    """Passes where the reply says so; a host can be lost, and a repair can go on for ever."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[rollbook.Task]:
        return [rollbook.Task(id=f"bug-{number}", prompt="Mend it") for number in range(count)]

    async def step(self, reply: Message) -> rollbook.StepResult | None:
        if reply.content == "lost":
            raise RolloutFailure(Reason.SANDBOX_LOST, "the host does not answer")
        return rollbook.StepResult("not yet") if reply.content == "go on" else None

    async def score(self, trace: rollbook.Trace) -> float:
        return float(trace.text == "right")


def say(_prompt: TokenIds, _sampling: rollbook.Sampling, session: str) -> Completion:
    """The session is the rollout's id, which ends with the member."""
    ids = np.array([*byte_ids(SAID[int(session.rsplit("-", 1)[1])]), STOP], np.int32)
    logprobs = np.full(len(ids), -0.5, np.float32)
    return Completion(token_ids=ids, logprobs=logprobs, logprob_kind=LogprobKind.RAW, finish=Finish.STOP)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    folder = tmp_path_factory.mktemp("worked") / "run"
    config = rollbook.RunConfig(
        environment=f"{__name__}:Repair",
        tasks=1,
        group=8,
        limits=rollbook.Limits(max_turns=2),
        rules=rollbook.EndingRules({Reason.SANDBOX_LOST: Drop()}),
    )
    policy = rollbook.LoadedPolicy(rollbook.ScriptedPolicy(say), bytes_renderer())
    asyncio.run(rollbook.run(config, folder, policy=policy))
    return rollbook.open_run(folder)


def by_member(stored: RunReader) -> list[rollbook.Trace]:
    return sorted(stored.traces(), key=lambda trace: trace.head.member)


def test_the_run_is_the_example(stored: RunReader) -> None:
    traces = by_member(stored)
    assert [trace.ending.reason for trace in traces if trace.ending is not None] == REASONS
    assert [trace.reward for trace in traces] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, None, None]


def test_the_wrong_numbers_come_from_counting_what_was_lost_as_zero(stored: RunReader) -> None:
    """This is what the table must never do; it can only be had by plain arithmetic beside it."""
    as_zero = [trace.reward if trace.reward is not None else 0.0 for trace in by_member(stored)]
    mean = sum(as_zero) / len(as_zero)
    assert mean == 0.375
    assert [reward - mean for reward in as_zero[6:]] == [-0.375, -0.375]


def test_the_right_numbers_are_in_the_run(stored: RunReader) -> None:
    known = facts.advantages(stored.annotations())
    traces = by_member(stored)
    assert {trace.head.member: known[trace.id].advantage for trace in traces} == RIGHT
    assert {(fact.baseline, fact.scheduled, fact.used) for fact in known.values()} == {(0.5, 8, 6)}


def test_the_right_numbers_come_again_from_the_stored_traces(stored: RunReader) -> None:
    traces = by_member(stored)
    found = rollbook.advantages(traces, rollbook.EndingRules({Reason.SANDBOX_LOST: Drop()})).values
    assert {trace.head.member: found.get(trace.id) for trace in traces} == RIGHT


def test_nothing_of_the_lost_trains_and_the_audit_sees_no_error_in_the_baseline(
    stored: RunReader, tmp_path: Path
) -> None:
    out = tmp_path / "samples.jsonl"
    rollbook.export(stored, "jsonl", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    traces = {trace.id: trace for trace in stored.traces()}
    assert {traces[row["rollout"]].head.member: row["advantage"] for row in rows} == {
        member: advantage for member, advantage in RIGHT.items() if advantage is not None
    }
    assert rollbook.audit(stored)["baseline_errors"].value == 0
    assert all(samples(trace).ledger.captured for trace in traces.values()), "the lost ones sampled tokens, too"
