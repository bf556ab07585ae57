"""Mutants of rollouts and of whole runs."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the rollout room; `test` is below ``tests/rollout``."""
    return Mutant(name, f"rollout/{file}.py", snippet, replacement, f"tests/rollout/test_{test}")


def runner(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of a whole run."""
    return Mutant(f"run: {name}", f"run/{file}.py", snippet, replacement, f"tests/run/test_runner.py::{test}")


LIMITS = "limits.py::test_an_allowance_fits_every_limit_and_an_ending_names_one_that_is_used_up"
CONTRACT = "turn.py::test_a_broken_contract_is_an_error_and_commits_nothing"
CANCELLED = "rollout.py::test_a_cancellation_at_any_moment_cleans_up_once_and_seals"
ONCE = "session.py::test_only_the_last_reply_is_answered_and_only_once"
STOPPED = "test_a_stopped_run_goes_on_and_comes_to_the_same"

MUTANTS = [
    mutant("turns are not limited", "limits", "self.turns >= limits.max_turns", "False", LIMITS),
    mutant(
        "own time is not limited",
        "limits",
        "if self.seconds_left <= 0:",
        "if False:",
        "limits.py::test_where_several_are_used_up_the_order_decides",
    ),
    mutant("sampled tokens are not limited", "limits", "self.tokens >= limits.max_tokens", "False", LIMITS),
    mutant("a request goes out without room", "limits", "if room < 1:", "if False:", LIMITS),
    mutant(
        "on a tie the context explains the cut",
        "limits",
        "min(reversed(choices), key",
        "min(choices, key",
        "limits.py::test_on_a_tie_the_limit_that_was_asked_for_explains_the_cut",
    ),
    mutant(
        "tool calls are not limited",
        "limits",
        "self.tool_calls + count > limit",
        "False",
        "limits.py::test_tool_calls_are_entered_all_or_none",
    ),
    mutant(
        "limits below one are taken",
        "limits",
        "value is not None and not value > 0",
        "False",
        "limits.py::test_a_limit_is_above_zero",
    ),
    mutant(
        "the prompt leaves the scaffold out",
        "turn",
        "path_column(state.leaf, rendering.prompt_ids)",
        "path_column(state.leaf, rendering.prompt_ids[:0])",
        "turn.py::test_a_turn_that_a_stop_string_ended_is_closed_by_force_before_the_next_message",
    ),
    mutant("the contract is not checked", "asking", "check_completion(completion, prompt, sampling)", "pass", CONTRACT),
    mutant(
        "an own policy's error loses what was sampled",
        "asking",
        '    with boundary("the policy", _PolicyError):\n',
        "    if True:\n",
        "turn.py::test_what_was_sampled_is_kept_where_the_engine_refuses_to_go_on"
        "[error1-the policy: ValueError: broke]",
    ),
    mutant("ids beyond the vocabulary enter", "asking", "int(ids.max()) >= info.vocab_size", "False", CONTRACT),
    Mutant(
        "rollout: an engine's word alone ends a turn",
        "policy/stopping.py",
        "if said is Finish.STOP_STRING and stop:",
        "if said is Finish.STOP_STRING:",
        "tests/cases/test_d_endings.py::test_at_the_cap_no_word_of_the_engine_makes_an_answer",
    ),
    Mutant(
        "rollout: a short 'length' is believed",
        "policy/stopping.py",
        "    if tokens == limit:\n",
        "    if tokens == limit or said is Finish.LENGTH:\n",
        "tests/rollout/test_" + CONTRACT,
    ),
    mutant(
        "a cut is not marked in its calls",
        "turn",
        "cut=answer.finish in (Finish.LENGTH, Finish.ABORT)",
        "cut=False",
        "turn.py::test_a_cut_turn_executes_nothing_not_even_complete_calls",
    ),
    mutant(
        "a cut turn goes on",
        "turn",
        "if answer.finish is Finish.LENGTH:",
        "if False:",
        "turn.py::test_a_cut_turn_executes_nothing_not_even_complete_calls",
    ),
    mutant(
        "an abort is a normal end",
        "asking",
        "if segment.finish is not Finish.ABORT:",
        "if sampled:",
        "asking.py::test_an_aborted_turn_goes_on_behind_its_own_ids",
    ),
    mutant("a failed call is not kept", "asking", "        record_failure(state, request, str(error))\n", "", CONTRACT),
    mutant(
        "a cancelled call is not kept",
        "asking",
        'record_failure(state, request, "cancelled while it ran")',
        "pass",
        "session.py::test_the_wall_cap_is_an_error",
    ),
    mutant(
        "the engine's queue is charged",
        "asking",
        "state.budget.seconds -= min(max(completion.queue or 0.0, 0.0), wall)",
        "pass",
        "turn.py::test_the_engines_queue_is_not_charged",
    ),
    mutant(
        "a queue gives time back",
        "asking",
        "min(max(completion.queue or 0.0, 0.0), wall)",
        "(completion.queue or 0.0)",
        "turn.py::test_a_queue_longer_than_the_call_gives_no_time_back",
    ),
    mutant(
        "all calls have one seed",
        "asking",
        "derive_seed(state.sampling.seed or 0, len(state.trace.calls) + earlier)",
        "derive_seed(state.sampling.seed or 0, 0)",
        "turn.py::test_each_call_has_its_own_seed_and_the_same_one_again",
    ),
    mutant(
        "calls inside reasoning are answered",
        "acting",
        "if call.status is not ParseStatus.INSIDE_REASONING]",
        "]",
        "acting.py::test_calls_inside_reasoning_are_counted_and_nothing_more",
    ),
    mutant(
        "any number of calls runs at once",
        "acting",
        "[: state.budget.limits.max_parallel_calls]",
        "",
        "acting.py::test_calls_beyond_the_limit_are_answered_visibly",
    ),
    mutant(
        "the call budget does not end a rollout",
        "acting",
        "if over is not None:",
        "if False:",
        "acting.py::test_a_reply_beyond_the_call_budget_executes_nothing",
    ),
    mutant(
        "an ending is not recorded with what was shown",
        "acting",
        "        await observe(state, messages)\n        state.stop(ending)",
        "        state.stop(ending)",
        "acting.py::test_a_stop_tool_ends_it_and_its_result_is_recorded_first",
    ),
    mutant(
        "the other calls go on when the host is lost",
        "acting",
        "                task.cancel()",
        "                pass",
        "acting.py::test_a_lost_sandbox_ends_it_and_the_other_calls_are_cancelled",
    ),
    mutant("any reply is answered", "session", "state.unanswered is None or reply != state.unanswered", "False", ONCE),
    mutant("a reply is answered twice", "session", "            state.unanswered = None\n", "", ONCE),
    mutant(
        "the ending does not stick",
        "state",
        "        if self.stopped is not None:\n            raise Stopped(self.stopped)\n        try:",
        "        try:",
        "session.py::test_the_first_failure_sticks",
    ),
    mutant(
        "steps run beside each other",
        "state",
        "if self.busy:",
        "if False:",
        "session.py::test_two_steps_at_once_are_refused_and_the_conversation_stays_whole",
    ),
    mutant(
        "a late result counts",
        "state",
        "        if own.over:\n            self.stop(self.budget.out_of_time())\n",
        "",
        "turn.py::test_an_engine_that_swallows_its_cancellation_answers_too_late",
    ),
    mutant(
        "a fault of ours is silent",
        "state",
        'self.trace.note("rollout", "".join(traceback.format_exception(error)))',
        "pass",
        "turn.py::test_a_bug_in_a_policy_is_loud",
    ),
    mutant(
        "a failing disk ends a rollout",
        "state",
        "except StoreError as error:\n            self.trace.note(",
        "except ZeroDivisionError as error:\n            self.trace.note(",
        "rollout.py::test_a_full_disk_in_a_turn_is_noted_and_the_rollout_goes_on",
    ),
    mutant(
        "a cancellation cuts scorer, clean-up and seal",
        "rollout",
        "await to_its_end(_finish(state, settings.rules))",
        "await _finish(state, settings.rules)",
        CANCELLED,
    ),
    mutant(
        "errors are scored",
        "rollout",
        "isinstance(rules.rule(trace.ending.reason), Drop | Retry)",
        "False",
        "rollout.py::test_only_what_the_rules_may_use_is_scored",
    ),
    mutant(
        "a seal is tried once",
        "rollout",
        '        trace.note("store", str(error))\n        await _seal(state)',
        "        raise",
        "rollout.py::test_a_full_disk_at_the_seal_gets_a_second_try",
    ),
    mutant(
        "the wall cap does not come first",
        "rollout",
        "if ending is None or cap.expired():",
        "if ending is None:",
        "session.py::test_whatever_an_agent_makes_of_the_wall_cap_it_came_first",
    ),
    mutant(
        "what cancelled itself was cancelled",
        "rollout",
        "if task is None or task.cancelling():",
        "if True:",
        "session.py::test_an_agent_that_cancels_itself_failed",
    ),
    mutant(
        "a limit in the sampling is overwritten in silence",
        "rollout",
        "if self.sampling.max_tokens is not None:",
        "if False:",
        "rollout.py::test_a_limit_in_the_sampling_is_refused",
    ),
    mutant(
        "members share a seed",
        "pool/orders",
        "self.task.id, self.member, self.attempt",
        "self.task.id, self.attempt",
        "group.py::test_seeds_differ_by_member_and_task_and_come_again_with_the_same_seed",
    ),
    mutant(
        "reasons share a budget",
        "pool/book",
        "earlier=tuple(member.earlier)",
        "earlier=tuple(member.earlier[-1:] * len(member.earlier))",
        "group.py::test_each_reason_has_its_own_budget_and_then_the_member_is_dropped",
    ),
    mutant(
        "a wait has no end",
        "backoff",
        "min(FIRST * 2.0 ** min(tries, 16), LONGEST)",
        "FIRST * 2.0 ** min(tries, 16)",
        "group.py::test_the_wait_before_a_retry_grows_has_an_end_and_is_spread",
    ),
    runner(
        "stopped rollouts are lost",
        "executors",
        "cancelled_as=Reason.INTERRUPTED",
        "cancelled_as=Reason.CANCELLED",
        STOPPED,
    ),
    runner("finished members run again", "planning", "earlier=self._earlier.get(plan.id, ())", "earlier=()", STOPPED),
    runner(
        "a closed group is closed again",
        "planning",
        "            if plan.id not in self.closed:\n                return",
        "            if True:\n                return",
        "test_a_finished_run_has_nothing_to_do_and_tells_the_same",
    ),
    runner(
        "what was in flight stays so",
        "live_run",
        "tuple(writer.seal_interrupted())",
        "()",
        "test_what_was_in_flight_is_interrupted_and_runs_again",
    ),
    runner(
        "anybody's advantages close a group",
        "planning",
        "if note.producer == PRODUCER",
        "if True",
        "test_another_producers_advantages_close_no_group",
    ),
    runner(
        "two tasks are compared",
        "planning",
        "if planned != row.task:",
        "if False:",
        "test_an_environment_that_changed_its_tasks_is_refused",
    ),
    runner(
        "a lost disposition stays lost",
        "recording",
        "self._writer.annotate(self._planner.annotations())",
        "pass",
        "test_a_disposition_or_a_closing_that_a_crash_lost_is_made_up_for",
    ),
]
