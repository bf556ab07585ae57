"""Mutants of a run's copy in an object store, of workers with spools, and of results that wait for their record."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

COPIES, DESK = "tests/run/test_copies.py", "tests/rollout/pool/test_local_worker.py"
DEAD = f"{COPIES}::test_what_a_dead_worker_had_mirrored_is_kept_and_the_rest_runs_again"
RESUMED = f"{COPIES}::test_the_copy_of_a_resumed_run_goes_on_and_no_other_run_gets_there"
SHARED = f"{COPIES}::test_who_waits_gets_a_sync_that_began_later_and_all_share_it"
FAILED = f"{COPIES}::test_a_failed_sync_is_told_to_those_who_wait_and_counts_only_at_the_end"
SPOOL = f"{COPIES}::test_a_spool_goes_with_its_worker_and_stays_where_it_could_not_be_sent"
SWEPT = f"{COPIES}::test_spools_of_workers_that_live_or_of_other_runs_stay"
ELSEWHERE = f"{COPIES}::test_a_worker_that_does_not_see_the_folder_says_what_to_do"
WAITS = f"{DESK}::test_a_result_waits_for_its_record_even_where_its_rollout_is_cancelled"
STOPS = f"{DESK}::test_a_stop_does_not_wait_and_nothing_is_told"
MIRRORING, DESK_FILE = "run/mirroring.py", "rollout/pool/local_worker.py"

MUTANTS = [
    Mutant("a result is told before its record is safe", DESK_FILE, "await self._settle()", "pass", WAITS),
    Mutant(
        "a cancelled rollout does not wait for its record",
        DESK_FILE,
        "                if error.args != (Reason.CANCELLED,):\n                    settling",
        "                if True:\n                    settling",
        WAITS,
    ),
    Mutant("a stop leaves the wait for the record running", DESK_FILE, "settling.cancel()", "pass", STOPS),
    Mutant("a new run joins another", MIRRORING, "if not resume and holds_run(self.url):", "if False:", RESUMED),
    Mutant(
        "who waits is told by what began before",
        MIRRORING,
        "waiting, self._waiting = self._waiting, []",
        "waiting = self._waiting",
        SHARED,
    ),
    Mutant(
        "nobody is told that a sync failed", MIRRORING, "future.set_exception(error)", "future.set_result(None)", FAILED
    ),
    Mutant("nothing is sent behind the last write", MIRRORING, "await self._sync(self._waiting)", "pass", SHARED),
    Mutant(
        "what was mirrored is not fetched",
        MIRRORING,
        "fetch_parts(self.url, self._folder, worker.__eq__)",
        "pass",
        DEAD,
    ),
    Mutant(
        "what closed workers kept is not fetched",
        "run/executors.py",
        "await to_its_end(_fetched(parts.copy))",
        "pass",
        DEAD,
    ),
    Mutant("spools stay for ever", MIRRORING, "shutil.rmtree(lock.parents[2])", "pass", SWEPT),
    Mutant(
        "a young spool is cleared away",
        MIRRORING,
        "if lock.stat().st_mtime < time.time() - SWEEP_SECONDS:",
        "if True:",
        SWEPT,
    ),
    Mutant("a live spool is cleared away", MIRRORING, "RunLock(lock.parent).release()", "pass", SWEPT),
    Mutant("a spool is left behind", MIRRORING, "await asyncio.to_thread(shutil.rmtree, folder)", "pass", SPOOL),
    Mutant(
        "a worker writes into another run",
        "run/worker.py",
        "or read_manifest(folder).created != spec.manifest.created",
        "",
        ELSEWHERE,
    ),
    Mutant(
        "a cluster needs no workers",
        "run/live_run.py",
        "if self.cluster is not None and not self.workers:",
        "if False:",
        f"{COPIES}::test_ray_needs_workers",
    ),
    Mutant(
        "the owner sends the parts of others",
        "store/mirror.py",
        "if self._parts or path.parent.parent == self._folder",
        "if True",
        f"{COPIES}::test_the_owner_leaves_the_parts_of_others_alone",
    ),
    Mutant(
        "a longer file is fetched again",
        "store/fetch.py",
        "if not path.exists() or path.stat().st_size < pieces.size:",
        "if True:",
        f"{COPIES}::test_parts_are_fetched_as_far_as_they_are_wanted_and_not_there",
    ),
    Mutant(
        "parts that nobody wants are fetched",
        "store/fetch.py",
        "if not wanted(name):",
        "if False:",
        f"{COPIES}::test_parts_are_fetched_as_far_as_they_are_wanted_and_not_there",
    ),
    Mutant(
        "a dead worker may go on sending",
        MIRRORING,
        "ObjectMirror(self._folder, self.url, part=worker).sync()",
        "pass",
        f"{COPIES}::test_what_a_dead_worker_sends_behind_its_salvage_is_refused",
    ),
    Mutant(
        "a url is a path",
        "cli/run_place.py",
        'isinstance(value, str) and "://" in value',
        "False",
        "tests/cli/test_run_place.py::test_a_run_in_an_object_store_is_read_by_its_url",
    ),
]
