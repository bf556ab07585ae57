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
        "self._rules.enough is not None and len(self.votes) >= self._rules.enough",
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
        "a failure waits for a free slot",
        "scheduler",
        "                await self._drive_all(next_group)\n                watching.cancel()\n",
        "                watching.cancel()\n                await self._drive_all(next_group)\n",
        "scheduler.py::test_a_failure_at_a_deadline_stops_the_run_though_every_slot_is_taken",
    ),
    mutant(
        "a failure over what came late is lost",
        "scheduler",
        "        if self._failed.done():  # over what came late\n            self._failed.result()\n",
        "",
        "scheduler.py::test_what_fails_over_a_late_end_behind_the_last_group_is_raised",
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
        "what a dead worker never took is a loss",
        "worker_pool",
        "                if not await self._waited(order, self._replaced(worker, gone)):\n                    break\n",
        "                await self._replaced(worker, gone)\n                break\n",
        "worker_pool.py::test_a_worker_that_died_idle_costs_a_member_none_of_its_losses",
    ),
    mutant(
        "an order that is cancelled while a place is taken starts",
        "worker_pool",
        "                if not await self._waited(order, self._replaced(worker, gone)):\n                    break\n",
        "                await self._replaced(worker, gone)\n",
        "worker_pool.py::test_an_order_that_is_cancelled_while_a_dead_workers_place_is_taken_never_starts",
    ),
    mutant(
        "a death gives a member's requests back",
        "local_worker",
        "max(order.retries_left - failed, 0)",
        "order.retries_left",
        "local_worker.py::test_what_a_dead_worker_left_has_spent_its_members_requests",
    ),
    mutant(
        "workers die for ever",
        "worker_pool",
        "if self._deaths > DEATHS * self._size:",
        "if False:",
        "process.py::test_a_pool_whose_workers_all_die_stops_the_run",
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
    mutant(
        "an error of a worker loses what it stops",
        "wire",
        "for each in type(error).__mro__ if",
        "for each in (type(error),) if",
        "wire.py::test_an_error_comes_over_as_the_nearest_class_that_says_what_it_stops",
    ),
    mutant(
        "a frame may be of any length",
        "wire",
        "if length > MAX_FRAME:",
        "if False:",
        "wire.py::test_what_is_no_message_is_refused",
    ),
    mutant(
        "a worker is ready before it is open",
        "serving",
        "            async with open_worker(setup.spec) as worker:\n                self._say(Ready())\n",
        "            self._say(Ready())\n            async with open_worker(setup.spec) as worker:\n",
        "serving.py::test_it_is_ready_when_it_is_open_and_not_before",
    ),
    mutant(
        "the last sign of life is left out",
        "serving",
        "                    self._say(Beat(worker.snapshot()))\n        except",
        "        except",
        "serving.py::test_each_order_has_one_answer_and_the_last_sign_of_life_counts_them_all",
    ),
    Mutant(
        "a wait for a limiter is own time",
        "rollout/own_time.py",
        "if part is not Part.LIMITER:",
        "if True:",
        "tests/rollout/test_own_time.py::test_a_wait_for_a_limiter_however_long_is_never_cut",
    ),
    Mutant(
        "calls count again with each look",
        "rollout/roster.py",
        "        entry.calls = len(calls)\n",
        "",
        "tests/rollout/test_roster.py::test_whoever_comes_and_goes_the_counts_add_up",
    ),
    Mutant(
        "a quantile is a class too low",
        "rollout/histogram.py",
        "            if seen >= wanted:\n",
        "            if seen > 0:\n",
        "tests/rollout/test_histogram.py::test_a_quantile_is_right_to_within_one_class",
    ),
    whole(
        "the trainer's waiting is not kept",
        "run/stream.py",
        "self._queue.waited += time.monotonic() - since",
        "pass",
        "stream.py::test_the_trainer_waits_while_nothing_is_ready_and_at_no_other_time",
    ),
    Mutant(
        "once it was due everything is searched at each look",
        "rollout/collecting.py",
        "            self._ended = ended\n",
        "",
        "tests/rollout/test_collecting.py::"
        "test_it_collects_at_the_look_behind_which_it_is_due_and_then_begins_to_count_anew",
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
        "        prompt.extend(segment.completion.token_ids)\n",
        "",
        "test_an_aborted_turn_goes_on_behind_its_own_ids",
    ),
    asking(
        "an engine may abort for ever without a token",
        "if empty == EMPTY_ABORTS or ",
        "if ",
        "test_so_many_aborts_in_a_row_without_a_token_are_an_engine_that_goes_away",
    ),
    asking(
        "empty aborts are counted over tokens between them",
        "empty = 0 if sampled else empty + 1",
        "empty = empty if sampled else empty + 1",
        "test_so_many_aborts_in_a_row_without_a_token_are_an_engine_that_goes_away",
    ),
    Mutant(
        "the calls of a turn that broke off execute",
        "rollout/turn.py",
        "    if answer.failure is not None:\n        raise answer.failure\n",
        "",
        "tests/rollout/test_acting.py::"
        "test_a_complete_call_in_a_turn_that_was_aborted_and_then_failed_executes_nothing",
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
