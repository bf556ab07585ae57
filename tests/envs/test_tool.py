"""Tools: what is declared, which arguments run, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from rollbook.envs.outcome import ToolOutcome, ToolRefused
from rollbook.envs.protocol import StepResult
from rollbook.envs.tool import Tool, is_tool, tool
from rollbook.errors import UsageError
from rollbook.trace.ending import Ending, Reason, RolloutFailure
from rollbook.trace.message import Fault, ParseStatus, Role, ToolCall

ran: list[dict[str, Any]] = []


@tool
async def measure(count: int, factor: float = 1.0, note: str | None = None) -> float:
    """Measures."""
    ran.append({"count": count, "factor": factor, "note": note})
    return count * factor


@tool(stop=True, name="hand-in", limit=10)
async def submit(text: str) -> str:
    """Ends it."""
    if not text:
        raise ToolRefused("there is nothing to hand in")
    return text


@tool(timeout=0.01)
async def hang() -> None:
    """Never returns."""
    await asyncio.Event().wait()


@tool
async def odd(kind: str) -> object:
    """Gives odd things."""
    match kind:
        case "raise":
            raise ValueError("it\nbroke")
        case "nan":
            return math.nan
        case "bytes":
            return b"\xff"
        case "lost":
            raise RolloutFailure(Reason.SANDBOX_LOST, "gone")
        case "reward":
            return StepResult({"left": 1}, 0.5, Ending(Reason.GOAL_REACHED))
        case "bad reward":
            return StepResult("", math.nan)
        case "bad ending":
            return StepResult("", None, Ending(Reason.MAX_TURNS))
        case _:
            return None


def call(tool_function: Any, status: ParseStatus = ParseStatus.OK, **arguments: Any) -> ToolOutcome:
    request = ToolCall(id="c1", name="any", arguments=arguments, status=status)
    return asyncio.run(Tool(tool_function).invoke(request))


def test_a_marked_function_stays_a_function() -> None:
    assert is_tool(measure)
    assert asyncio.run(measure(2, 1.5)) == 3.0
    assert not is_tool(call)
    with pytest.raises(UsageError, match="mark it with @tool"):
        Tool(call)


def test_the_spec_says_name_description_and_stop() -> None:
    spec = Tool(submit).spec
    assert (spec.name, spec.description, spec.stop) == ("hand-in", "Ends it.", True)
    assert spec.parameters["required"] == ["text"]


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "a/b"])
def test_names_that_engines_refuse_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="tool name"):
        tool(name=name)(measure)


def test_a_good_call_runs_with_typed_arguments() -> None:
    ran.clear()
    outcome = call(measure, count=2, factor=3)
    assert ran == [{"count": 2, "factor": 3.0, "note": None}]
    assert type(ran[0]["factor"]) is float
    message = outcome.message
    assert (message.role, message.content, message.call_id, message.name) == (Role.TOOL, "6.0", "c1", "measure")
    assert (message.fault, message.value_type) == (None, "float")
    assert outcome.seconds > 0


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"count": "2"},
        {"count": 2.0},
        {"count": 2.5},
        {"count": True},
        {"count": None},
        {"count": 2, "factor": "3"},
        {"count": 2, "factor": math.nan},
        {"count": 2, "note": 5},
        {"count": 2, "unexpected": 1},
        {"Count": 2},
    ],
)
def test_a_wrong_argument_is_the_policys_error_and_nothing_runs(arguments: dict[str, Any]) -> None:
    ran.clear()
    outcome = call(measure, **arguments)
    assert ran == []
    assert outcome.message.content.startswith("error: bad arguments: ")
    assert (outcome.message.fault, outcome.reward, outcome.ending, outcome.seconds) == (Fault.POLICY, None, None, 0.0)


def test_the_error_names_the_argument_and_is_bounded() -> None:
    assert call(measure, count="x").message.content == "error: bad arguments: count: 'x' is not of type 'integer'"
    assert call(measure).message.content == "error: bad arguments: 'count' is a required property"
    assert len(call(measure, count="x" * 10_000).message.content) < 450


@pytest.mark.parametrize("status", [each for each in ParseStatus if each not in ("ok", "inside_reasoning")])
def test_a_call_that_did_not_parse_never_runs(status: ParseStatus) -> None:
    ran.clear()
    assert call(measure, status, count=1).message.fault is Fault.POLICY
    assert ran == []


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("raise", "error: odd: ValueError: it broke"),
        ("nan", "error: odd returned what has no text: value: nan is not a JSON number"),
        ("bad reward", "error: odd: RecordError: a step reward must be finite as a float32, got nan"),
    ],
)
def test_a_tool_that_breaks_is_the_environments_fault(kind: str, content: str) -> None:
    outcome = call(odd, kind=kind)
    assert (outcome.message.content, outcome.message.fault) == (content, Fault.ENVIRONMENT)
    assert outcome.reward is None


def test_an_environment_cannot_end_a_rollout_as_truncated() -> None:
    assert "not as truncated/max_turns" in call(odd, kind="bad ending").message.content


def test_a_tool_that_never_returns_is_cancelled() -> None:
    outcome = call(hang)
    assert outcome.message.content == "error: hang: did not return within 0.01 s"
    assert outcome.message.fault is Fault.ENVIRONMENT


def test_a_lost_sandbox_passes() -> None:
    with pytest.raises(RolloutFailure, match="sandbox_lost"):
        call(odd, kind="lost")


def test_step_results_bring_reward_and_ending() -> None:
    outcome = call(odd, kind="reward")
    assert outcome.message.content == '{"left": 1}'
    assert (outcome.message.value_type, outcome.reward, outcome.ending) == ("dict", 0.5, Ending(Reason.GOAL_REACHED))


def test_nothing_is_null_and_bytes_are_kept() -> None:
    assert (call(odd, kind="").message.content, call(odd, kind="").message.value_type) == ("null", "NoneType")
    assert (call(odd, kind="bytes").message.content, call(odd, kind="bytes").message.raw) == ("\\xff", b"\xff")


def test_a_stop_tool_ends_the_rollout_only_where_it_succeeded() -> None:
    assert call(submit, text="done").ending == Ending(Reason.STOP_TOOL, "hand-in")
    refused = call(submit, text="")
    assert (refused.ending, refused.message.fault) == (None, Fault.POLICY)
    assert refused.message.content == "error: there is nothing to hand in"
    assert call(submit, wrong="").ending is None


def test_a_long_result_is_cut_visibly() -> None:
    assert call(submit, text="0123456789").message.content == "0123456789"
    assert call(submit, text="0123456789ab").message.content == "01234\n[... 2 of 12 characters left out ...]\n789ab"
