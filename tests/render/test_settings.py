"""What was set of a template: plain data, only what was set, and as it was used."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder
from rollbook.render.formats import CallFormat
from rollbook.render.settings import plain_variables, settings_of
from rollbook.trace.message import Message, Role
from tests.render.families import template, tokenizer_json

DATED = "{{ strftime_now('%d %b %Y') }}{{ place }}" + template("qwen3")


def renderer(**given: Any) -> ChatRenderer:
    data = tokenizer_json(marked=True)
    stops = frozenset({Encoder(data).added["<|im_end|>"]})
    return ChatRenderer.build(data, DATED, RendererConfig(name="n", stop_ids=stops, **given))


def test_only_what_was_set_is_named() -> None:
    day = datetime(2026, 1, 31)
    assert settings_of() == settings_of(None, {}) == {}
    assert settings_of(day) == {"date": "2026-01-31"}
    assert settings_of(day.replace(hour=9)) == {"date": "2026-01-31T09:00:00"}
    assert settings_of(None, {"a": False}, CallFormat.HERMES) == {"variables": {"a": False}, "call_format": "hermes"}


def test_a_renderer_says_what_was_set_and_uses_just_that() -> None:
    made = renderer(now=datetime(2026, 1, 31), variables={"place": (1, 2)}, call_format=CallFormat.HERMES)
    settings = {"date": "2026-01-31", "variables": {"place": [1, 2]}, "call_format": "hermes"}
    assert made.info.settings == settings
    (first,) = made.open([Message(role=Role.USER, content="Hi")], ()).messages
    assert made.decode(first.token_ids).startswith("31 Jan 2026[1, 2]<|im_start|>")
    assert renderer(now=datetime(2026, 1, 31)).info.settings == {"date": "2026-01-31"}


@given(st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.lists(st.text(max_size=3)) | st.booleans()))
def test_plain_data_stays_as_it_is(variables: dict[str, Any]) -> None:
    assert (
        plain_variables(variables)
        == variables
        == json.loads(json.dumps(settings_of(None, variables))).get("variables", {})
    )


@pytest.mark.parametrize("value", [object(), float("nan"), print, {("a",): 1}])
def test_what_no_record_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ModelError, match="must be plain JSON data"):
        renderer(now=datetime(2026, 1, 31), variables={"place": value})
