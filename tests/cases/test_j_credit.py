"""Credit: one vote for each rollout, one baseline for what is compared, and no signal out of noise or shaping."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.audit import audit
from rollbook.envs import Environment, Rewards, register
from rollbook.rewards import ESTIMATORS, Advantages, advantages
from rollbook.run import RunConfig, open_run, run, what_if
from rollbook.run.what_if import rules_from
from rollbook.trace import (
    Ending,
    EndingRules,
    Fork,
    ForkReason,
    Mask,
    MemorySink,
    Message,
    Origin,
    Reason,
    Role,
    RunKind,
    Task,
    Trace,
    TurnReward,
    make_runs,
    samples,
)
from tests.cases.case import Script, add_turn, add_user, attempt, head, report, says
from tests.run.judged import Attempt, judged

RETRY = Fork(reason=ForkReason.RETRY)


def several(name: str, reward: float, *, branches: int = 1, turns: int = 1, **more: Any) -> Trace:
    """A rollout with so many branches, the first of so many turns."""
    trace = Trace(head(name, **more))
    add_user(trace, "?", [1, 2, 3])
    for turn in range(turns):
        add_turn(trace, "answer", [7, 8])
        if turn + 1 < turns:
            add_user(trace, "and", [4], role=Role.TOOL)
    for _ in range(branches - 1):
        trace.graph.add(
            Message(role=Role.ASSISTANT, content="again"),
            parent=0,
            origin=Origin.POLICY,
            token_ids=np.array([9, 9], np.int32),
            runs=make_runs((RunKind.SAMPLED, 2)),
            logprobs=np.full(2, -0.5, np.float32),
            fork=RETRY,
        )
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(reward)
    return trace


def whole_numbers(found: Mapping[str, float], names: Sequence[str]) -> list[float]:
    return [found[name] for name in names]


def seal(traces: Sequence[Trace], found: Advantages | None = None) -> MemorySink:
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    sink.annotate(found.annotations() if found else ())
    return sink


# J01, J12: a rollout is one vote


@report("J01")
def test_a_rollout_with_more_samples_votes_once(given: dict[str, Any]) -> None:
    names = [each["rollout"] for each in given["samples"]]
    rewards = {each["rollout"]: float(each["r"]) for each in given["samples"]}
    traces = [several(name, rewards[name], branches=names.count(name)) for name in dict.fromkeys(names)]
    found = advantages(traces)
    assert found.groups[0].baseline == 0.5
    rows = [sample.advantage for trace in traces for sample in samples(trace, advantage=found.values[trace.id])]
    assert rows == [0.5, 0.5, 0.5, -0.5]


@report("J12")
def test_a_rollout_with_more_turns_votes_once(given: dict[str, Any]) -> None:
    names = [each["ro"] for each in given["samples"]]
    rewards = {each["ro"]: float(each["r"]) for each in given["samples"]}
    for split in ("turns", "branches"):
        traces = [several(f"r{name}", rewards[name], **{split: names.count(name)}) for name in dict.fromkeys(names)]
        found = advantages(traces)
        assert found.groups[0].baseline == 0.5
        assert whole_numbers(found.values, ["r1", "r2", "r3", "r4"]) == [0.5, -0.5, 0.5, -0.5]


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("branches", [1, 3, 7])
def test_branches_change_no_estimate(estimator: str, branches: int) -> None:
    """But for the length that OPO weighs by, which is made equal here."""
    rewards = {"a": 1.0, "b": 0.0, "c": 0.25}
    plain = advantages([several(name, reward) for name, reward in rewards.items()], estimator=estimator)
    fanned = advantages(
        [several(name, reward, branches=branches) for name, reward in rewards.items()], estimator=estimator
    )
    assert fanned.values == plain.values


# J06: float noise


@report("J06")
def test_an_odd_one_out_has_a_bounded_advantage(given: dict[str, Any]) -> None:
    rewards = [float(np.dtype(given["dtype"]).type(reward)) for reward in given["rewards"]]
    traces = [attempt(f"r{place}", reward, member=place) for place, reward in enumerate(rewards)]
    bound = (len(rewards) - 1) / math.sqrt(len(rewards))
    for name in ESTIMATORS:
        values = advantages(traces, estimator=name).values.values()
        assert max(map(abs, values)) <= bound, name
    assert advantages(traces, estimator="rloo").values["r0"] == pytest.approx(-0.95)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("reward", [0.95, 0.35, 0.7, 0.4, 1 / 3, 1e-8, 3e38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_seven_equal_rewards_have_no_spread(estimator: str, reward: float, dtype: type[np.floating]) -> None:
    exact = dtype(reward)
    rewards = [float(exact), float(np.nextafter(exact, dtype(0))), *[float(exact)] * 5]
    traces = [attempt(f"r{place}", value, member=place) for place, value in enumerate(rewards)]
    assert set(advantages(traces, estimator=estimator).values.values()) == {0.0}


# J08: shaping is no signal


class Shaped(Environment):
    """Fails always, and takes a little off for length."""

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        return [Task(id="t0", prompt="go")] * count

    async def score(self, trace: Trace) -> Rewards:
        length = -0.03 * (trace.head.member + 1)
        return Rewards(length, {"outcome": 0.0, "length": length})


register("case-j08", Shaped)


@report("J08")
def test_without_variance_of_the_outcome_there_is_no_signal(given: dict[str, Any]) -> None:
    traces: list[Trace] = []
    for place, (outcome, shaped) in enumerate(zip(given["outcome"], given["shaped"], strict=True)):
        trace = attempt(f"r{place}", None, member=place)
        trace.score(float(shaped), {"outcome": float(outcome), "length": float(shaped)})
        traces.append(trace)
    names = [trace.id for trace in traces]
    noise = advantages(traces, estimator="grpo")
    assert whole_numbers(noise.values, names) == pytest.approx([1.162, 0.387, -0.387, -1.162], abs=1e-3)
    found = advantages(traces, estimator="grpo", outcome_part="outcome")
    assert whole_numbers(found.values, names) == [0.0] * 4
    assert found.groups[0].no_signal == "all alike in 'outcome'"
    judged = audit(seal(traces, found))["zero_variance"]
    assert (judged.value, judged.details["gated"]) == (1.0, 1)
    assert judged.findings[0].text.endswith("its 4 voters are all alike in 'outcome'")


def test_a_run_is_gated_as_its_configuration_says(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"environment": "case-j08", "tasks": 1, "group": 3, "estimator": "grpo"}
    for part, flat in ((None, 0), ("outcome", 1)):
        folder = tmp_path / f"{part}"
        config = RunConfig(**shared, outcome_part=part)
        asyncio.run(run(config, folder, policy=Script([says("a")]).loaded()))
        assert audit(open_run(folder))["zero_variance"].value == flat
    assert what_if(open_run(tmp_path / "None"), outcome_part="outcome").effect.flat_after == 1


# J09, J10, J11: what is compared


@report("J09")
def test_rollouts_of_one_task_are_one_group_whatever_their_own_ids(given: dict[str, Any]) -> None:
    rows = given["rollouts"]
    traces = [
        attempt(each["traj"], float(each["r"]), group=given["task"], member=place) for place, each in enumerate(rows)
    ]
    found = advantages(traces)
    (group,) = found.groups
    assert (group.used, group.members) == (4, ("u1", "u2", "u3", "u4"))
    assert whole_numbers(found.values, ["u1", "u2", "u3", "u4"]) == [0.5, -0.5, 0.5, -0.5]
    assert audit(seal(traces, advantages(traces, scheduled=4)))["group_sizes"].value == 0.0

    alone = [attempt(each["traj"], float(each["r"]), group=each["traj"]) for each in rows]
    wrong = advantages(alone, scheduled=4)
    assert set(wrong.values.values()) == {0.0}, "a group of one has nothing to learn, and never its raw reward"
    assert audit(seal(alone, wrong))["group_sizes"].value == 1.0


@report("J10")
def test_groups_whose_prompts_look_alike_are_not_one(given: dict[str, Any]) -> None:
    traces = [
        attempt(f"{name}-{place}", float(reward), group=name, member=place)
        for name, group in given.items()
        for place, reward in enumerate(group["rewards"])
    ]
    assert len({trace.graph.path_ids(0).tobytes() for trace in traces}) == 1, "the same prompt in both"
    found = advantages(traces)
    assert len(found.groups) == 2
    assert set(found.values.values()) == {0.0}


@report("J11")
def test_each_seat_has_a_baseline_of_its_own_unless_asked(given: dict[str, Any]) -> None:
    traces = [
        attempt(f"r{place}", float(each["r"]), seat=each["agent"], member=place)
        for place, each in enumerate(given["episode_group"])
    ]
    names = [trace.id for trace in traces]
    found = advantages(traces)
    assert whole_numbers(found.values, names) == pytest.approx([0.4, -0.4, 1.0, -1.0])
    assert [group.seat for group in found.groups] == ["solver", "judge"]
    together = advantages(traces, share_seats=True)
    assert whole_numbers(together.values, names) == pytest.approx([0.9 - 4.75, 0.1 - 4.75, 10 - 4.75, 8 - 4.75])
    assert [group.seat for group in together.groups] == ["judge+solver"]
    again = advantages(traces, share_seats=True, delivered=together.annotations())
    assert again == together


# J13: credit by turn


def turns(name: str, given: Sequence[float], member: int) -> Trace:
    trace = Trace(head(name, member=member))
    add_user(trace, "?", [1, 2, 3])
    nodes = []
    for place, _ in enumerate(given):
        nodes.append(add_turn(trace, "go on", [7, 8]))
        if place + 1 < len(given):
            add_user(trace, "so", [4], role=Role.TOOL)
    trace.end(Ending(Reason.FINAL_ANSWER))
    rewards = tuple(TurnReward(node, value) for node, value in zip(nodes, given, strict=True))
    trace.score(math.fsum(given), turn_rewards=rewards)
    return trace


@report("J13")
def test_returns_are_centred_and_not_the_turns_of_one_number(given: dict[str, Any]) -> None:
    rows = [each["turn_rewards"] for each in given["rollouts"]]
    traces = [turns(f"r{place}", row, place) for place, row in enumerate(rows)]
    for estimator in ("dr_grpo", "turn_level"):
        assert whole_numbers(advantages(traces, estimator=estimator).values, ["r0", "r1"]) == [-0.25, 0.25]
    (group,) = advantages(traces, estimator="turn_level").groups
    signs = {name: {math.copysign(1, value) for _, value in rows} for name, rows in group.turns.items()}
    assert signs == {"r0": {-1.0}, "r1": {1.0}}, "another turn that pays is never punished"
    by_token = [
        samples(trace, advantage=group.values[trace.id], turn_advantages=dict(group.turns[trace.id]))
        for trace in traces
    ]
    given_tokens = [set(sample.advantages[sample.loss_mask].tolist()) for found in by_token for sample in found]
    assert given_tokens == [{-0.25}, {0.25, 0.5}]


# J16, D02, E12: who is not in the statistics


@report("J16")
def test_a_masked_rollout_is_out_of_every_statistic(given: dict[str, Any]) -> None:
    traces = [
        attempt(f"r{place}", reward, member=place, reason=Reason.DEADLINE if masked else Reason.FINAL_ANSWER)
        for place, (reward, masked) in enumerate(zip(given["rewards_after_penalty"], given["loss_masked"], strict=True))
    ]
    rules = EndingRules({Reason.DEADLINE: Mask()})
    (group,) = advantages(traces, rules).groups
    assert group.baseline == 0.75
    assert group.values == pytest.approx({"r0": 0.05, "r1": -0.05})
    for name in ESTIMATORS:
        positive = [trace for trace in traces if trace.id != "r2"]
        assert advantages(traces, rules, estimator=name).values == advantages(positive, rules, estimator=name).values


@report("D02")
def test_who_failed_in_setup_moves_no_advantage(given: dict[str, Any]) -> None:
    traces = [
        attempt(f"r{place}", None, ids=(), member=place, reason=Reason.ENV_SETUP)
        if "error" in row
        else attempt(f"r{place}", row["reward"], member=place)
        for place, row in enumerate(given["group"])
    ]
    for name in ESTIMATORS:
        (group,) = advantages(traces, estimator=name, scheduled=4).groups
        assert (group.values, group.used, group.scheduled) == ({"r3": 0.0}, 1, 4)


def test_what_if_shows_what_errors_as_zero_would_have_taught(tmp_path: Path) -> None:

    lost = [Attempt(member=place, reward=None, reason=Reason.ENV_SETUP) for place in range(3)]
    source = judged(tmp_path / "run", [*lost, Attempt(member=3, reward=1.0)], group=4)
    found = what_if(source, rules=rules_from({"error": {"reward": 0.0}}))
    assert list(found.verdict.values.values()) == [-0.25, -0.25, -0.25, 0.75]


@report("E12")
def test_a_placeholder_row_enters_no_estimate(given: dict[str, Any]) -> None:
    real = [attempt(f"r{place}", reward, member=place) for place, reward in enumerate([1.0, 0.0, 0.5])]
    lost = attempt("lost", given["synthetic_row"]["reward"], ids=(), member=3, reason=Reason.ENV_SETUP)
    for name in ESTIMATORS:
        assert advantages([*real, lost], estimator=name).values == advantages(real, estimator=name).values
