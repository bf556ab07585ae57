"""Error observations of calls that did not parse."""

from __future__ import annotations

import pytest

from rollbook.envs.outcome import error_observation
from rollbook.errors import RecordError
from rollbook.trace.message import Fault, ParseStatus, Role, ToolCall

SILENT = (ParseStatus.OK, ParseStatus.INSIDE_REASONING)


@pytest.mark.parametrize("status", [each for each in ParseStatus if each not in SILENT])
def test_the_policy_sees_status_and_reason(status: ParseStatus) -> None:
    call = ToolCall(id="c7", name="search", status=status, error="line 1\nis\tbad")
    message = error_observation(call)
    assert message.content == f"error: {status}: line 1 is bad"
    assert (message.role, message.call_id, message.name, message.fault) == (Role.TOOL, "c7", "search", Fault.POLICY)


def test_without_a_reason_the_status_stands_alone_and_long_ones_are_cut() -> None:
    assert error_observation(ToolCall(id="c", status=ParseStatus.CUT)).content == "error: cut"
    long = error_observation(ToolCall(id="c", status=ParseStatus.INVALID_JSON, error="x" * 5000)).content
    assert len(long) <= 410
    assert long.endswith("...")


@pytest.mark.parametrize("status", SILENT)
def test_good_calls_and_calls_inside_reasoning_have_none(status: ParseStatus) -> None:
    with pytest.raises(RecordError, match="no error observation"):
        error_observation(ToolCall(id="c", status=status))
