"""Mutants of rewards: who votes, what the statistics are, and that what was delivered stays."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the rewards room; `test` is below ``tests/rewards``."""
    return Mutant(name, f"rewards/{file}.py", snippet, replacement, f"tests/rewards/test_{test}")


def credit(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the estimators; `test` is below ``tests/rewards/estimators``."""
    return Mutant(name, f"rewards/estimators/{file}.py", snippet, replacement, f"tests/rewards/estimators/test_{test}")


def ruled(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """An ending rule applied to one rollout."""
    return Mutant(name, "trace/disposition.py", snippet, replacement, f"tests/rewards/test_dispositions.py::{test}")


IDS = "table.py::test_an_estimator_is_held_to_its_ids"
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
    credit(
        "equal rewards have advantages",
        "statistics",
        "max(values) - min(values) <= max(EQUAL_WITHIN * largest(values), noise)",
        "False",
        "table.py::test_a_constant_group_gives_exactly_nothing",
    ),
    credit(
        "float error is an advantage",
        "statistics",
        "EQUAL_WITHIN = 1e-6",
        "EQUAL_WITHIN = 1e-9",
        "statistics.py::test_sums_in_float32_are_equal_to_the_same_in_float64",
    ),
    credit(
        "differences of large numbers have no noise",
        "statistics",
        "max(EQUAL_WITHIN * largest(values), noise)",
        "EQUAL_WITHIN * largest(values)",
        "statistics.py::test_differences_of_large_numbers_have_their_noise",
    ),
    credit(
        "rounding of the mean is an advantage",
        "statistics",
        "0.0 if abs(value) <= rounding else value",
        "value",
        "statistics.py::test_who_stands_on_the_mean_has_exactly_nothing",
    ),
    credit(
        "a group of one has a spread",
        "statistics",
        "    if len(values) < 2:\n        return True\n",
        "    if len(values) < 2:\n        return not values\n",
        "statistics.py::test_what_is_equal_but_for_float_error_is_constant",
    ),
    credit(
        "the spread is of the population",
        "statistics",
        "math.sqrt(len(centred_values) - 1)",
        "math.sqrt(len(centred_values))",
        "baselines.py::test_grpo_divides_by_the_sample_standard_deviation",
    ),
    credit(
        "a rollout is among the others",
        "baselines",
        "len(votes) / max(len(votes) - 1, 1)",
        "1.0",
        "baselines.py::test_rloo_compares_with_the_others",
    ),
    credit(
        "lengths weigh nothing",
        "baselines",
        "vote.reward * (vote.sampled / tokens) for vote in votes",
        "vote.reward / len(votes) for vote in votes",
        "baselines.py::test_opo_weighs_the_baseline_by_length",
    ),
    credit(
        "maxrl takes negative rewards",
        "baselines",
        "    if negative:",
        "    if False:",
        "baselines.py::test_maxrl_divides_by_the_success_rate",
    ),
    credit(
        "float error wins",
        "baselines",
        "not constant([ranked[0].reward, ranked[1].reward])",
        "ranked[0].reward > ranked[1].reward",
        "baselines.py::test_pass_at_k_credits_the_best_alone",
    ),
    credit(
        "a missing part is zero",
        "whole_batch",
        "parts[name] for vote, parts in zip(votes, members, strict=True) if name in parts",
        "parts.get(name, 0.0) for vote, parts in zip(votes, members, strict=True)",
        "whole_batch.py::test_gdpo_leaves_a_missing_part_out_of_its_statistics",
    ),
    credit(
        "the batch is not whitened",
        "whole_batch",
        "1.0 if constant(batch) else deviation(batch)",
        "1.0",
        "whole_batch.py::test_reinforce_pp_baseline_centres_in_the_group_and_divides_by_the_batch",
    ),
    credit(
        "who has stopped has nothing left",
        "turn_level",
        "row[min(turn, len(row) - 1)]",
        "row[turn] if turn < len(row) - 1 else 0.0",
        "turn_level.py::test_an_outcome_at_the_end_counts_for_every_turn_and_for_those_that_stopped",
    ),
    credit(
        "turns are credited for what came before",
        "turn_level",
        "return left[::-1]",
        "return [left[-1]] * len(left)",
        "turn_level.py::test_returns_are_centred_and_never_single_turns",
    ),
    credit(
        "returns are not discounted",
        "gigpo",
        "behind *= discount",
        "behind *= 1.0",
        "gigpo.py::test_a_state_may_be_met_twice_in_one_rollout",
    ),
    credit("an estimator may lose and make up ids", "table", "if missing or unknown:", "if False:", IDS),
    credit("an estimator may make up ids", "table", "if missing or unknown:", "if missing:", IDS),
    credit("an advantage may be no number", "table", "    if bad:", "    if False:", IDS),
    credit("an estimator may make up turns", "table", "    if stray:", "    if False:", IDS),
    credit(
        "advantages go by position",
        "table",
        "{rollout: float(given[rollout]) for rollout in turns}",
        "dict(zip(turns, map(float, given.values()), strict=True))",
        "table.py::test_a_users_own_may_answer_in_any_order_and_cannot_change_its_input",
    ),
    mutant(
        "shaping is a signal",
        "advantage",
        "outcome_part is not None and _alike(key, rows, outcome_part)",
        "False",
        "advantage.py::test_a_part_that_must_differ_takes_the_signal_of_a_group",
    ),
    mutant(
        "nobody has the part and nobody is told",
        "advantage",
        "if votes and not given:",
        "if False:",
        "advantage.py::test_a_part_that_must_differ_takes_the_signal_of_a_group",
    ),
    mutant(
        "a batch's estimator closes a group alone",
        "advantage",
        "    if row.whole_batch:",
        "    if False:",
        "advantage.py::test_an_estimator_of_the_whole_batch_closes_no_group_alone",
    ),
    mutant(
        "seats share a baseline unasked",
        "advantage",
        "    if share_seats:",
        "    if True:",
        "advantage.py::test_groups_go_by_id_and_seat_and_never_by_position",
    ),
    mutant(
        "a penalty is no part",
        "advantage",
        "penalty=0.0 if outcome.reward is None else reward - outcome.reward,",
        "penalty=0.0,",
        "advantage.py::test_what_an_estimator_is_told_of_a_rollout",
    ),
    mutant(
        "rewards of one turn replace each other",
        "outcome",
        "(turn, math.fsum(found[turn]))",
        "(turn, found[turn][-1])",
        "advantage.py::test_what_an_estimator_is_told_of_a_rollout",
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
        "mean([vote.reward for vote in votes[key]]) if",
        "sum(vote.reward for vote in votes[key]) / len(groups[key]) if",
        "advantage.py::test_the_worked_example_wrong_and_right",
    ),
    mutant(
        "a retry is scheduled twice",
        "advantage",
        "sum(each.disposition.fate is not Fate.RETRIED for each in members)",
        "sum(True for _ in members)",
        "advantage.py::test_retried_attempts_are_members_but_not_scheduled_twice",
    ),
    mutant("a delivered group is computed again", "advantage", "        if key not in done\n", "", LATE),
    mutant("late members are not told", "advantage", "for key in grouped if key in done", "for key in ()", LATE),
    mutant("anybody delivers a group", "advantage", " if note.producer == PRODUCER", "", LATE),
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
