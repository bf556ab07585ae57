"""Mutants of the training: what weighs how much in the loss, and whose weights the engine samples from."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the train room; `test` is below ``tests/train``."""
    return Mutant(name, f"train/{file}.py", snippet, replacement, f"tests/train/test_{test}")


BRANCHES = "gradient.py::test_a_trace_with_three_branches_weighs_as_much_as_one_with_a_single_branch"
REFUSED = "gradient.py::test_what_cannot_be_trained_from_is_refused"
CONTEXT = "gradient.py::test_context_that_does_not_train_may_say_anything_about_logprobs_and_versions"
LAG = "loss.py::test_tokens_too_many_versions_behind_leave_the_loss"
TRUNCATED = "loss.py::test_truncated_ratios_weigh_and_have_no_gradient_of_their_own"
MASKED = "loss.py::test_ratios_outside_of_the_band_are_masked"
UNKNOWN = "mismatch.py::test_a_token_without_a_logprob_is_counted_and_in_no_mean"
FINITE = "gradient.py::test_a_gradient_that_is_not_finite_leaves_the_weights_alone"

MUTANTS = [
    mutant("each branch weighs 1", "batch", "(rollouts * sample.rollout_trained)", "(rollouts * sizes[0])", BRANCHES),
    mutant(
        "context trains", "batch", "trained[row, : len(sample)] = sample.loss_mask", "trained[row, 1:] = True", CONTEXT
    ),
    mutant(
        "a micro-batch counts its own rollouts",
        "batch",
        "found.append(_micro_batch(rows[:count], rollouts))",
        "found.append(_micro_batch(rows[:count], count))",
        "gradient.py::test_micro_batches_add_up_to_the_batch",
    ),
    mutant("no advantage is an advantage", "batch", "if sample.advantage is None and", "if False and", REFUSED),
    mutant("a hot sample trains", "batch", "if any(sampling.changes_distribution", "if not any(True", REFUSED),
    mutant(
        "a sample trains twice", "batch", "in admitted(samples, allow_unfit_logprobs=True):", "in samples:", REFUSED
    ),
    mutant(
        "turns have no advantages of their own",
        "batch",
        "        return sample.advantages[sample.loss_mask]\n",
        "        pass\n",
        "gradient.py::test_turns_with_advantages_of_their_own_are_weighed_by_them",
    ),
    mutant(
        "ratios have gradients",
        "loss",
        "_corrections(logprobs.detach(), batch",
        "_corrections(logprobs, batch",
        TRUNCATED,
    ),
    mutant("ratios have no cap", "loss", "return ratios.clamp(max=rules.cap),", "return ratios,", TRUNCATED),
    mutant("the band has no end", "loss", "(ratios < rules.low) | (ratios > rules.high)", "ratios < rules.low", MASKED),
    mutant("an unknown version is a new one", "loss", "(batch.versions < 0) | (version", "(version", LAG),
    mutant("one version more is allowed", "loss", "> rules.max_lag)", "> rules.max_lag + 1)", LAG),
    mutant(
        "the gradient goes up the loss",
        "loss",
        "loss = -(weights",
        "loss = (weights",
        "gradient.py::test_what_was_rewarded_becomes_likelier_and_what_was_punished_less_likely",
    ),
    mutant(
        "an absent logprob is compared",
        "mismatch",
        "known = ~np.isnan(behaviour)",
        "known = np.ones(len(behaviour), bool)",
        UNKNOWN,
    ),
    mutant("a gradient may be anything", "learner", "if not np.isfinite(norm):", "if False:", FINITE),
    Mutant(
        "an engine's folder has no head",
        "run/training_weights.py",
        "{HEAD: arrays[EMBEDDING], **arrays}",
        "arrays",
        "tests/run/test_training.py::test_a_folder_for_an_engine_has_its_head_written_out",
    ),
]
