"""Kimi's ids: the policy's own, kept verbatim, never guessed."""

from __future__ import annotations

import pytest

from rollbook.render.formats import CallFormat
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import read, spec, statuses, wrap

KIMI = CallFormat.KIMI
ARGS = "<|tool_call_argument_begin|>"
TOOLS = [spec("exec", properties={"command": {"type": "string"}}), spec("read_file"), spec("a.b-c")]


@pytest.mark.parametrize(
    ("native", "name"),
    [("functions.read_file:3", "read_file"), ("functions.a.b-c:12", "a.b-c"), ("functions.exec:0", "exec")],
)
def test_the_id_is_the_policys(native: str, name: str) -> None:
    (call,) = read(KIMI, wrap(KIMI, f"{native}{ARGS}{{}}"), TOOLS).tool_calls
    assert (call.status, call.id, call.name) == (ParseStatus.OK, native, name)


@pytest.mark.parametrize(
    "native",
    [
        "functionsexec5",
        "exec:0",
        "functions.exec",
        "functions.exec:",
        "functions.:0",
        " functions.exec:0",
        "functions.exec:0\n",
        "functions.exec:x",
        "",
    ],
)
def test_an_id_without_its_separators_names_no_tool(native: str) -> None:
    said = read(KIMI, wrap(KIMI, f'{native}{ARGS}{{"command": "ls"}}'), TOOLS)
    (call,) = said.tool_calls
    assert (call.status, call.name, call.arguments, said.content) == (ParseStatus.MISSING_NAME, None, None, "")
    assert call.id == (native or "t4.0")
    assert call.raw == f'{native}{ARGS}{{"command": "ls"}}'
    assert "functions.NAME:INDEX" in (call.error or "")


def test_a_wrong_id_that_is_long_is_not_kept() -> None:
    (call,) = read(KIMI, wrap(KIMI, f"{'x' * 101}{ARGS}{{}}"), TOOLS).tool_calls
    assert call.id == "t4.0"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", ParseStatus.INVALID_JSON),
        ("functions.exec:0", ParseStatus.INVALID_JSON),
        (f"functions.exec:0{ARGS}{{}}{ARGS}", ParseStatus.INVALID_JSON),
        (f"functions.rm:0{ARGS}{{}}", ParseStatus.UNKNOWN_TOOL),
        (f"functions.exec:0{ARGS}[]", ParseStatus.NOT_AN_OBJECT),
        (f'functions.exec:0{ARGS}{{"command": 1}}', ParseStatus.BAD_ARGUMENTS),
    ],
)
def test_what_does_not_run(body: str, status: ParseStatus) -> None:
    said = read(KIMI, wrap(KIMI, body), TOOLS)
    assert (statuses(said), said.content) == ([status], "")


def test_a_call_that_is_not_read_takes_no_id_from_the_one_that_is() -> None:
    start, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    one = f"<|tool_call_begin|>functions.exec:4{ARGS}{{}}"
    closed = f"{one}<|tool_call_end|>"
    for text in (
        f"<think>{closed}</think>{start}{closed}{end}",
        f"{start}{one}{closed}{end}",
        f"{closed}{start}{closed}",
    ):
        first, second = read(KIMI, text, TOOLS).tool_calls
        assert (first.id, second.id, second.status) == ("t4.0", "functions.exec:4", ParseStatus.OK)
