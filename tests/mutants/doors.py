"""Mutants of the doors to trainers: what no record may hold, and the checks that see it."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

ADMISSION = "tests/export/doors/test_admission.py"


def admission(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """What every door refuses."""
    return Mutant(f"doors: {name}", "export/doors/admission.py", snippet, replacement, f"{ADMISSION}::{test}")


def check(name: str, snippet: str, replacement: str, what: str) -> Mutant:
    """A check of an exporter; `what`: the bent door that it finds."""
    test = f"tests/export/conformance/test_judge.py::test_a_bent_door_is_found_by_its_check[{what}]"
    return Mutant(f"exporter: {name}", "export/conformance/checks.py", snippet, replacement, test)


MUTANTS = [
    admission(
        "a first token may train",
        "if sample.loss_mask[0]:",
        "if False:",
        "test_a_first_token_that_trains_is_refused",
    ),
    admission(
        "what was not sampled may train",
        "if not sample.sampled[sample.loss_mask].all():",
        "if False:",
        "test_a_token_that_was_not_sampled_does_not_train",
    ),
    admission(
        "a branch may be there twice",
        "if branches.setdefault(sample.branch, sample) is not sample:",
        "if branches.setdefault(sample.branch, sample) is None:",
        "test_the_same_branch_twice_is_refused",
    ),
    admission("no samples are a batch", "if not samples:", "if False:", "test_nothing_is_no_batch"),
    admission(
        "an absent logprob is 0",
        "if not np.isfinite(found).all():",
        "if False:",
        "test_absent_is_not_zero",
    ),
    Mutant(
        "doors: unknown experts are expert 0",
        "export/doors/experts.py",
        "if not sample.experts_known[1:].all():",
        "if False:",
        "tests/export/doors/test_experts.py::test_experts_that_are_not_known_for_all_are_refused",
    ),
    Mutant(
        "doors: a batch may lack the experts of some",
        "export/doors/experts.py",
        "if known and len(known) < len(found):",
        "if False:",
        "tests/export/doors/test_experts.py::test_all_samples_of_a_batch_have_them_or_none_has",
    ),
    check(
        "logprobs are not recomputed",
        "if not np.array_equal(row.logprobs[row.trains], want):",
        "if False:",
        "shifted logprobs",
    ),
    check(
        "weights need not sum to 1",
        "if any(abs(weight - 1.0) > 1e-6 for weight in weights.values()):",
        "if False:",
        "each branch whole",
    ),
    check("two rows may be the last", "if lasts != ends:", "if False:", "two last rows"),
    check(
        "a cut may look finished",
        "if not row.truncated or whole.truncated:",
        "if False:",
        "a cut row is not marked",
    ),
    Mutant(
        "verl: a row that does not fit is cut",
        "export/doors/verl_batch.py",
        "if limit is not None and longest > limit:",
        "if False:",
        "tests/export/doors/test_verl_batch.py::test_a_row_that_does_not_fit_is_refused_and_nothing_is_cut",
    ),
    Mutant(
        "slime: what was removed votes",
        "run/doors/slime.py",
        "if not sample.remove_sample]",
        "]",
        "tests/run/doors/test_slime.py::test_each_attempt_votes_once_and_what_is_removed_votes_not",
    ),
    Mutant(
        "verl: a reply over two versions counts as one",
        "run/doors/verl_policy.py",
        "if not tokens or first is None or first != last:",
        "if not tokens or first is None:",
        "tests/run/doors/test_verl_policy.py::test_the_finish_comes_from_the_ids_and_a_version_only_where_it_is_one[reply1-abort-versions1]",
    ),
]
