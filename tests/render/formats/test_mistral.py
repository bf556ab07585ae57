"""Both of Mistral's ways to write calls."""

from __future__ import annotations

import re

import pytest

from rollbook.render.formats import CallFormat, call_id
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import read, said_calls, statuses

LIST, ARGS = CallFormat.MISTRAL, CallFormat.MISTRAL_ARGS
DO = '{"name": "do", "arguments": {}}'


def test_ids_are_kept_or_made() -> None:
    said = read(LIST, f'[TOOL_CALLS] [{DO}, {{"name": "do", "arguments": {{}}, "id": "abcDEF123"}}]')
    assert [call.id for call in said.tool_calls] == [call_id(LIST, "t4.", 0), "abcDEF123"]
    assert said.tool_calls[0].raw == DO
    given = read(ARGS, "[TOOL_CALLS]do[ARGS]{}[TOOL_CALLS] do [CALL_ID]abcDEF123[ARGS] {}")
    assert statuses(given) == [ParseStatus.OK] * 2
    assert [call.id for call in given.tool_calls] == [call_id(ARGS, "t4.", 0), "abcDEF123"]


def test_made_ids_are_nine_letters_or_digits_and_differ() -> None:
    made = [call_id(kind, prefix, n) for kind in (LIST, ARGS) for prefix in ("t1.", "t11.") for n in range(200)]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in made)
    assert len(set(made)) == len(made) // 2
    assert call_id(CallFormat.HERMES, "t1.", 2) == "t1.2"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", ParseStatus.INVALID_JSON),
        ("[]", ParseStatus.NOT_AN_OBJECT),
        (DO, ParseStatus.NOT_AN_OBJECT),
        ("[1]", ParseStatus.NOT_AN_OBJECT),
        (f"[{DO}] done", ParseStatus.INVALID_JSON),
        (f"[{DO},]", ParseStatus.INVALID_JSON),
        ('[{"name": "do", "arguments": {}, "id": 7}]', ParseStatus.INVALID_JSON),
        ('[{"name": "do", "arguments": {}, "id": "short"}]', ParseStatus.INVALID_JSON),
        ('[{"name": "do", "arguments": {}, "kind": 1}]', ParseStatus.BAD_ARGUMENTS),
        ('[{"arguments": {}}]', ParseStatus.MISSING_NAME),
        ("do[ARGS]{}", ParseStatus.INVALID_JSON),
    ],
)
def test_lists_that_do_not_run(body: str, status: ParseStatus) -> None:
    said = read(LIST, f"[TOOL_CALLS]{body}")
    assert (statuses(said), said.content) == ([status], "")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", ParseStatus.INVALID_JSON),
        ("do", ParseStatus.INVALID_JSON),
        ("do{}", ParseStatus.INVALID_JSON),
        ("[ARGS]{}", ParseStatus.MISSING_NAME),
        ("do it[ARGS]{}", ParseStatus.INVALID_JSON),
        ("do[ARGS]{}[ARGS]{}", ParseStatus.INVALID_JSON),
        ("do[ARGS]{}[CALL_ID]abcDEF123", ParseStatus.INVALID_JSON),
        ("do[CALL_ID]x[ARGS]{}", ParseStatus.INVALID_JSON),
        ("do[CALL_ID][ARGS]{}", ParseStatus.INVALID_JSON),
        ("do[CALL_ID]abcDEF123{}", ParseStatus.INVALID_JSON),
        ("do[ARGS]", ParseStatus.INVALID_JSON),
        ("do[ARGS]{} and more", ParseStatus.INVALID_JSON),
        (f"[{DO}]", ParseStatus.INVALID_JSON),
    ],
)
def test_calls_that_do_not_run(body: str, status: ParseStatus) -> None:
    said = read(ARGS, f"[TOOL_CALLS]{body}")
    assert (statuses(said), said.content) == ([status], "")


def test_the_next_opening_closes_a_call() -> None:
    said = read(ARGS, "So [TOOL_CALLS]do[ARGS]{}[TOOL_CALLS]do[ARGS]{", cut=True)
    assert (said.content, statuses(said)) == ("So ", [ParseStatus.OK, ParseStatus.CUT])


def test_a_wrong_id_is_not_kept_and_a_right_one_of_a_bad_call_is() -> None:
    said = read(LIST, '[TOOL_CALLS][{"name": "do", "arguments": 1, "id": "abcDEF123"}, {"name": "do", "id": "x"}]')
    assert [call.id for call in said.tool_calls] == ["abcDEF123", call_id(LIST, "t4.", 1)]
    assert said_calls(read(ARGS, "[TOOL_CALLS]do[CALL_ID]abcDEF123[ARGS]7"))[0][0] == "do"
