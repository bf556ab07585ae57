"""Mutants of the pool: the books of groups, the scheduler, worker pools, processes, requests, plans."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the pool; `test` is below ``tests/rollout/pool``."""
    return Mutant(name, f"rollout/pool/{file}.py", snippet, replacement, f"tests/rollout/pool/test_{test}")


def asking(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of one turn's requests."""
    return Mutant(name, "rollout/asking.py", snippet, replacement, f"tests/rollout/test_asking.py::{test}")


def whole(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule that a whole run shows; `test` is below ``tests/run``."""
    return Mutant(name, file, snippet, replacement, f"tests/run/test_{test}")


BUDGET = "test_requests_that_failed_in_transit_are_made_again_out_of_one_budget"
MIDDLE = "groups_in_flight.py::test_groups_without_a_signal_are_known_again"
RULES = "groups_in_flight.py::test_a_run_closes_its_groups_by_the_rules"
OVERDUE = "scheduler.py::test_an_order_that_is_overdue_is_given_up_and_its_late_end_is_not_used"

MUTANTS = [
    mutant(
        "a late result is used",
        "book",
        "running.attempt != outcome.attempt:",
        "False:",
        "book.py::test_what_another_attempt_replaced_comes_late_and_is_not_used",
    ),
    mutant(
        "a task may kill its worker for ever",
        "book",
        "if member.lost > MAX_LOST:",
        "if False:",
        "book.py::test_a_worker_that_dies_without_a_record_has_its_order_run_again_but_not_for_ever",
    ),
    mutant(
        "a recorded loss does not count",
        "book",
        "if member.lost <= MAX_LOST or",
        "if True or",
        "book.py::test_a_member_that_costs_its_worker_each_time_is_dropped_in_the_end",
    ),
    mutant(
        "refill has no cap",
        "book",
        "min(self._rules.refill, lost)",
        "lost",
        "book.py::test_dropped_members_are_replaced_up_to_the_cap",
    ),
    mutant(
        "too few votes are used",
        "book",
        "if 0 < used < self._rules.min_used:",
        "if False:",
        "book.py::test_a_group_with_too_few_votes_is_dropped_as_a_whole",
    ),
    mutant(
        "enough is not enough",
        "book",
        "self._rules.enough is not None and voters >= self._rules.enough",
        "False",
        "book.py::test_enough_votes_close_the_group_and_cancel_the_others",
    ),
    mutant(
        "a group that closes leaves its members running",
        "book",
        "        actions.cancel += running\n",
        "",
        "book.py::test_a_deadline_closes_with_what_is_there",
    ),
    mutant(
        "closing leaves orders behind",
        "book",
        "        actions.orders.clear()\n",
        "",
        "book.py::test_a_group_that_had_enough_before_starts_nobody",
    ),
    mutant("nothing is ever overdue", "scheduler", "timeout=self._order_seconds", "timeout=None", OVERDUE),
    mutant(
        "more run at once than may",
        "scheduler",
        "                    await self._slots.acquire()\n",
        "",
        "scheduler.py::test_every_group_closes_and_no_more_run_at_once_than_may",
    ),
    mutant(
        "what is cancelled in the moment of its start runs for ever",
        "scheduler",
        "await self._executor.run(order) if book.wants(order) else None",
        "await self._executor.run(order)",
        "scheduler.py::test_what_is_cancelled_in_the_moment_of_its_start_never_starts",
    ),
    mutant(
        "an order that waits for a worker cannot be cancelled",
        "worker_pool",
        "return order.rollout not in self._cancelled",
        "return True",
        "process.py::test_an_order_that_is_cancelled_while_it_waits_for_a_worker_never_starts",
    ),
    mutant(
        "a cancellation right behind its order is lost",
        "local_worker",
        "if task.cancelled() and order.rollout in self._cancelled and not _cancelling():",
        "if False:",
        "process.py::test_a_cancellation_right_behind_its_order_is_heeded",
    ),
    mutant(
        "one worker gets all the work",
        "worker_pool",
        "min(self._workers, key=lambda each: each.in_flight)",
        "self._workers[0]",
        "process.py::test_work_goes_to_the_least_busy_and_a_dead_worker_is_replaced",
    ),
    mutant(
        "a dead worker has no successor",
        "worker_pool",
        "        await self._take_its_place(lost)\n        return found",
        "        return found",
        "process.py::test_work_goes_to_the_least_busy_and_a_dead_worker_is_replaced",
    ),
    mutant(
        "workers die for ever",
        "worker_pool",
        "if self._deaths > DEATHS * self._size:",
        "if False:",
        "process.py::test_a_crew_whose_workers_all_die_stops_the_run",
    ),
    mutant(
        "a dead worker does not say how",
        "process",
        "{_how(code)}{self._tail()}",
        "is gone",
        "process.py::test_a_worker_that_is_killed_loses_its_orders_and_says_how",
    ),
    mutant(
        "a terminal's Ctrl-C reaches the workers",
        "process",
        "start_new_session=True",
        "start_new_session=False",
        "process.py::test_ctrl_c_reaches_the_parent_alone",
    ),
    asking("a failure in transit ends the attempt", "failure.reason not in IN_TRANSIT", "True", BUDGET),
    asking(
        "request retries have no end",
        "state.retries.left < 1:\n                raise",
        "False:\n                raise",
        BUDGET,
    ),
    asking(
        "a broken contract is asked again",
        "frozenset({Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT})",
        "frozenset({Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT, Reason.ENGINE_CONTRACT})",
        "test_a_broken_contract_is_never_asked_again",
    ),
    asking(
        "tries before a failure count twice",
        "failed, refused = failed + 1, 0",
        "failed += 1",
        "test_tries_before_a_failure_belong_to_it_and_not_to_the_next_request",
    ),
    asking(
        "tries of a failed request are not counted",
        "            tries=request.tries,\n",
        "",
        "test_tries_before_a_failure_belong_to_it_and_not_to_the_next_request",
    ),
    asking(
        "a continued turn begins anew",
        "np.concatenate((prompt, answer.token_ids)) if answer.segments else prompt",
        "prompt",
        "test_an_aborted_turn_goes_on_behind_its_own_ids",
    ),
    asking(
        "a continuation gets the whole limit again",
        "        left -= sampled\n",
        "",
        "test_an_abort_at_the_limit_is_the_limit",
    ),
    asking(
        "segments before a failure are lost",
        "            if not answer.segments:\n                raise",
        "            if True:\n                raise",
        "test_a_failure_behind_some_segments_keeps_them",
    ),
    asking(
        "a stop string carries over a cut",
        "if not aborted or not (sampling.stop or sampling.grammar is not None):",
        "if True:",
        "test_an_abort_under_a_stop_string_begins_again_out_of_the_budget",
    ),
    Mutant(
        "versions of some segments stand for all",
        "rollout/turn.py",
        "if told else []",
        "if True else []",
        "tests/rollout/test_asking.py::test_versions_that_one_segment_does_not_tell_are_not_told",
    ),
    whole(
        "the cap of refills is forgotten",
        "run/planning.py",
        "            self._config.groups,\n",
        "            type(self._config.groups)(),\n",
        RULES,
    ),
    whole(
        "refills are more than what is planned",
        "run/planning.py",
        "if outcome.member >= self._config.group:",
        "if False:",
        "groups_in_flight.py::test_what_is_planned_is_done_in_the_end",
    ),
    whole(
        "more votes are asked for than a group has",
        "run/config.py",
        "votes is not None and votes > self.group",
        "False",
        "config.py::test_more_votes_than_a_group_can_have_are_refused",
    ),
    Mutant(
        "what is done begins anew with each further task",
        "cli/progress.py",
        "if first:\n            self._done = done",
        "if True:\n            self._done = done",
        "tests/cli/test_progress.py::test_more_members_leave_what_is_done_as_it_is",
    ),
    whole(
        "groups without a signal are forgotten on resume",
        "run/planning.py",
        "self._flat = len(",
        "self._flat = 0 * len(",
        MIDDLE,
    ),
    whole(
        "a policy object is ignored",
        "run/live_run.py",
        "if self.workers and self.policy is not None",
        "if False",
        "workers.py::test_a_policy_object_is_refused_with_workers",
    ),
    whole(
        "a worker that cannot make its environment is ready",
        "run/worker.py",
        "    try:\n        make_env()\n",
        "    try:\n        pass\n",
        "workers.py::test_an_environment_that_only_this_process_knows_is_refused",
    ),
    Mutant(
        "a worker's death opens the breaker",
        "rollout/breaker.py",
        "Reason.PEER, Reason.INTERRUPTED})",
        "Reason.PEER})",
        "tests/rollout/test_breaker.py::test_it_opens_for_the_share_of_errors_among_the_last",
    ),
]
