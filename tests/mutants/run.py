"""Mutants of a run's folder and of what is told of a run; those of groups and members stand with the rollouts."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the run room; `test` is below ``tests/run``."""
    return Mutant(name, f"run/{file}.py", snippet, replacement, f"tests/run/test_{test}")


CHANGED = "runner.py::test_a_changed_configuration_is_refused_with_the_list_and_nothing_is_touched"
FIXED = "runner.py::test_what_groups_compare_never_changes"
TASKS = "runner.py::test_wrong_tasks_and_options_are_refused_before_a_folder_is_made"
STANDING = "standing.py::test_a_run_that_was_stopped_lacks_members_and_a_resume_brings_them"
REFUSED = "resume.py::test_what_stands_in_the_folder_is_refused_before_anything_is_made"
TOLD = "tests/cli/test_unfinished.py::test_what_is_missing_is_told_until_it_is_there"

MUTANTS = [
    mutant("a changed configuration is resumed", "resume", "if changed and not allow_changed:", "if False:", CHANGED),
    mutant("an allowed change is not kept", "resume", "if differences(stored.asked, plain):", "if False:", CHANGED),
    mutant("an allowed change may be of anything", "resume", "    if never:\n", "    if False:\n", FIXED),
    mutant("tasks may become fewer", "resume", "if config.tasks < stored.tasks(folder):", "if False:", FIXED),
    mutant(
        "the group may change its size",
        "resume",
        '("environment", "options", "seed", "group")',
        '("environment", "options", "seed")',
        FIXED,
    ),
    mutant(
        "a folder that is no run is taken",
        "resume",
        "elif folder.is_dir() and any(entry.name != HALF_MADE for entry in folder.iterdir()):",
        "elif False:",
        REFUSED,
    ),
    mutant(
        "a killed creation blocks its folder",
        "resume",
        "any(entry.name != HALF_MADE for entry in folder.iterdir())",
        "any(folder.iterdir())",
        "runner.py::test_a_creation_that_was_killed_in_the_middle_can_be_made_again",
    ),
    mutant(
        "any number of tasks is in a manifest",
        "resume",
        "if not isinstance(found, int):",
        "if False:",
        "runner.py::test_a_manifest_that_was_altered_is_refused",
    ),
    mutant(
        "a run that is there is not named",
        "resume",
        'elif (folder / "run.json").exists():',
        "elif False:",
        REFUSED,
    ),
    mutant("fewer tasks than asked for are fine", "works", "if len(tasks) != count:", "if False:", TASKS),
    mutant("two tasks have one id", "works", "    if twice:\n", "    if False:\n", TASKS),
    mutant(
        "tasks that cannot be kept are taken",
        "works",
        'decode_record(encode_record(tasks), list[Task], "tasks")',
        "pass",
        "runner.py::test_tasks_that_are_none_are_refused_before_a_folder_is_made",
    ),
    mutant(
        "nothing at once is a run",
        "works",
        "if self.concurrency < 1 or self.workers < 0:",
        "if False:",
        "runner.py::test_nothing_at_once_is_refused",
    ),
    mutant(
        "the working folder moves the run",
        "works",
        "return folder.absolute()",
        "return folder",
        "runner.py::test_an_environment_may_change_the_working_folder",
    ),
    mutant(
        "a run has no members",
        "config",
        "if msgspec.structs.asdict(self)[name] < 1:",
        "if False:",
        "config.py::test_a_run_needs_at_least_one_of_each",
    ),
    mutant(
        "what runs again is finished",
        "standing",
        "if not _runs_again(row, fates.get(row.rollout), config.rules)}",
        "}",
        STANDING,
    ),
    mutant(
        "every group is closed",
        "standing",
        "closed=len(closed),",
        "closed=groups,",
        STANDING,
    ),
    mutant(
        "imported traces were planned",
        "standing",
        "except (ConfigError, msgspec.ValidationError):",
        "except msgspec.ValidationError:",
        "standing.py::test_of_imported_traces_nobody_knows_what_was_planned",
    ),
    Mutant("half a run is not told", "cli/unfinished.py", "found is None or not found.missing", "True", TOLD),
    Mutant("a whole run is told of", "cli/unfinished.py", "found is None or not found.missing", "found is None", TOLD),
]
