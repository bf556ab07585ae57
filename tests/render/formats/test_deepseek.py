"""DeepSeek's two ways to write calls, and neither in place of the other."""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

import pytest

from rollbook.render.formats import CallFormat
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import SUM, read, said_calls, spell, statuses, wrap

V3, V31 = CallFormat.DEEPSEEK_V3, CallFormat.DEEPSEEK_V31
SEP = "<｜tool▁sep｜>"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("do", ParseStatus.INVALID_JSON),
        (f"do{SEP}", ParseStatus.INVALID_JSON),
        (f"{SEP}{{}}", ParseStatus.MISSING_NAME),
        (f" do{SEP}{{}}", ParseStatus.INVALID_JSON),
        (f"do{SEP}{{}}{SEP}", ParseStatus.INVALID_JSON),
        (f"do{SEP}```json\n{{}}\n```", ParseStatus.INVALID_JSON),
        (f"do{SEP} {{}}\n", ParseStatus.OK),
    ],
)
def test_a_name_and_json(body: str, status: ParseStatus) -> None:
    assert statuses(read(V31, wrap(V31, body))) == [status]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (f"function{SEP}do\n```json\n{{}}\n```", ParseStatus.OK),
        (f"function{SEP}do\n```json\n\n{{}}\n\n```", ParseStatus.OK),
        (f"function{SEP}\n```json\n{{}}\n```", ParseStatus.MISSING_NAME),
        (f"function{SEP}do\n```json\n{{}}\n```\n", ParseStatus.INVALID_JSON),
        (f"function{SEP}do\n```\n{{}}\n```", ParseStatus.INVALID_JSON),
        (f"function{SEP}do\n{{}}", ParseStatus.INVALID_JSON),
        (f"function{SEP}do", ParseStatus.INVALID_JSON),
        (f"tool{SEP}do\n```json\n{{}}\n```", ParseStatus.INVALID_JSON),
        (f"do{SEP}{{}}", ParseStatus.INVALID_JSON),
        ("function do\n```json\n{}\n```", ParseStatus.INVALID_JSON),
        (f"function{SEP}do it\n```json\n{{}}\n```", ParseStatus.INVALID_JSON),
    ],
)
def test_a_fenced_block(body: str, status: ParseStatus) -> None:
    assert statuses(read(V3, wrap(V3, body))) == [status]


def test_fences_inside_a_string() -> None:
    call = ("say", {"text": "```json\n{}\n```"})
    assert said_calls(read(V3, spell(V3, call))) == [call]


def test_one_is_not_the_other() -> None:
    assert statuses(read(V3, spell(V31, SUM))) == [ParseStatus.INVALID_JSON]
    assert statuses(read(V31, spell(V3, SUM))) == [ParseStatus.INVALID_JSON]
