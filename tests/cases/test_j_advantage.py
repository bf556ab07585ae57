"""Advantages: by group id, over the voters alone, matched by rollout id, always finite."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.audit import audit
from rollbook.envs import Environment, register
from rollbook.errors import RecordError
from rollbook.export import export
from rollbook.policy import ScriptedFailure
from rollbook.rewards import advantages, decide
from rollbook.rollout import Limits, RolloutSettings, group
from rollbook.run import RunConfig, run
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Fate, Mark, Mask, MemorySink, Reason, Retry, Task, Trace
from tests.cases.case import Script, Talk, attempt, report, says


def members(rewards: list[float | None], group_id: str = "g0", seat: str = "solver") -> list[Trace]:
    return [
        attempt(f"{group_id}-{seat}-{place}", reward, group=group_id, seat=seat, member=place)
        for place, reward in enumerate(rewards)
    ]


def in_order(traces: list[Trace], values: Mapping[str, float]) -> list[float | None]:
    return [values.get(trace.id) for trace in traces]


# J02


@report("J02")
def test_groups_go_by_their_id_and_never_by_position(given: dict[str, Any]) -> None:
    traces = [
        attempt(f"r{place}", float(each["r"]), group=f"g{each['g']}", member=place)
        for place, each in enumerate(given["samples"])
    ]
    want = {"r0": 0.5, "r1": -0.5, "r2": 0.0, "r3": 0.0, "r4": 0.0}
    found = advantages(traces, scheduled=given["n_per_prompt"])
    assert found.values == want
    assert [(each.used, each.scheduled) for each in found.groups] == [(2, 2), (3, 2)]
    for order in ([4, 0, 3, 1, 2], [1, 3, 0, 2, 4]):
        assert advantages([traces[place] for place in order]).values == want
    assert advantages(traces, estimator="grpo").values["r2"] == 0.0


@report("J02")
def test_two_rewards_for_one_rollout_are_refused(given: dict[str, Any]) -> None:
    first, second = given["samples"][:2]
    twins = [attempt("r0", float(each["r"])) for each in (first, second)]
    with pytest.raises(RecordError, match="came twice"):
        advantages(twins)
    assert advantages([twins[0], twins[0]]).groups[0].used == 1, "the same trace twice is one vote"


@pytest.mark.parametrize("sizes", [[1, 5], [3, 1, 2], [7], [2, 2, 3]])
def test_uneven_groups_are_each_centred_on_themselves(sizes: list[int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    groups = [members(rng.normal(size=size).tolist(), f"g{place}") for place, size in enumerate(sizes)]
    mixed = [trace for traces in groups for trace in traces]
    rng.shuffle(mixed)  # type: ignore[arg-type]
    values = advantages(mixed).values
    for traces in groups:
        rewards = [trace.reward or 0.0 for trace in traces]
        mean = math.fsum(rewards) / len(rewards)
        assert in_order(traces, values) == pytest.approx([reward - mean for reward in rewards])


def test_seats_of_one_group_are_not_compared() -> None:
    solvers, judges = members([1.0, 0.0]), members([10.0, 20.0], seat="judge")
    values = advantages([solvers[0], judges[0], judges[1], solvers[1]]).values
    assert in_order([*solvers, *judges], values) == [0.5, -0.5, -5.0, 5.0]


# J04


def without_loss(trace: Trace) -> Trace:
    for turn in trace.turns():
        trace.graph.mark(turn.index, Mark.DEMOTED)
    return trace


@report("J04")
def test_a_response_without_a_trained_token_has_no_vote(given: dict[str, Any]) -> None:
    traces = members([float(reward) for reward in given["rewards"]])
    traces = [trace if valid else without_loss(trace) for trace, valid in zip(traces, given["valid"], strict=True)]
    assert in_order(traces, advantages(traces).values) == [
        pytest.approx(2 / 3, abs=1e-9),
        None,
        pytest.approx(-1 / 3, abs=1e-9),
        pytest.approx(-1 / 3, abs=1e-9),
    ]
    spread = in_order(traces, advantages(traces, estimator="grpo").values)
    assert [spread[place] for place in (0, 2, 3)] == pytest.approx([1.155, -0.577, -0.577], abs=1e-3)
    seen: list[Mapping[str, float]] = []

    def leave_one_out(rewards: Mapping[str, float]) -> Mapping[str, float]:
        seen.append(rewards)
        total = sum(rewards.values())
        return {name: reward - (total - reward) / (len(rewards) - 1) for name, reward in rewards.items()}

    ours = in_order(traces, advantages(traces, estimator=leave_one_out).values)
    assert ours == [1.0, None, -0.5, -0.5]
    assert len(seen[0]) == sum(given["valid"])


def voiceless(kind: str, trace: Trace) -> Trace:
    """The same rollout, kept from voting in one more way."""
    match kind:
        case "rejected":
            trace.graph.mark(1, Mark.REJECTED)
        case "scoring failed":
            trace.score_failed("scorer broke")
        case "no reward":
            trace.update(reward=None)
        case "nothing sampled":
            return attempt(trace.id, 1.0, ids=(), member=trace.head.member)
        case _:
            return attempt(trace.id, 1.0, member=trace.head.member, reason=Reason(kind))
    return trace


@pytest.mark.parametrize(
    "kind",
    [
        "rejected",
        "scoring failed",
        "no reward",
        "nothing sampled",
        "sandbox_lost",
        "internal",
        "cancelled",
        "max_turns",
    ],
)
def test_whatever_takes_the_vote_takes_it_from_every_statistic(kind: str) -> None:
    traces = members([1.0, 1.0, 0.0, 0.0])
    traces[1] = voiceless(kind, traces[1])
    rules = EndingRules().override({Reason.MAX_TURNS: Mask()})
    for name in ("dr_grpo", "grpo"):
        found = advantages(traces, rules, estimator=name)
        alone = advantages([traces[0], *traces[2:]], rules, estimator=name)
        assert found.values == alone.values
        assert (found.groups[0].used, found.groups[0].scheduled) == (3, 4)


# J07


@report("J07")
def test_a_group_of_one_is_finite_and_kept(given: dict[str, Any]) -> None:
    (trace,) = members(given["rewards"])
    for name in ("dr_grpo", "grpo"):
        found = advantages([trace], estimator=name)
        assert found.values == {trace.id: 0.0}
        assert found.groups[0].used == 1


@pytest.mark.parametrize(
    "rewards",
    [[], [0.0], [3.4e38], [3.0] * 4, [0.1 + 0.2, 0.3], [3.4e38, -3.4e38], [3.4e38] * 3 + [1.0], [5e-324, 0.0]],
)
def test_no_rewards_make_an_advantage_that_is_not_finite(rewards: list[float]) -> None:
    traces = members(list(rewards))
    for name in ("dr_grpo", "grpo"):
        try:
            values = advantages(traces, estimator=name).values
        except RecordError:
            continue  # said, not handed on
        assert all(map(math.isfinite, values.values()))
        assert len(values) == len(rewards)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_filling_a_group_again_has_a_limit(times: int) -> None:
    rules = EndingRules().override({Reason.ENGINE_TIMEOUT: Retry(times)})
    script = Script([ScriptedFailure(reason=Reason.ENGINE_TIMEOUT)])
    settings, sink = RolloutSettings(limits=Limits(), rules=rules), MemorySink()
    task = Task(id="t", prompt="go")

    async def in_time() -> list[Trace]:
        async with asyncio.timeout(20):
            return await group(Talk, task, script.loaded(), 2, settings=settings, sink=sink)

    traces = asyncio.run(in_time())
    assert len(traces) == 2 * (times + 1)
    assert len(script.prompts) == 2 * (times + 1 + settings.limits.request_retries), "budgets add, they never multiply"
    assert {trace.head.attempt for trace in traces} == set(range(times + 1))
    found = advantages(traces, rules)
    assert (found.values, found.groups[0].used, found.groups[0].scheduled) == ({}, 0, 2)
    last = [trace for trace in traces if trace.head.attempt == times]
    assert {decide(trace, rules, earlier=[Reason.ENGINE_TIMEOUT] * times).fate for trace in last} == {Fate.DROPPED}


# J15


@report("J15")
def test_a_custom_estimator_is_matched_by_id(given: dict[str, Any]) -> None:
    traces = [attempt(name, 1.0, member=place) for place, name in enumerate(given["input_ids"])]
    returned = {each["id"]: each["adv"] for each in given["returned"]}
    missing = sorted(set(given["input_ids"]) - returned.keys())
    with pytest.raises(RecordError, match=str(missing).replace("[", r"\[")):
        advantages(traces, estimator=lambda rewards: returned)
    whole = {**returned, **dict.fromkeys(missing, 7)}
    assert list(whole) != given["input_ids"], "in another order than it was given"
    assert advantages(traces, estimator=lambda rewards: whole).values == whole


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_estimator_that_gives_no_finite_number_is_refused(bad: float) -> None:
    with pytest.raises(RecordError, match="finite"):
        advantages(members([1.0, 0.0]), estimator=lambda rewards: dict.fromkeys(rewards, bad))


@pytest.mark.parametrize("extra", ["", "z", "g0-solver-9"])
def test_an_estimator_that_makes_ids_up_is_refused(extra: str) -> None:
    with pytest.raises(RecordError, match="made up"):
        advantages(members([1.0, 0.0]), estimator=lambda rewards: {**rewards, extra: 1.0})


def test_an_estimator_cannot_reach_into_the_rewards() -> None:
    def greedy(rewards: Mapping[str, float]) -> Mapping[str, float]:
        changed = dict(rewards)
        rewards.clear()  # type: ignore[attr-defined]
        return changed

    found = advantages(members([1.0, 0.0]), estimator=greedy)
    assert found.groups[0].baseline == 0.5
    assert len(found.values) == 2


class Uneven(Environment):
    """Scores the number in its task, by member."""

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        return [Task(id=f"t{place}", prompt=f"{place}") for place in range(count)]

    async def score(self, trace: Trace) -> float | None:
        return float(trace.head.member * (int(trace.task.id[1:]) + 1))


register("case-j15", Uneven)


def test_the_advantages_of_a_run_reach_the_rows_of_the_same_rollouts(tmp_path: Path) -> None:
    config = RunConfig(environment="case-j15", tasks=3, group=2)
    asyncio.run(run(config, tmp_path / "run", policy=Script([says("a")]).loaded()))
    reader = RunReader(tmp_path / "run")
    export(reader, "jsonl", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = advantages(list(reader.traces())).values
    assert {row["rollout"]: row["advantage"] for row in rows} == found
    assert sorted(found.values()) == [-1.5, -1.0, -0.5, 0.5, 1.0, 1.5]
    assert audit(reader)["baseline_errors"].value == 0
