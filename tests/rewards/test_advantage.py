"""Group advantages: who votes, by which ids, and that what was delivered stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError, RecordError, UsageError
from rollbook.rewards.advantage import GroupAdvantages, advantages, close_group
from rollbook.rewards.dispositions import decide, rules_hash
from rollbook.rewards.estimators import ESTIMATORS, Credit, Vote
from rollbook.rewards.outcome import outcome_of
from rollbook.run import RunConfig
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Ending, EndingKind, EndingRules, Mask, Penalize, Reason, Retry
from rollbook.trace.episode import GroupKey
from rollbook.trace.facts import advantages as recorded
from rollbook.trace.facts import flat_groups
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.record import TurnReward
from rollbook.trace.trace import Trace
from tests.rewards.made import ended


def worked_example() -> list[Trace]:
    """Three pass, two fail, one is truncated with the bug still there, two are lost with their host."""
    return [
        *(ended(f"pass{n}", 1.0) for n in range(3)),
        *(ended(f"fail{n}", 0.0) for n in range(2)),
        ended("cut", 0.0, reason=Reason.MAX_TURNS),
        *(ended(f"lost{n}", reason=Reason.SANDBOX_LOST) for n in range(2)),
    ]


def test_the_worked_example_wrong_and_right() -> None:
    traces = worked_example()
    as_zero = [trace.reward if trace.reward is not None else 0.0 for trace in traces]
    wrong_mean = sum(as_zero) / len(as_zero)
    wrong = {trace.id: reward - wrong_mean for trace, reward in zip(traces, as_zero, strict=True)}
    assert wrong_mean == 0.375
    assert (wrong["lost0"], wrong["lost1"]) == (-0.375, -0.375)

    made = advantages(traces)
    (group,) = made.groups
    assert group.baseline == 0.5
    assert group.values == {
        **{f"pass{n}": 0.5 for n in range(3)},
        **{f"fail{n}": -0.5 for n in range(2)},
        "cut": -0.5,
    }
    assert (group.scheduled, group.used, len(group.members)) == (8, 6, 8)
    assert [note.value["advantage"] for note in made.annotations() if note.rollout == "lost0"] == [None]


def test_a_truncated_rollout_whose_state_passes_counts_as_a_pass() -> None:
    traces = [ended("cut", 1.0, reason=Reason.DEADLINE), ended("fail", 0.0)]
    assert advantages(traces).values == {"cut": 0.5, "fail": -0.5}


def test_groups_go_by_id_and_seat_and_never_by_position() -> None:
    rewards = [("g1", 1), ("g0", 1), ("g1", 1), ("g0", 0), ("g1", 1)]
    traces = [ended(f"r{n}", reward, group=group) for n, (group, reward) in enumerate(rewards)]
    assert advantages(traces).values == {"r0": 0.0, "r1": 0.5, "r2": 0.0, "r3": -0.5, "r4": 0.0}
    seats = [ended("a", 1, seat="solver"), ended("b", 0, seat="judge"), ended("c", 0, seat="solver")]
    assert advantages(seats).values == {"a": 0.5, "b": 0.0, "c": -0.5}


def test_masked_members_leave_before_the_mean_and_the_spread() -> None:
    rules = EndingRules({Reason.MAX_TOKENS: Mask()})
    traces = [ended(key, reward) for key, reward in (("a", 1), ("c", 0), ("d", 0))]
    traces.insert(1, ended("b", 1, reason=Reason.MAX_TOKENS))
    plain, spread = advantages(traces, rules), advantages(traces, rules, estimator="grpo")
    assert plain.values == pytest.approx({"a": 2 / 3, "c": -1 / 3, "d": -1 / 3})
    assert {key: round(value, 3) for key, value in spread.values.items()} == {"a": 1.155, "c": -0.577, "d": -0.577}


def test_a_member_without_a_turn_does_not_vote() -> None:
    traces = [ended("a", 1.0), ended("b", 0.0), ended("empty", 0.0, reason=Reason.CONTEXT_OVERFLOW, said=None)]
    assert advantages(traces).values == {"a": 0.5, "b": -0.5}


def test_a_failed_scorer_does_not_vote() -> None:
    failed = ended("failed", 0.0)
    failed.score_failed("judge down")
    assert advantages([ended("a", 1.0), ended("b", 0.0), failed]).values == {"a": 0.5, "b": -0.5}


def test_penalties_enter_the_statistics() -> None:
    rules = EndingRules({Reason.MAX_TURNS: Penalize(-1.0)})
    traces = [ended("a", 1.0), ended("cut", 0.0, reason=Reason.MAX_TURNS)]
    assert advantages(traces, rules).values == {"a": 1.0, "cut": -1.0}


@pytest.mark.parametrize("name", ["dr_grpo", "grpo"])
def test_groups_of_one_and_of_none_are_finite(name: str) -> None:
    assert advantages([ended("a", 5.0)], estimator=name).values == {"a": 0.0}
    (nobody,) = advantages([ended("a", reason=Reason.HARNESS)], estimator=name).groups
    assert (nobody.values, nobody.baseline, nobody.scheduled, nobody.used) == ({}, None, 1, 0)
    assert advantages([], estimator=name).groups == ()


def test_retried_attempts_are_members_but_not_scheduled_twice() -> None:
    traces = [
        ended("first", reason=Reason.HARNESS, member=0),
        ended("second", 1.0, member=0, attempt=1),
        ended("other", 0.0, member=1),
    ]
    (group,) = advantages(traces).groups
    assert (group.members, group.scheduled, group.used) == (("first", "second", "other"), 2, 2)
    assert advantages(traces, scheduled=4).groups[0].scheduled == 4


def test_one_rollout_votes_once_and_never_with_two_rewards() -> None:
    same = [ended("a", 1.0), ended("a", 1.0), ended("b", 0.0)]
    assert advantages(same).values == {"a": 0.5, "b": -0.5}
    for other in (ended("a", 0.0), ended("a", 1.0, group="h"), ended("a", 1.0, reason=Reason.MAX_TURNS)):
        with pytest.raises(RecordError, match="rollout a came twice"):
            advantages([ended("a", 1.0), other])


def leave_out(rewards: Mapping[str, float]) -> dict[str, float]:
    return {"c": 1.0, "a": -1.0} if rewards else {}


def double(rewards: Mapping[str, float]) -> dict[str, float]:
    return {key: 2 * rewards[key] for key in sorted(rewards, reverse=True)}


def test_an_estimator_of_the_users_own_is_matched_by_id() -> None:
    traces = [ended("a", 1.0), ended("b", 2.0), ended("c", 3.0)]
    (group,) = advantages(traces, estimator=double).groups
    assert (group.values, group.estimator) == ({"a": 2.0, "b": 4.0, "c": 6.0}, "double")
    with pytest.raises(RecordError, match=r"left out \['b'\]"):
        advantages(traces, estimator=leave_out)


def test_annotations_keep_how_it_was_made_and_read_back() -> None:
    rules = EndingRules({Reason.HARNESS: Retry(0)})
    result = advantages([ended("a", 1.0), ended("b", 0.0)], rules, estimator="grpo")
    notes = result.annotations(step=3)
    assert [(note.rollout, note.step, note.name) for note in notes] == [("a", 3, "advantage"), ("b", 3, "advantage")]
    assert notes[0].value["advantage"] == result.values["a"]
    assert notes[0].value["rules"] == rules_hash(rules)
    assert (notes[0].value["estimator"], notes[0].value["members"]) == ("grpo", ["a", "b"])
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(notes), type=list[Annotation])
    assert msgspec.convert(stored[1].value, GroupAdvantages) == result.groups[0]


def test_late_members_never_change_a_delivered_group() -> None:
    early = [ended("a", 1.0), ended("b", 0.0)]
    first = advantages(early)
    late = [*early, ended("c", 0.0), ended("d", 1.0, group="h")]
    again = advantages(late, estimator="grpo", delivered=first.annotations())
    assert again.groups[0] == first.groups[0]
    assert (again.late, again.values) == (("c",), {"a": 0.5, "b": -0.5, "d": 0.0})
    other = Annotation(producer="audit", name="advantage", rollout="a", value=1)
    assert advantages(late, delivered=[other]).groups[0].used == 3
    with pytest.raises(UsageError, match="is no Advantage"):
        advantages(late, delivered=[msgspec.structs.replace(other, producer="rewards")])


def test_a_group_where_nobody_voted_is_delivered_too() -> None:
    lost = ended("a", reason=Reason.HARNESS)
    first = advantages([lost])
    again = advantages([lost, ended("b", 1.0)], delivered=first.annotations())
    assert (again.values, again.late) == ({}, ("b",))


MEMBERS = st.lists(st.tuples(st.sampled_from(list(Reason)), st.sampled_from([0.0, 0.5, 1.0])), max_size=10)


@settings(deadline=None)
@given(MEMBERS)
def test_no_error_ever_reaches_a_baseline(members: list[tuple[Reason, float]]) -> None:
    traces = [ended(str(n), reward, reason=reason, member=n) for n, (reason, reward) in enumerate(members)]
    voters = [trace for trace in traces if trace.ending is not None and trace.ending.kind is not EndingKind.ERROR]
    assert advantages(traces).values == advantages(voters).values
    assert advantages(traces).values.keys() == {trace.id for trace in voters}


def parted(rollout: str, **parts: float) -> Trace:
    trace = ended(rollout)
    trace.score(sum(parts.values()), parts)
    return trace


def test_a_part_that_must_differ_takes_the_signal_of_a_group() -> None:
    failed = [parted("a", right=0.0, length=-0.1), parted("b", right=0.0, length=-0.3)]
    (group,) = advantages(failed, estimator="grpo", outcome_part="right").groups
    assert (group.values, group.no_signal, group.zero_variance) == (
        {"a": 0.0, "b": 0.0},
        "all alike in 'right'",
        True,
    )
    assert (group.used, group.baseline) == (2, -0.2)
    mixed = [*failed, parted("c", right=1.0, length=-0.2)]
    (group,) = advantages(mixed, outcome_part="right").groups
    assert group.no_signal is None
    assert group.values == advantages(mixed).values
    one = [parted("a", right=0.0), parted("b", length=-0.3)]
    assert advantages(one, outcome_part="right").groups[0].no_signal is None, "who lacks it is unlike the other"
    with pytest.raises(ConfigError, match=r"nobody in group g has it \(parts: length, right\)"):
        advantages(failed, outcome_part="rihgt")
    assert advantages([], outcome_part="right").groups == ()
    assert advantages([ended("a", reason=Reason.HARNESS)], outcome_part="right").groups[0].used == 0


def test_a_group_without_a_signal_leaves_the_batch_before_its_statistics() -> None:
    flat = [parted("a", right=0.0, length=-5.0), parted("b", right=0.0, length=5.0)]
    clear = [ended("c", group="h"), ended("d", group="h")]
    clear[0].score(1.0, {"right": 1.0})
    clear[1].score(0.0, {"right": 0.0})
    both = advantages([*flat, *clear], estimator="reinforce_pp_baseline", outcome_part="right")
    alone = advantages(clear, estimator="reinforce_pp_baseline", outcome_part="right")
    assert both.values == {"a": 0.0, "b": 0.0, **alone.values}


def test_an_estimator_of_the_whole_batch_closes_no_group_alone() -> None:
    with pytest.raises(ConfigError, match="'gdpo' needs all groups of a batch at once"):
        close_group(GroupKey("g", "solver"), [], estimator="gdpo")
    with pytest.raises(ConfigError, match="needs all groups"):
        RunConfig(environment="guess", estimator="reinforce_pp")
    with pytest.raises(ConfigError, match="there is no estimator 'ppo'"):
        RunConfig(environment="guess", estimator="ppo")


def test_advantages_of_turns_are_kept_with_their_own_rollout_and_come_back_whole() -> None:
    traces = [turned("a", 0.5, 0.25, total=1.0), turned("b", 0.25, None, total=0.25)]
    first = advantages(traces, estimator="turn_level")
    (group,) = first.groups
    # left before each turn: a 1.0, 0.5; b 0.25, 0.0
    assert group.turns == {"a": ((0, 0.375), (1, 0.25)), "b": ((0, -0.375), (1, -0.25))}
    notes = first.annotations()
    assert notes[0].value["turns"] == {"a": [[0, 0.375], [1, 0.25]]}
    assert advantages(traces, delivered=notes) == first
    one = recorded(notes)["b"]
    assert (one.advantage, one.turn_advantages) == (-0.375, {0: -0.375, 1: -0.25})
    assert not group.zero_variance
    level = advantages([turned("a", 1.0, 0.0, total=1.0), turned("b", 0.0, 1.0, total=1.0)], estimator="turn_level")
    assert level.values == {"a": 0.0, "b": 0.0}
    assert not level.groups[0].zero_variance, "there is something to learn of its turns"
    assert flat_groups(recorded(level.annotations()).values()) == set()


def turned(rollout: str, *given: float | None, total: float) -> Trace:
    """A rollout with a turn for each reward; what the policy sees before its second turn is always the same."""
    trace = ended(rollout, reason=None)
    for _ in given[1:]:
        shown = trace.graph.add(
            Message(role=Role.USER, content="on"), parent=len(trace.graph) - 1, origin=Origin.ENVIRONMENT
        )
        trace.graph.add(Message(role=Role.ASSISTANT, content="so"), parent=shown, origin=Origin.POLICY)
    trace.end(Ending(Reason.FINAL_ANSWER))
    nodes = trace.policy_nodes.tolist()
    rewards = tuple(TurnReward(node, each) for node, each in zip(nodes, given, strict=True) if each is not None)
    trace.score(total, turn_rewards=rewards)
    return trace


def test_what_an_estimator_is_told_of_a_rollout() -> None:
    seen: list[Vote] = []

    def keep(groups: Sequence[Sequence[Vote]]) -> list[Credit]:
        seen.extend(groups[0])
        return [Credit(values={vote.rollout: 0.0 for vote in groups[0]})]

    trace = turned("a", 0.5, None, total=1.0)
    trace.update(turn_rewards=(*trace.tail.turn_rewards, TurnReward(1, 0.25)), reward_parts={"right": 1.0})
    rules = EndingRules({Reason.FINAL_ANSWER: Penalize(-0.5)})
    advantages([trace], rules, estimator=dataclasses.replace(ESTIMATORS["grpo"], estimate=keep))
    (vote,) = seen
    assert (vote.reward, vote.penalty, vote.parts) == (0.5, -0.5, {"right": 1.0})
    assert [turn.reward for turn in vote.turns] == [0.75, None], "two rewards of one turn are added up"
    states = [turn.state for turn in vote.turns]
    assert len(set(states)) == 2
    assert None not in states


def test_turns_before_the_same_observation_have_the_same_state() -> None:
    def states(trace: Trace) -> tuple[str, ...]:
        return outcome_of(trace, EndingRules(), decide(trace)).states

    longer, shorter = states(turned("a", 1.0, 1.0, 1.0, total=3.0)), states(turned("b", 0.0, 0.0, total=0.0))
    assert longer[:2] == shorter
    assert longer[1] == longer[2] != longer[0]
    assert states(ended("c", 1.0, said=None)) == ()
