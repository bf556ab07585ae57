"""Mutants of environments and tools: what may run, whose fault a failure is, what passes."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the environment room; `test` is below ``tests/envs``."""
    return Mutant(name, f"envs/{file}.py", snippet, replacement, f"tests/envs/test_{test}")


WRONG = "tool.py::test_a_wrong_argument_is_the_policys_error_and_nothing_runs"
BROKEN = "tool.py::test_a_tool_that_breaks_is_the_environments_fault"
SOFT = "tool.py::test_a_stop_tool_ends_the_rollout_only_where_it_succeeded"
CUT = "tool.py::test_a_long_result_is_cut_visibly"
LATE = "foreign.py::test_the_limit_of_time_holds_and_a_late_result_does_not_count"

MUTANTS = [
    mutant(
        "arguments need not fit the schema",
        "tool",
        "self._declared.validator.validate(plain)",
        "pass",
        "tool.py::test_the_error_names_the_argument_and_is_bounded",
    ),
    mutant(
        "arguments are converted freely", "tool", "strict=True, str_keys=True", "strict=False, str_keys=True", WRONG
    ),
    mutant("arguments may be unexpected", "signature", "forbid_unknown_fields=True, ", "", WRONG),
    mutant("bad arguments are nobody's fault", "tool", "str(refused), Fault.POLICY", "str(refused), None", WRONG),
    mutant(
        "a call that did not parse runs",
        "tool",
        "if call.status is not ParseStatus.OK:",
        "if False:",
        "tool.py::test_a_call_that_did_not_parse_never_runs",
    ),
    mutant(
        "a refusal is the environment's fault",
        "tool",
        "str(value), Fault.POLICY",
        "str(value), Fault.ENVIRONMENT",
        SOFT,
    ),
    mutant(
        "a broken tool is the policy's fault",
        "tool",
        'f"{self.spec.name}: {error}", Fault.ENVIRONMENT',
        'f"{self.spec.name}: {error}", Fault.POLICY',
        BROKEN,
    ),
    mutant(
        "a result without text is the policy's fault",
        "tool",
        "problem, Fault.ENVIRONMENT",
        "problem, Fault.POLICY",
        BROKEN,
    ),
    mutant("NaN is text", "convert", "if not math.isfinite(value):", "if False:", BROKEN),
    mutant("a result is not cut", "tool", "cut_text(shown.text, self._declared.limit)", "shown.text", CUT),
    mutant(
        "a cut cannot be seen",
        "convert",
        "\\n[... {missing} of {len(text)} characters left out ...]\\n",
        "",
        "convert.py::test_a_cut_is_visible_and_keeps_both_ends",
    ),
    mutant(
        "a refused stop tool ends a rollout",
        "tool",
        "return ToolOutcome(failed(call, str(value), Fault.POLICY))",
        "return ToolOutcome(failed(call, str(value), Fault.POLICY), None, Ending(Reason.STOP_TOOL, self.spec.name))",
        SOFT,
    ),
    mutant(
        "a tool's own limit of time is not kept",
        "tool",
        "call_foreign(self._declared.timeout, ",
        "call_foreign(1.0, ",
        "tool.py::test_a_tool_that_never_returns_is_cancelled",
    ),
    mutant("a late result counts", "foreign", "if timer.expired():", "if False:", LATE),
    mutant("a limit of time is nobody's error", "foreign", "raise ForeignError(late) from None", "raise", LATE),
    mutant(
        "a failure of the rollout is a tool's",
        "foreign",
        "except (RolloutFailure, KeyboardInterrupt, GeneratorExit):",
        "except (KeyboardInterrupt, GeneratorExit):",
        "foreign.py::test_a_rollout_failure_passes",
    ),
    mutant(
        "a failure of the rollout is lost in a group",
        "foreign",
        "failure = _failure_inside(error.__cause__)",
        "failure = None",
        "foreign.py::test_a_rollout_failure_passes_out_of_a_group",
    ),
    mutant(
        "a cancellation of the caller is a tool's failure",
        "foreign",
        "if task is None or task.cancelling():",
        "if task is None:",
        "foreign.py::test_a_cancellation_of_the_caller_passes_and_reaches_the_code",
    ),
    mutant(
        "a tool can cancel its caller",
        "foreign",
        "if task is None or task.cancelling():",
        "if True:",
        "foreign.py::test_a_cancellation_that_the_code_brought_on_itself_is_its_failure",
    ),
    mutant(
        "Ctrl-C is a tool's failure",
        "foreign",
        "except (RolloutFailure, KeyboardInterrupt, GeneratorExit):",
        "except RolloutFailure:",
        "foreign.py::test_ctrl_c_passes",
    ),
    Mutant(
        "hooks of the wrong kind are not seen",
        "envs/hooks.py",
        "inspect.iscoroutinefunction(function) is (name in ASYNC)",
        "True",
        "tests/rollout/test_env_check.py::test_each_fault_is_found",
    ),
    mutant(
        "an environment with wrong hooks is made",
        "registry",
        "if wrong := wrong_hooks(type(made)):",
        "if wrong := list[str]():",
        "registry.py::test_unknown_names_say_what_is_known",
    ),
    mutant(
        "a sync function is a tool",
        "signature",
        "if not inspect.iscoroutinefunction(function):",
        "if False:",
        "signature.py::test_what_cannot_be_offered_is_refused",
    ),
    mutant(
        "two tools may share a name",
        "toolset",
        "if each.spec.name in self._tools:",
        "if False:",
        "toolset.py::test_two_tools_of_one_name_are_refused",
    ),
    mutant(
        "an unknown tool hides that a call did not parse",
        "toolset",
        "self._unknown(call) if call.status is ParseStatus.OK else call",
        "self._unknown(call)",
        "toolset.py::test_what_did_not_parse_is_said_before_that_the_tool_is_unknown",
    ),
    mutant(
        "an environment may end a rollout as anything",
        "protocol",
        "if self.ending.kind not in _OUTCOMES:",
        "if False:",
        "protocol.py::test_an_environment_ends_a_rollout_by_an_outcome_only",
    ),
    mutant(
        "an ending need not be storable",
        "protocol",
        "        encode_record(self.ending)\n",
        "",
        "protocol.py::test_an_ending_that_cannot_be_kept_is_refused",
    ),
    mutant(
        "a step reward may be anything",
        "protocol",
        "if not is_reward(self.reward):",
        "if False:",
        "protocol.py::test_a_step_reward_is_finite",
    ),
]
