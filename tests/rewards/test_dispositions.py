"""Ending rules applied to ended rollouts."""

from __future__ import annotations

import msgspec
import pytest

from rollbook.errors import RecordError
from rollbook.rewards.dispositions import annotate, decide, dispositions, rules_hash, voting_reward
from rollbook.trace.ending import (
    Disposition,
    Drop,
    EndingKind,
    EndingRules,
    Fate,
    Mask,
    Penalize,
    Reason,
    Retry,
    Score,
)
from rollbook.trace.node import Mark
from tests.rewards.made import ended


@pytest.mark.parametrize("reason", list(Reason))
def test_the_default_table_scores_outcomes_and_budgets_and_never_errors(reason: Reason) -> None:
    found = decide(ended("r", 1.0, reason=reason))
    assert found.votes == (reason.kind is not EndingKind.ERROR)
    assert found.fate is (Fate.DROPPED if reason.kind is EndingKind.ERROR else Fate.USED)


@pytest.mark.parametrize(
    ("rule", "fate", "row"),
    [
        (Score(), Fate.USED, "max_turns: score"),
        (Mask(), Fate.MASKED, "max_turns: mask"),
        (Drop(), Fate.DROPPED, "max_turns: drop"),
        (Penalize(-0.5), Fate.PENALISED, "max_turns: penalize(-0.5)"),
        (Retry(1), Fate.DROPPED, "max_turns: retry(1), no attempt left"),
    ],
)
def test_each_rule_gives_its_fate(rule: Score | Mask | Drop | Penalize | Retry, fate: Fate, row: str) -> None:
    rules = EndingRules({Reason.MAX_TURNS: rule})
    assert decide(ended("r", 1.0, reason=Reason.MAX_TURNS), rules) == Disposition(fate, row)


def test_each_reason_has_a_retry_budget_of_its_own() -> None:
    lost = ended("r", reason=Reason.SANDBOX_LOST)
    assert decide(lost, earlier=[]).fate is Fate.RETRIED
    assert decide(lost, earlier=[Reason.SANDBOX_LOST, Reason.HARNESS, Reason.HARNESS]).fate is Fate.RETRIED
    assert decide(lost, earlier=[Reason.SANDBOX_LOST] * 2).fate is Fate.DROPPED
    assert decide(lost).fate is Fate.DROPPED
    assert decide(ended("r", reason=Reason.CANCELLED), earlier=[]).fate is Fate.DROPPED


@pytest.mark.parametrize("rule", [Score(), Penalize(-1.0)])
def test_without_a_reward_there_is_no_vote(rule: Score | Penalize) -> None:
    rules = EndingRules({Reason.FINAL_ANSWER: rule})
    failed = ended("r", 1.0)
    failed.score_failed("the judge is down")
    assert decide(failed, rules) == Disposition(Fate.DROPPED, "scoring failed")
    assert decide(ended("r"), rules) == Disposition(Fate.DROPPED, "no reward")
    assert voting_reward(failed, rules) is None


def test_where_no_turn_trains_there_is_no_vote() -> None:
    assert decide(ended("r", 0.0, said=None)) == Disposition(Fate.DROPPED, "no turn trains")
    rejected = ended("r", 0.0)
    rejected.graph.mark(int(rejected.policy_nodes[0]), Mark.REJECTED)
    assert decide(rejected) == Disposition(Fate.DROPPED, "no turn trains")


def test_a_failed_scorer_does_not_stop_a_retry_or_lift_a_mask() -> None:
    trace = ended("r", reason=Reason.HARNESS)
    trace.score_failed("x")
    assert decide(trace, earlier=[]).fate is Fate.RETRIED
    assert decide(trace, EndingRules({Reason.HARNESS: Mask()})).fate is Fate.MASKED


def test_penalties_are_added_to_the_reward() -> None:
    rules = EndingRules({Reason.MAX_TURNS: Penalize(-0.25)})
    assert voting_reward(ended("r", 1.0, reason=Reason.MAX_TURNS), rules) == 0.75
    assert voting_reward(ended("r", 1.0), rules) == 1.0
    assert voting_reward(ended("r", 1.0, reason=Reason.HARNESS), rules) is None


def test_in_a_finished_run_attempts_with_a_later_one_were_retried() -> None:
    traces = [
        ended("m0a0", reason=Reason.HARNESS, member=0, attempt=0),
        ended("m0a1", reason=Reason.HARNESS, member=0, attempt=1),
        ended("m0a2", 1.0, member=0, attempt=2),
        ended("m1a0", reason=Reason.HARNESS, member=1, attempt=0),
        ended("other", reason=Reason.HARNESS, member=0, attempt=0, group="h"),
    ]
    fates = {rollout: found.fate for rollout, found in dispositions(traces).items()}
    assert fates == {
        "m0a0": Fate.RETRIED,
        "m0a1": Fate.RETRIED,
        "m0a2": Fate.USED,
        "m1a0": Fate.DROPPED,
        "other": Fate.DROPPED,
    }


def test_a_running_rollout_has_no_disposition() -> None:
    with pytest.raises(RecordError, match="no ending yet"):
        decide(ended("r", 1.0, reason=None))


def test_the_hash_is_of_what_the_table_decides() -> None:
    assert rules_hash(EndingRules()) == rules_hash(EndingRules({Reason.MAX_TURNS: Score()}))
    assert rules_hash(EndingRules()) != rules_hash(EndingRules({Reason.MAX_TURNS: Mask()}))
    assert rules_hash(EndingRules({Reason.HARNESS: Retry(1)})) != rules_hash(EndingRules({Reason.HARNESS: Retry(3)}))


def test_dispositions_are_annotations_that_read_back() -> None:
    decided = dispositions([ended("r", 1.0)])
    (note,) = annotate(decided, step=4)
    assert (note.producer, note.name, note.rollout, note.step) == ("rewards", "disposition", "r", 4)
    assert msgspec.convert(note.value, Disposition) == decided["r"]
