"""Mutants of scorers, judges and group scoring: what fails is never a reward."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

SCORERS, JUDGE = "tests/rewards/test_scorers.py", "tests/rewards/test_judge.py"
WHOLE = "tests/rewards/test_group_scoring.py"

MUTANTS = [
    Mutant(
        "a verifier that died may leave a reward",
        "rewards/scorers/verifier.py",
        "    if not done.ok:",
        "    if False:",
        f"{SCORERS}::test_anything_else_of_a_verifier_is_no_reward",
    ),
    Mutant(
        "a reward outside of the range is one",
        "rewards/scorers/verifier.py",
        "    if not low <= reward <= high:",
        "    if False:",
        f"{SCORERS}::test_anything_else_of_a_verifier_is_no_reward",
    ),
    Mutant(
        "a part that says nothing counts as 0",
        "rewards/scorers/weighted.py",
        "if len(known) == len(totals) else None",
        "",
        f"{SCORERS}::test_a_part_that_fails_fails_the_whole_and_a_silent_one_leaves_no_total",
    ),
    Mutant(
        "a task without a target is compared",
        "rewards/scorers/scorer.py",
        "    if not text:",
        "    if False:",
        f"{SCORERS}::test_without_a_target_nothing_is_right_or_wrong",
    ),
    Mutant(
        "of several verdicts the last counts",
        "rewards/scorers/verdict.py",
        "for line in lines) > 1:",
        "for line in lines) > 9:",
        f"{JUDGE}::test_what_is_no_verdict_is_a_failure_of_its_kind",
    ),
    Mutant(
        "a verdict outside of the range is one",
        "rewards/scorers/verdict.py",
        "    if not low <= verdict <= high:",
        "    if False:",
        f"{JUDGE}::test_what_is_no_verdict_is_a_failure_of_its_kind",
    ),
    Mutant(
        "a verdict that the limit cut counts",
        "rewards/scorers/judge.py",
        "        if reply.finish is Finish.LENGTH:",
        "        if False:",
        f"{JUDGE}::test_what_the_engine_does_has_its_kind",
    ),
    Mutant(
        "a broken contract is asked again",
        "rewards/scorers/asking.py",
        "            if failure.kind not in _IN_TRANSIT or not left:",
        "            if not left:",
        f"{JUDGE}::test_only_a_failure_in_transit_is_asked_again",
    ),
    Mutant(
        "who cannot vote is compared",
        "rewards/group_scoring.py",
        "    if trace.tail.scoring.status is ScoringStatus.FAILED:",
        "    if False:",
        f"{WHOLE}::test_compared_is_who_would_vote",
    ),
    Mutant(
        "a group scorer may leave a rollout out",
        "rewards/group_scoring.py",
        "    if missing or unknown:",
        "    if unknown:",
        f"{WHOLE}::test_a_failure_leaves_each_of_them_failed",
    ),
    Mutant(
        "pairs are compared in one order",
        "rewards/scorers/group.py",
        "itertools.permutations(traces, 2)",
        "itertools.combinations(traces, 2)",
        f"{WHOLE}::test_a_liking_for_the_first_place_cancels_out",
    ),
    Mutant(
        "a no-op may score what it likes",
        "rollout/env_check.py",
        "        await self._replay(EnvCheck.NOOP, task, found.noop, 0.0)",
        "        pass",
        "tests/rollout/test_env_check.py::test_solutions_hold_the_scorer_to_1_and_0",
    ),
]
