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
        "if sample.branch in branches:",
        "if False:",
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
    Mutant(
        "skyrl: each row is a last step",
        "export/doors/skyrl.py",
        "place + 1 == len(names) or names[place + 1] != each for place",
        "True for place",
        "tests/export/doors/test_skyrl.py::test_rows_of_a_trajectory_stand_together_and_the_last_is_marked",
    ),
    Mutant(
        "skyrl: groups are one",
        "export/doors/skyrl.py",
        'f"{sample.run}/{sample.group}"',
        'f"{sample.run}"',
        "tests/export/doors/test_skyrl.py::test_groups_are_told_apart",
    ),
    Mutant(
        "tinker: the mask is not shifted",
        "export/doors/tinker.py",
        "sample.loss_mask[1:].astype",
        "sample.loss_mask[:-1].astype",
        "tests/export/doors/test_tinker.py::test_everything_is_shifted_by_one",
    ),
    Mutant(
        "nemo_rl: turns that touch are one message",
        "export/doors/nemo_rl.py",
        "np.where(sample.loss_mask, sample.turn_id, -1)",
        "np.where(sample.loss_mask, 0, -1)",
        "tests/export/doors/test_nemo_rl.py::test_a_turn_out_of_the_loss_has_no_logprobs_and_turns_that_touch_are_cut_apart",
    ),
    Mutant(
        "nemo_rl: one branch stands for its attempt",
        "export/doors/nemo_rl.py",
        "    refuse_branches(\n",
        "    print(\n",
        "tests/export/doors/test_nemo_rl.py::test_several_branches_of_one_attempt_are_refused",
    ),
    Mutant(
        "trl: several branches are several rows",
        "export/doors/trl.py",
        "    refuse_branches(\n",
        "    print(\n",
        "tests/export/doors/test_trl.py::test_several_branches_of_one_rollout_are_refused",
    ),
    Mutant(
        "trl: a temperature of its own is taken",
        "run/doors/trl.py",
        "if asked != ours:",
        "if False:",
        "tests/run/doors/test_trl.py::test_another_temperature_than_trls_is_refused[0.7]",
    ),
    Mutant(
        "trl: a rollout without a vote trains",
        "export/doors/trl.py",
        '"env_mask": [0] * behind',
        '"env_mask": [1] * behind',
        "tests/run/doors/test_trl.py::test_a_lost_rollout_gives_a_row_that_trains_nothing_and_has_no_vote",
    ),
    Mutant(
        "trl_async: the first turn's advantage stands for all",
        "export/doors/trl_async.py",
        "if (advantages != advantages[0]).any():",
        "if False:",
        "tests/export/doors/test_trl_async.py::test_turns_with_advantages_of_their_own_are_refused_where_they_differ",
    ),
    Mutant(
        "trl_async: a row that finds no room is dropped",
        "run/doors/trl_async.py",
        "await asyncio.sleep(_POLL)",
        "break",
        "tests/run/doors/test_trl_async.py::test_a_full_buffer_holds_the_rollouts_up",
    ),
    Mutant(
        "trl_async: a group is dropped",
        "run/doors/trl_async.py",
        "await self._put(group, number)",
        "await self._put(group, number) if number != 1 else None",
        "tests/run/doors/test_trl_async.py::test_a_full_buffer_holds_the_rollouts_up",
    ),
    Mutant(
        "trl_async: rows of an engine that tells no version are stamped 0",
        "run/doors/trl_async.py",
        "version=group.version, group_id",
        "version=0, group_id",
        "tests/run/doors/test_trl_async.py::test_an_engine_that_tells_no_version_is_stamped_with_the_trainers",
    ),
    Mutant(
        "areal: versions of other tokens are told",
        "export/doors/areal.py",
        "padded([sample.policy_version for sample in samples]",
        "padded([sample.policy_version[::-1] for sample in samples]",
        "tests/export/doors/test_areal.py::test_versions_are_those_of_each_token",
    ),
    Mutant(
        "prime_rl: the first temperature stands for all",
        "export/doors/prime_rl.py",
        "if len(found) != 1:",
        "if not found:",
        "tests/export/doors/test_prime_rl.py::test_the_temperature_is_that_of_the_sampling_and_several_are_refused",
    ),
]
