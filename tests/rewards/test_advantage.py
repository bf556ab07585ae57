"""Group advantages: who votes, by which ids, and that what was delivered stays."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError, UsageError
from rollbook.rewards.advantage import GroupAdvantages, advantages
from rollbook.rewards.dispositions import rules_hash
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import EndingKind, EndingRules, Mask, Penalize, Reason, Retry
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
