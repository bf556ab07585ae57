"""Scorers that die: a judge or a verifier that failed gives no reward, and moves nobody else's advantage."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from rollbook.envs import Environment, Rewards
from rollbook.envs.sandbox import Kind
from rollbook.policy import Completion, ScriptedPolicy, TokenIds
from rollbook.rewards import advantages
from rollbook.rewards.scorers import Judge
from rollbook.rewards.scorers.verifier import verifier
from rollbook.rollout import LoadedPolicy, group
from rollbook.trace import (
    Fate,
    Finish,
    LogprobKind,
    MemorySink,
    Reason,
    RolloutFailure,
    Sampling,
    ScoringStatus,
    Task,
    Trace,
    facts,
)
from tests.cases.case import STOP, Script, byte_ids, bytes_renderer, report, says

TASK = Task(id="t", prompt="go")


def judge_of(rewards: list[float], valid: list[int]) -> Judge:
    """Gives member n its reward, or fails where it is not valid. Its engine answers with HTTP 200 either way."""

    def script(prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        asked = re.search(r"member (\d)", bytes_renderer().decode(prompt))
        assert asked is not None
        member = int(asked[1])
        if not valid[member]:
            raise RolloutFailure(Reason.ENGINE_TIMEOUT, f"a placeholder {rewards[member]} stands in its place")
        ids = [*byte_ids(f"Verdict: {rewards[member]}"), STOP]
        return Completion(
            token_ids=np.array(ids, np.int32),
            logprobs=np.full(len(ids), -0.1, np.float32),
            logprob_kind=LogprobKind.RAW,
            finish=Finish.STOP,
        )

    return Judge(
        policy=LoadedPolicy(ScriptedPolicy(script), bytes_renderer()),
        rubric="Count.",
        high=3.0,
        question=lambda trace: f"member {trace.head.member}",
        retries=0,
    )


def scored_group(env: type[Environment], size: int) -> tuple[list[Trace], MemorySink]:
    sink = MemorySink()
    return asyncio.run(group(env, TASK, Script([says("an answer")]).loaded(), size, sink=sink)), sink


# J05


@report("J05")
def test_a_failed_judge_moves_nobody(given: dict[str, Any]) -> None:
    judge = judge_of(given["rewards"], given["valid"])

    class Judged(Environment):
        async def score(self, trace: Trace) -> float:
            return await judge(trace)

    traces, sink = scored_group(Judged, 4)
    assert [trace.reward for trace in traces] == [1.0, 3.0, 2.0, None]
    lost = traces[3]
    assert lost.tail.scoring.status is ScoringStatus.FAILED
    assert "the judge failed (timeout)" in lost.tail.scoring.reason
    assert lost.ending is not None
    assert lost.ending.reason is Reason.FINAL_ANSWER
    assert facts.dispositions(sink.notes)[lost.id].fate is Fate.DROPPED
    found = advantages(traces, estimator="rloo").values
    assert [found.get(trace.id) for trace in traces] == [-1.5, 1.5, 0.0, None]


@report("J05")
def test_the_placeholder_would_have_moved_the_others(given: dict[str, Any]) -> None:
    judge = judge_of(given["rewards"], [1, 1, 1, 1])

    class Judged(Environment):
        async def score(self, trace: Trace) -> float:
            return await judge(trace)

    traces, _ = scored_group(Judged, 4)
    found = advantages(traces, estimator="rloo").values
    assert [round(found[trace.id], 3) for trace in traces[:3]] == [-0.667, 2.0, 0.667]


# D15


@report("D15")
@pytest.mark.filterwarnings("ignore::rollbook.envs.sandbox.NotIsolated")
@pytest.mark.parametrize("dies", [True, False])
def test_what_a_dying_verifier_leaves_is_no_reward(given: dict[str, Any], dies: bool) -> None:
    """Its trap writes the number; where it then even exits with 0, the range still refuses it."""
    status = given["verifier_exit"] if dies else 0
    lines = (
        f"trap 'echo {given['reward_file']} > reward.txt; exit {status}' EXIT",
        f"echo '{given['test_patch']}' >&2",
        "exit 1",
    )
    check = verifier(
        ["/bin/sh", "verify.sh"],
        lambda trace: {"verify.sh": "\n".join(lines).encode()},
        reward_range=(float(given["allowed_range"][0]), float(given["allowed_range"][1])),
        kind=Kind.PLAIN,
    )

    class Verified(Environment):
        async def score(self, trace: Trace) -> float | Rewards | None:
            return await check(trace)

    traces, sink = scored_group(Verified, 2)
    for trace in traces:
        assert trace.reward is None
        assert trace.tail.scoring.status is ScoringStatus.FAILED
        assert (given["test_patch"] if dies else "outside of 0 to 1") in trace.tail.scoring.reason
        assert facts.dispositions(sink.notes)[trace.id].fate is Fate.DROPPED
    assert advantages(traces).values == {}
