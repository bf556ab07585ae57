"""Mutants of a run's folder and of what is told of a run; those of groups and members stand with the rollouts."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the run room; `test` is below ``tests/run``."""
    named = test if test.startswith("tests/") else f"tests/run/test_{test}"
    return Mutant(name, f"run/{file}.py", snippet, replacement, named)


CHANGED = "runner.py::test_a_changed_configuration_is_refused_with_the_list_and_nothing_is_touched"
FIXED = "runner.py::test_what_groups_compare_never_changes"
TASKS = "runner.py::test_wrong_tasks_and_options_are_refused_before_a_folder_is_made"
STANDING = "standing.py::test_a_run_that_was_stopped_lacks_members_and_a_resume_brings_them"
REFUSED = "resume.py::test_what_stands_in_the_folder_is_refused_before_anything_is_made"
STREAM = "stream.py::"
TOLD = "tests/cli/test_unfinished.py::test_what_is_missing_is_told_until_it_is_there"

MUTANTS = [
    mutant("a changed configuration is resumed", "resume", "if changed and not allow_changed:", "if False:", CHANGED),
    mutant("an allowed change is not kept", "resume", "if differences(stored.asked, plain):", "if False:", CHANGED),
    mutant("an allowed change may be of anything", "resume", "    if never:\n", "    if False:\n", FIXED),
    mutant(
        "a stream goes on without its trainer",
        "resume",
        "if asked(read_manifest(folder), folder).stream is not None:",
        "if False:",
        "tests/cli/test_run.py::test_a_run_whose_groups_a_trainer_takes_does_not_go_on_without_it",
    ),
    Mutant(
        "a failure of the clean-up hides what stopped the run",
        "errors.py",
        "if not isinstance(cause, Exception):",
        "if True:",
        "tests/run/test_runner.py::test_what_stopped_a_run_is_told_and_what_failed_behind_it_beside_it",
    ),
    mutant(
        "the report of how a run stands dies in silence",
        "recording",
        "self._reporting.result()",
        "pass",
        "runner.py::test_progress_that_cannot_be_told_stops_the_run_and_what_ended_is_kept",
    ),
    mutant(
        "a run whose report died goes on to its end",
        "recording",
        "self._breaker.check()\n        self._check_reporting()",
        "self._breaker.check()",
        "runner.py::test_progress_that_cannot_be_told_stops_the_run_and_what_ended_is_kept",
    ),
    mutant(
        "a group that closed empty is opened again",
        "planning",
        " | closed_empty(reader.summaries(), fates)",
        "",
        "groups_in_flight.py::test_a_group_whose_deadline_came_before_any_outcome_stays_closed",
    ),
    mutant(
        "a group that waited to be taken is closed",
        "planning",
        "if said == {GROUP_CLOSED}",
        "if GROUP_CLOSED in said",
        "groups_in_flight.py::test_a_group_of_which_somebody_had_ended_before_it_closed_is_not_empty",
    ),
    mutant(
        "a run is not read whose configuration would be refused",
        "resume",
        "msgspec.convert(self.asked, Planned)",
        "msgspec.convert(self.asked, __import__('rollbook').run.RunConfig) and msgspec.convert(self.asked, Planned)",
        "standing.py::test_a_run_is_read_whose_configuration_would_be_refused_today",
    ),
    Mutant(
        "one flat seat makes its group flat",
        "trace/facts.py",
        "flat.get(each.group, True) and each.zero_variance",
        "each.zero_variance",
        "tests/trace/test_facts.py::test_a_group_is_flat_where_no_seat_has_a_signal",
    ),
    mutant(
        "each flat seat is replaced by a task of its own",
        "planning",
        "len(facts.flat_groups(delivered.values()))",
        "sum(fact.zero_variance for fact in {fact.key: fact for fact in delivered.values()}.values())",
        "planning.py::test_a_group_of_two_seats_is_replaced_once_and_alike_in_both_lives",
    ),
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
    mutant("fewer tasks than asked for are fine", "live_run", "if len(tasks) != count:", "if False:", TASKS),
    mutant("two tasks have one id", "live_run", "    if twice:\n", "    if False:\n", TASKS),
    mutant(
        "tasks that cannot be kept are taken",
        "live_run",
        'decode_record(encode_record(tasks), list[Task], "tasks")',
        "pass",
        "runner.py::test_tasks_that_are_none_are_refused_before_a_folder_is_made",
    ),
    mutant(
        "the working folder actions the run",
        "live_run",
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
        "        closed=len(closed),\n",
        "        closed=groups,\n",
        STANDING,
    ),
    mutant(
        "imported traces were planned",
        "standing",
        "except ConfigError:",
        "except ZeroDivisionError:",
        "standing.py::test_of_imported_traces_nobody_knows_what_was_planned",
    ),
    Mutant("half a run is not told", "cli/unfinished.py", "found is None or not found.missing", "True", TOLD),
    Mutant("a whole run is told of", "cli/unfinished.py", "found is None or not found.missing", "found is None", TOLD),
    mutant(
        "the queue has no bound",
        "group_queue",
        "return len(self._open) + len(self._waiting) >= self._size",
        "return False",
        f"{STREAM}test_open_and_waiting_groups_never_exceed_the_queue",
    ),
    mutant(
        "what is too stale is handed out",
        "group_queue",
        "rules[outcome.rollout] = rule",
        "pass",
        f"{STREAM}test_whatever_the_trainer_does_the_bound_holds_and_nothing_is_lost",
    ),
    mutant(
        "a group without votes is handed out",
        "group_queue",
        "        if not closed.used:\n",
        "        if False:\n",
        f"{STREAM}test_what_is_too_stale_is_dropped_in_the_queue_and_given_up_in_flight",
    ),
    mutant(
        "groups that cannot fit run on",
        "group_queue",
        "return fitting > 0 and fitting + to_come >= book.least",
        "return True",
        "tests/cases/test_g_stale.py::test_a_stale_group_is_given_up_whole",
    ),
    mutant(
        "a group that was given up has no record",
        "group_queue",
        "            self._recorder.keep(given_up.closed)\n",
        "",
        "tests/cases/test_g_stale.py::test_a_stale_group_is_given_up_whole",
    ),
    mutant(
        "a group is handed out before its advantages are recorded",
        "group_queue",
        "        self._recorder.closed(closed)\n        self._hit_by_bound(",
        "        self._hit_by_bound(",
        f"{STREAM}test_each_group_is_handed_out_once_with_its_facts_recorded_before",
    ),
    mutant(
        "a resumed stream forgets when rollouts ended",
        "stream",
        "earlier=_earlier(live) if request.resume else {},",
        "earlier={},",
        f"{STREAM}test_a_resumed_group_keeps_the_version_at_which_its_members_ended",
    ),
    mutant(
        "a version may fall",
        "stream",
        "if version <= self.version:",
        "if False:",
        f"{STREAM}test_a_version_only_rises",
    ),
    mutant(
        "what stopped the rollouts is told to nobody",
        "stream",
        "    if failure is not None and not stream.told:\n",
        "    if False:\n",
        f"{STREAM}test_what_stops_the_rollouts_reaches_whoever_asks",
    ),
    mutant(
        "an engine that was updated stays paused",
        "stream",
        "        self.advance(version)\n        await self._control.resume()\n",
        "        self.advance(version)\n",
        f"{STREAM}test_an_update_pauses_loads_and_resumes",
    ),
    mutant(
        "each round draws the same",
        "planning",
        "size=self._config.group, round=round_)",
        "size=self._config.group)",
        f"{STREAM}test_every_round_draws_each_task_anew",
    ),
]
