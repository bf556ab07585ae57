"""Mutants of staleness, and of groups that lose members before they are handed out."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the rollout room; `test` is below ``tests/rollout``."""
    return Mutant(name, f"rollout/{file}.py", snippet, replacement, f"tests/rollout/{test}")


MUTANTS = [
    mutant(
        "tokens without a version do not count",
        "staleness",
        "if self.unknown or not self.counts:",
        "if not self.counts:",
        "test_staleness.py::test_tokens_without_a_version_make_it_unknown",
    ),
    mutant(
        "a token that is too old does not decide",
        "staleness",
        "return Verdict.TOO_STALE if known and trainer - versions.counts[0][0] > self.most else Verdict.UNKNOWN",
        "return Verdict.UNKNOWN",
        "test_staleness.py::test_tokens_without_a_version_make_it_unknown",
    ),
    mutant(
        "the bound is one more than it says",
        "staleness",
        "return Verdict.FITS if behind <= self.most else Verdict.TOO_STALE",
        "return Verdict.FITS if behind <= self.most + 1 else Verdict.TOO_STALE",
        "test_staleness.py::test_a_bound_holds_what_it_says",
    ),
    mutant(
        "what may still fit is given up",
        "staleness",
        "return self.by is not StaleBy.OLDEST or trainer - started <= self.most",
        "return trainer - started <= self.most",
        "test_staleness.py::test_only_what_is_certain_not_to_fit_is_given_up",
    ),
    mutant(
        "versions that are not known are 0",
        "staleness",
        "in_queue=None if finished is None or taken is None else taken - finished,",
        "in_queue=0 if finished is None or taken is None else taken - finished,",
        "test_staleness.py::test_what_is_not_known_is_not_zero",
    ),
    mutant(
        "who comes late to a group that was given up does not say why",
        "pool/book",
        "self._given_up or why",
        "why",
        "pool/test_book.py::test_who_ends_behind_a_group_that_was_given_up_joins_it_by_its_rule",
    ),
    mutant(
        "a group that lost members keeps its advantages",
        "pool/book",
        "_without_vote(each, rules[each.rollout]) if each.rollout in rules else each",
        "each",
        "pool/test_book.py::test_a_closed_group_can_lose_members_before_anybody_used_it",
    ),
]
