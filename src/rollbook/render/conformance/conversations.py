"""The conversations that renderers are examined with, and how their renderings are read."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from rollbook.errors import ModelError
from rollbook.render.protocol import RenderedMessage, Renderer, Rendering
from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, expand_runs
from rollbook.trace.tools import ToolSpec

ASK = Message(role=Role.USER, content="What is asked first?")
AGAIN = Message(role=Role.USER, content="And what is asked then?")
TOOL = ToolSpec(
    name="measure",
    description="Measures how long something is.",
    parameters={
        "type": "object",
        "properties": {"thing": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["thing"],
        "additionalProperties": False,
    },
)
CALLS = tuple(
    ToolCall(id=f"measure{n:02}", name=TOOL.name, arguments={"thing": thing, "times": n})
    for n, thing in enumerate(("a rope", "two ropes"), start=1)
)
RESULTS = tuple(
    Message(role=Role.TOOL, content=text, call_id=call.id, name=call.name)
    for call, text in zip(CALLS, ("It is seven metres.", "They are nine yards."), strict=True)
)
TEXTS = (
    "",
    " ",
    "\n\n \t\r\n",
    "plain words",
    "e\u0301 and \u00e9, \u6570\u5b66, \U0001f642\u200d\U0001f642, \u202eright to left, \ufeff",
    "\0 and \x1b[31m",
    "{{ 7 * 7 }} {% raw %} </s> &lt; <b>",
    "long " * 5000,
)


def array(ids: Sequence[int]) -> TokenIds:
    return np.array(ids, np.int32)


def say(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def a_stop(renderer: Renderer) -> int:
    return min(renderer.info.stop_ids)


def plain_id(renderer: Renderer) -> int:
    """A token that ends no turn."""
    return int(renderer.encode("word")[-1])


def ids_of(rendering: Rendering) -> list[int]:
    return rendering.token_ids.tolist()


def kinds_of(one: RenderedMessage) -> list[int]:
    return expand_runs(one.runs).tolist()


def of_kind(one: RenderedMessage, kind: RunKind) -> list[int]:
    return [token for token, found in zip(one.token_ids.tolist(), kinds_of(one), strict=False) if found == kind]


def renderings(renderer: Renderer) -> Iterator[Rendering]:
    """Starts and continuations, as far as the renderer takes them."""
    system = Message(role=Role.SYSTEM, content="Be brief.")
    starts: list[tuple[list[Message], list[ToolSpec]]] = [([ASK], []), ([system, ASK], []), ([ASK], [TOOL])]
    for messages, tools in starts:
        with suppress(ModelError):
            yield renderer.open(messages, tools)
    for batch in ([AGAIN], [RESULTS[0]], list(RESULTS), [*RESULTS, AGAIN]):
        with suppress(ModelError):
            yield renderer.extend(a_stop(renderer), batch, [TOOL])
    yield renderer.extend(plain_id(renderer), [AGAIN], [])


def same_text(one: str, other: str) -> bool:
    """Equal but for canonical equivalence: some tokenizers normalise text."""
    return unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


def holds_text(whole: str, part: str) -> bool:
    return unicodedata.normalize("NFC", part) in unicodedata.normalize("NFC", whole)


def first_blank(renderer: Renderer) -> str:
    """The blank that some tokenizers put before any text, or nothing."""
    return renderer.decode(renderer.encode("x")).removesuffix("x")
