"""Mutants of scoring again and of what-if: what takes part, what stands, what is written, and who reads it."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the run room; `test` is below ``tests/run``."""
    return Mutant(name, f"run/{file}.py", snippet, replacement, f"tests/run/test_{test}")


STANDS = "what_if.py::test_of_a_members_attempts_the_first_that_stands_counts"
KEPT = "what_if.py::test_what_is_kept_is_a_further_step_and_the_delivered_one_stays"
SCORED = "rescore.py::test_a_changed_scorer_changes_rewards_and_with_them_the_advantages"
LATER = "tests/trace/test_rescored.py::test_a_later_reward_takes_the_place_of_all_that_was_said"

MUTANTS = [
    mutant(
        "open groups are closed by a question",
        "closing_again",
        "if everything or row.rollout in group_of]",
        "if True]",
        "what_if.py::test_open_groups_take_no_part",
    ),
    mutant(
        "what was too stale comes back",
        "closing_again",
        "dispositions(notes).items() if rollout in stale}",
        "dispositions(notes).items() if False}",
        "what_if.py::test_what_was_too_stale_stays_dropped",
    ),
    mutant(
        "attempts that never ran count",
        "closing_again",
        "            if stood:",
        "            if False:",
        STANDS,
    ),
    mutant(
        "a retry without an attempt left is retried",
        "closing_again",
        "place + 1 < len(tries) and _again",
        "_again",
        STANDS,
    ),
    mutant(
        "what never ran is counted as a reward",
        "closing_again",
        " or outcome.disposition.rule == NEVER_RUN",
        "",
        "what_if.py::test_what_would_never_have_run_counts_as_nothing",
    ),
    mutant(
        "a group with too few votes is used",
        "closing_again",
        "if not 0 < used < least:",
        "if True:",
        "what_if.py::test_a_group_that_keeps_too_few_is_dropped_as_a_whole",
    ),
    mutant(
        "a kind goes before its reason",
        "what_if",
        "{**by_kind, **{reason: read[reason] for reason in Reason if reason in read}}",
        "{**{reason: read[reason] for reason in Reason if reason in read}, **by_kind}",
        "what_if.py::test_rules_are_read",
    ),
    mutant(
        "a rules file may be of any length",
        "what_if",
        "if len(text) > MOST_BYTES:",
        "if False:",
        "what_if.py::test_a_rules_file_that_is_none",
    ),
    mutant("what was delivered is written over", "what_if", "return 1 + max(", "return 0 * max(", KEPT),
    mutant(
        "a run that is judged again has come further",
        "planning",
        "if note.producer != JUDGED_AGAIN]",
        "]",
        "what_if.py::test_what_is_judged_again_opens_and_closes_nothing",
    ),
    mutant(
        "a flipped sign is another size",
        "effect",
        "Change.FLIPPED if (old > 0) is not (new > 0) else Change.RESIZED",
        "Change.RESIZED",
        "effect.py::test_an_advantage_is_compared_by_its_sign",
    ),
    mutant(
        "the scorer sees the old reward",
        "rescore",
        "tail=msgspec.structs.replace(trace.tail, reward=None, reward_parts={}, turn_rewards=(), scoring=Scoring()),",
        "",
        SCORED,
    ),
    mutant(
        "rewards of turns are lost",
        "rescore",
        "turn_rewards=trace.tail.turn_rewards, seconds=seconds",
        "turn_rewards=(), seconds=seconds",
        SCORED,
    ),
    mutant(
        "what is dropped is scored",
        "rescore",
        "and not isinstance(rules.rule(row.reason), Drop | Retry)",
        "",
        "rescore.py::test_only_what_the_rules_score_is_scored",
    ),
    mutant(
        "a scorer reaches the trace",
        "rescore",
        "calls=list(trace.calls),",
        "calls=trace.calls,",
        "rescore.py::test_what_a_scorer_does_to_a_trace_is_lost",
    ),
    mutant("a report has the old rewards", "report", "facts.rewards(notes))", "{})", SCORED),
    Mutant(
        "an export has the old rewards",
        "export/batch.py",
        "rescored(trace, self.recorded.rewards.get(trace.id))",
        "trace",
        "tests/export/test_credit.py::test_a_later_reward_goes_with_the_row",
    ),
    Mutant(
        "turns lose their advantages on export",
        "export/recorded.py",
        "turn_advantages=self.turn_advantages.get(trace.id),",
        "",
        "tests/export/test_credit.py::test_each_turn_has_its_own_advantage_in_the_row",
    ),
    Mutant(
        "the audit has the old rewards",
        "audit/judge.py",
        "rescored_all(traces, rewards(facts))",
        "traces",
        "tests/run/test_rescore.py::test_a_scorer_that_fails_takes_the_reward_and_never_gives_zero",
    ),
    Mutant(
        "a later reward changes the trace",
        "trace/rescored.py",
        "dataclasses.replace(trace, sealed=False)",
        "trace",
        LATER,
    ),
    Mutant(
        "a later reward leaves the parts", "trace/rescored.py", "            reward_parts=reward.parts,\n", "", LATER
    ),
    Mutant(
        "members have the turns of all",
        "trace/facts.py",
        "{**({} if known is None else known.turns), **each.turns}",
        "each.turns",
        "tests/run/test_what_if.py::test_the_groups_of_a_members_annotations_are_whole_again",
    ),
]
