"""Learn how calls look to a renderer of another package: let it write one and read it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rollbook.errors import ModelError, boundary
from rollbook.render.encode import Encoder
from rollbook.render.package_guard import Rendered
from rollbook.render.package_reply import CallForm, ReadReply, ReplyCheck, body_of
from rollbook.trace.tools import ToolSpec

__all__ = ["Learned", "Reads", "learn_form"]

ADD = ToolSpec(
    name="add",
    description="Adds.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}, "number": {"type": "integer"}}},
)
ARGUMENTS = {"word": "two words", "number": 21}
_CALLED = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "This is thought.",
    "tool_calls": [
        {"type": "function", "id": "functions.add:0", "function": {"name": ADD.name, "arguments": ARGUMENTS}}
    ],
}
_SAID = {"role": "assistant", "content": "This is said.", "reasoning_content": "This is thought."}


class Reads(Protocol):
    """The part of a renderer object that is asked."""

    def render(
        self, messages: list[Any], *, tools: list[Any] | None = None, add_generation_prompt: bool = False
    ) -> Rendered: ...

    def parse_response(
        self, token_ids: list[int], *, tools: list[Any] | None = None, prompt_ids: list[int] | None = None
    ) -> ReadReply: ...

    def get_stop_token_ids(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Learned:
    """What a renderer showed."""

    form: CallForm
    said: list[int]
    """A turn of reasoning and words, its end-of-turn token left out."""
    called: list[int]
    """A turn of reasoning and a call, likewise."""


def learn_form(package: Reads, encoder: Encoder, prompt: list[int], *, inside_reasoning: bool) -> Learned:
    """`prompt` stands before the turns; `inside_reasoning`: it opens reasoning."""
    called, found = _written(package, _CALLED, prompt, inside_reasoning=inside_reasoning)
    calls = list(found.tool_calls)
    if len(calls) != 1 or (calls[0].name, calls[0].arguments) != (ADD.name, ARGUMENTS) or calls[0].status != "ok":
        raise ModelError("the package's renderer does not read back a call that it wrote itself")
    opener = closer = None
    if calls[0].token_span is not None:
        first, last = called[calls[0].token_span[0]], called[calls[0].token_span[1] - 1]
        opener = first if first in encoder.control else None
        closer = last if last in encoder.control and last != first else None
    form = CallForm(body_of(calls[0]), opener, closer, marked=True)
    said, found = _written(package, _SAID, prompt, inside_reasoning=inside_reasoning)
    check = ReplyCheck(encoder.vocabulary, encoder.added, encoder.control, form)
    ours = check.message(said, found, [ADD], inside_reasoning=inside_reasoning, cut=False, call_prefix="")
    pairs = ((ours.content, found.content), (ours.reasoning or "", found.reasoning_content or ""))
    marked = all(one.strip() == other.strip() for one, other in pairs)
    return Learned(CallForm(form.body, opener, closer, marked=marked), said, called)


def _written(
    package: Reads, entry: dict[str, Any], prompt: list[int], *, inside_reasoning: bool
) -> tuple[list[int], ReadReply]:
    """A turn as the package writes it, without its end, and what the package reads in it."""
    tools: list[Any] = [ADD.openai()]
    with boundary("the renderers package cannot write a turn and read it back", ModelError):
        asked: list[Any] = [{"role": "user", "content": "What is asked?"}, entry]
        rendered = package.render(asked, tools=tools)
        own = np.array(rendered.message_indices) == 1
        turn: list[int] = np.array(rendered.token_ids)[own & np.array(rendered.is_content, np.bool_)].tolist()
        stops = set(package.get_stop_token_ids())
        while turn and turn[-1] in stops:
            turn.pop()
        if inside_reasoning:  # the prompt has written the start of this turn already
            sizes = range(min(len(prompt), len(turn)), 0, -1)
            turn = turn[next((size for size in sizes if prompt[-size:] == turn[:size]), 0) :]
        return turn, package.parse_response(turn, tools=tools, prompt_ids=prompt)
