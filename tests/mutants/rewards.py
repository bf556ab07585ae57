"""Mutants of rewards: who votes, what the statistics are, and that what was delivered stays."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the rewards room; `test` is below ``tests/rewards``."""
    return Mutant(name, f"rewards/{file}.py", snippet, replacement, f"tests/rewards/test_{test}")


def ruled(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """An ending rule applied to one rollout."""
    return Mutant(name, "trace/disposition.py", snippet, replacement, f"tests/rewards/test_dispositions.py::{test}")


IDS = "estimators.py::test_an_estimator_is_held_to_its_ids"
SCORER = "scoring.py::test_a_failing_scorer_leaves_the_ending_and_no_reward"
LATE = "advantage.py::test_late_members_never_change_a_delivered_group"
KEYS = "advantage.py::test_groups_go_by_id_and_seat_and_never_by_position"

MUTANTS = [
    mutant(
        "statistics come before the rules",
        "outcome",
        "vote=voting_reward(trace, rules) if disposition.votes else None,",
        "vote=trace.reward,",
        "advantage.py::test_masked_members_leave_before_the_mean_and_the_spread",
    ),
    mutant(
        "who has no vote enters with a reward",
        "dispositions",
        "trace.reward is None or not decide(trace, rules).votes",
        "trace.reward is None",
        "dispositions.py::test_penalties_are_added_to_the_reward",
    ),
    ruled(
        "a failed scorer leaves the vote",
        "if tail.scoring.status is ScoringStatus.FAILED:",
        "if False:",
        "test_without_a_reward_there_is_no_vote",
    ),
    ruled(
        "no reward is a vote",
        "if tail.reward is None:",
        "if False:",
        "test_without_a_reward_there_is_no_vote",
    ),
    ruled(
        "a rollout of which no turn trains votes",
        "    if not trains:",
        "    if False:",
        "test_where_no_turn_trains_there_is_no_vote",
    ),
    ruled(
        "rejected turns train",
        "any(turn not in trace.graph.marks for turn in turns)",
        "len(turns) > 0",
        "test_where_no_turn_trains_there_is_no_vote",
    ),
    ruled(
        "reasons share a budget of retries",
        "earlier.count(ending.reason) < times",
        "len(earlier) < times",
        "test_each_reason_has_a_retry_budget_of_its_own",
    ),
    ruled(
        "a finished run goes on retrying",
        "earlier is not None and earlier.count",
        "earlier is None or earlier.count",
        "test_each_reason_has_a_retry_budget_of_its_own",
    ),
    mutant(
        "a penalty is left out",
        "dispositions",
        "return trace.reward + amount",
        "return trace.reward",
        "dispositions.py::test_penalties_are_added_to_the_reward",
    ),
    mutant(
        "a penalty is added twice",
        "dispositions",
        "return trace.reward + amount",
        "return trace.reward + 2 * amount",
        "advantage.py::test_penalties_enter_the_statistics",
    ),
    mutant(
        "an attempt with a later one was not retried",
        "dispositions",
        "trace.head.attempt < last[_place(trace)]",
        "False",
        "dispositions.py::test_in_a_finished_run_attempts_with_a_later_one_were_retried",
    ),
    mutant(
        "members of other groups are later attempts",
        "dispositions",
        "return trace.head.group, trace.head.agent.seat, trace.head.member",
        'return "", trace.head.agent.seat, trace.head.member',
        "dispositions.py::test_in_a_finished_run_attempts_with_a_later_one_were_retried",
    ),
    mutant(
        "equal rewards have advantages",
        "estimators",
        "max(values) - min(values) <= EQUAL_WITHIN * max(abs(value) for value in values)",
        "False",
        "estimators.py::test_constant_groups_give_exactly_zero",
    ),
    mutant(
        "float error is an advantage",
        "estimators",
        "EQUAL_WITHIN = 1e-9",
        "EQUAL_WITHIN = 0.0",
        "estimators.py::test_constant_groups_give_exactly_zero",
    ),
    mutant(
        "a group of one has a spread",
        "estimators",
        "    if len(values) < 2:\n        return True\n",
        "    if len(values) < 2:\n        return not values\n",
        "advantage.py::test_groups_of_one_and_of_none_are_finite",
    ),
    mutant(
        "the spread is of the population",
        "estimators",
        "math.sqrt(len(rewards) - 1)",
        "math.sqrt(len(rewards))",
        "estimators.py::test_the_spread_is_the_sample_standard_deviation",
    ),
    mutant("an estimator may lose and make up ids", "estimators", "if missing or unknown:", "if False:", IDS),
    mutant("an estimator may make up ids", "estimators", "if missing or unknown:", "if missing:", IDS),
    mutant("an advantage may be no number", "estimators", "if bad:", "if False:", IDS),
    mutant(
        "an estimator may change the rewards",
        "estimators",
        "estimator(dict(rewards))",
        "estimator(rewards)",
        "estimators.py::test_an_estimator_may_answer_in_any_order_and_cannot_change_its_input",
    ),
    mutant(
        "advantages go by position",
        "estimators",
        "{rollout: float(given[rollout]) for rollout in rewards}",
        "dict(zip(rewards, map(float, given.values()), strict=True))",
        "advantage.py::test_an_estimator_of_the_users_own_is_matched_by_id",
    ),
    Mutant(
        "all groups are one",
        "trace/episode.py",
        "GroupKey(trace.head.group, trace.head.agent.seat)",
        'GroupKey("", trace.head.agent.seat)',
        f"tests/rewards/test_{KEYS}",
    ),
    Mutant(
        "all seats are one",
        "trace/episode.py",
        "GroupKey(trace.head.group, trace.head.agent.seat)",
        'GroupKey(trace.head.group, "")',
        f"tests/rewards/test_{KEYS}",
    ),
    mutant(
        "who has no vote is in the baseline",
        "advantage",
        "math.fsum(votes.values()) / len(votes)",
        "math.fsum(votes.values()) / len(members)",
        "advantage.py::test_the_worked_example_wrong_and_right",
    ),
    mutant(
        "a retry is scheduled twice",
        "advantage",
        "sum(each.disposition.fate is not Fate.RETRIED for each in members)",
        "len(members)",
        "advantage.py::test_retried_attempts_are_members_but_not_scheduled_twice",
    ),
    mutant("a delivered group is computed again", "advantage", "if key in done:", "if False:", LATE),
    mutant(
        "late members are not told",
        "advantage",
        "late += [trace.id for trace in members if trace.id not in done[key].members]",
        "pass",
        LATE,
    ),
    mutant("anybody delivers a group", "advantage", "annotation.producer == PRODUCER and", "", LATE),
    mutant(
        "a rollout may come with two rewards",
        "advantage",
        "if _facts(first) != _facts(trace):",
        "if False:",
        "advantage.py::test_one_rollout_votes_once_and_never_with_two_rewards",
    ),
    mutant("a reward may be no finite number", "scoring", "if not math.isfinite(number):", "if False:", SCORER),
    mutant(
        "a reward may be text",
        "scoring",
        "if not isinstance(value, Real | np.bool_):",
        "if False:",
        SCORER,
    ),
    mutant(
        "a failed scorer gives zero",
        "scoring",
        "trace.score_failed(one_line(str(error)))",
        "trace.score(0.0)",
        SCORER,
    ),
    mutant(
        "a silent scorer gives zero",
        "scoring",
        "            return None\n        case None:",
        "            return Rewards(0.0)\n        case None:",
        "scoring.py::test_no_scorer_leaves_it_pending_and_absent_is_not_zero",
    ),
    mutant(
        "a scorer has no time limit",
        "scoring",
        "call_foreign(seconds, call_scorer, env, trace)",
        "call_foreign(0.5, call_scorer, env, trace)",
        "scoring.py::test_a_scorer_that_hangs_fails_and_one_that_is_not_async_scores",
    ),
    mutant(
        "what runs is scored",
        "scoring",
        "if trace.sealed or trace.ending is None:",
        "if trace.sealed:",
        "scoring.py::test_only_ended_and_open_traces_are_scored",
    ),
]
