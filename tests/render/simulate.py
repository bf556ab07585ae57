"""A rollout as the renderer sees it, beside what `transformers` makes of the same conversation at each turn.

The yardstick is the `transformers` library alone: its template engine and its reading of the tokenizer. Ids of an
assistant's turn are cut from its own rendering at that moment, so what a model would have sampled is spelled as the
template spells it. Where the template rewrites history, the rewrite is a pure function over the pieces of our prompt
(`tests.render.rewrites`), and what comes out of it must be equal.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from rollbook.render.encode import Encoder
from rollbook.render.protocol import Rendering
from rollbook.render.tracked import Tracked
from rollbook.trace.message import Message, Role
from rollbook.trace.runs import RunKind, expand_runs
from rollbook.trace.tools import ToolSpec
from tests.render.stock import NOW, Stock, stock


@dataclass(frozen=True)
class Turn:
    """What the assistant says, and the observations behind it."""

    message: Message
    """Role assistant."""
    batch: tuple[Message, ...]


@dataclass(frozen=True)
class Conversation:
    """Starts, turns, and the tools that are offered."""

    start: tuple[Message, ...]
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True)
class Piece:
    """One stretch of our prompt: a turn as it was sampled, or a batch with the generation prompt behind it."""

    ids: tuple[int, ...]
    text: str
    said: Message | None = None
    """The assistant's message, for a turn."""
    reasoning: str = ""
    """The part of a turn's text that its reasoning block takes, from behind the generation prompt."""
    batch: tuple[Message, ...] = ()
    """The messages, for a batch."""


@dataclass(frozen=True)
class Moment:
    """Our prompt before a turn, and what `transformers` writes for the same conversation."""

    pieces: tuple[Piece, ...]
    renderings: tuple[Rendering, ...]
    expected: str
    """Text."""
    expected_ids: tuple[int, ...] = field(repr=False)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for piece in self.pieces for token in piece.ids)


@dataclass(frozen=True)
class Yardstick:
    """A family through `transformers`."""

    family: Stock

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return _load(self.family.tokenizer_json)

    @property
    def encoder(self) -> Encoder:
        """The renderer's own: it takes a second to build one."""
        return self.family.renderer._encoder

    def shown(self, text: str) -> str:
        """`text` with what the tokenizer cannot spell escaped."""
        return self.encoder.escapes.apply(Tracked(text))

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> str:
        """The whole conversation."""
        return self._apply(messages, tools, add_generation_prompt=prompt, tokenize=False)

    def tokenize(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The whole conversation as ids, in one call."""
        return tuple(self._apply(messages, tools, add_generation_prompt=True, tokenize=True, return_dict=False))

    def _apply(self, messages: Sequence[Message], tools: Sequence[ToolSpec], **options: Any) -> Any:
        return self.tokenizer.apply_chat_template(
            [self._entry(message) for message in messages],
            tools=[tool.openai() for tool in tools] or None,
            chat_template=self.family.template,
            **options,
            **self.family.special_tokens,
            **self._date,
            **self.family.variables,
        )

    @property
    def _date(self) -> dict[str, str]:
        """What `transformers` would ask the clock for."""
        return {"date_string": NOW.strftime("%d %b %Y")} if "strftime_now" in self.family.template else {}

    def encode(self, text: str) -> tuple[int, ...]:
        """Control tokens parsed, wherever they come from."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _entry(self, message: Message) -> dict[str, Any]:
        entry: dict[str, Any] = {"role": message.role.value, "content": self.shown(message.content)}
        if message.reasoning is not None:
            entry["reasoning_content"] = message.reasoning
        if message.tool_calls:
            entry["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": self._given(call)}}
                for call in message.tool_calls
            ]
        if message.role is Role.TOOL:
            entry |= {"tool_call_id": message.call_id, "name": message.name}
        return entry

    def _given(self, call: Any) -> Any:
        return json.dumps(call.arguments, ensure_ascii=False) if self.family.arguments_as_text else call.arguments


@cache
def _load(tokenizer_json: bytes) -> PreTrainedTokenizerFast:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(tokenizer_json)
        return PreTrainedTokenizerFast(tokenizer_file=str(path))


@cache
def yardstick(name: str) -> Yardstick:
    """The yardstick of a family."""
    return Yardstick(stock(name))


def ids_of(rendering: Rendering) -> tuple[int, ...]:
    """All ids of a rendering, the generation prompt too."""
    return tuple(rendering.token_ids.tolist())


def moments(name: str, talk: Conversation) -> Iterator[Moment]:
    """Our prompt before each turn of `talk`, as the rollout loop builds it."""
    yard, renderer = yardstick(name), stock(name).renderer
    said: list[Message] = list(talk.start)
    made = [renderer.open(talk.start, talk.tools)]
    pieces = [_batch(yard, made[0], talk.start)]
    yield _moment(yard, pieces, made, said, talk)
    for turn in talk.turns:
        piece = _turn(yard, said, turn, talk.tools)
        said += [turn.message, *turn.batch]
        made.append(renderer.extend(piece.ids[-1], turn.batch, talk.tools))
        pieces += [piece, _batch(yard, made[-1], turn.batch)]
        yield _moment(yard, pieces, made, said, talk)


def _moment(
    yard: Yardstick, pieces: list[Piece], made: list[Rendering], said: list[Message], talk: Conversation
) -> Moment:
    expected = yard.render(said, talk.tools, prompt=True)
    return Moment(tuple(pieces), tuple(made), expected, yard.encode(expected))


def _batch(yard: Yardstick, rendering: Rendering, batch: tuple[Message, ...]) -> Piece:
    ids = ids_of(rendering)
    text = yard.family.renderer.decode(np.array(ids, np.int32))
    return Piece(ids, yard.family.without_blanks(text), batch=batch)


def _turn(yard: Yardstick, said: list[Message], turn: Turn, tools: Sequence[ToolSpec]) -> Piece:
    """The turn as the model writes it behind the generation prompt, up to the token that ends it."""
    message, family = turn.message, yard.family
    before = yard.render(_history(family, said), tools, prompt=True)
    after = yard.render([*said, message], tools, prompt=False)
    opened = family.opens if family.opens and before.endswith(family.opens) else ""
    kept = before.removesuffix(opened) + family.kept if opened else before
    assert after.startswith(kept), (before[-80:], after[len(before) - 80 :])
    rest, thought = after[len(kept) :], ""
    if opened:  # history shows no reasoning: the model closes what the generation prompt opened
        thought = f"{message.reasoning or ''}{family.thought[1]}"
        rest = thought + rest
    elif family.thought[0] and rest.startswith(family.thought[0]):
        thought = rest[: rest.index(family.thought[1]) + len(family.thought[1])]
    if family.ends:
        text = rest + family.ends[turn.batch[0].role]
    else:
        text = rest[: min(rest.find(stop) + len(stop) for stop in family.stops if stop in rest)]
    return Piece(yard.encode(text), text, said=message, reasoning=thought)


def _history(family: Stock, said: list[Message]) -> list[Message]:
    return [one for one in said if not (family.loses_system and one.role is Role.SYSTEM)]


def control_outside_scaffold(moment: Moment, control: frozenset[int]) -> list[int]:
    """Ids of control tokens that are not the template's own, in what the renderer made."""
    found: list[int] = []
    for rendering in moment.renderings:
        for one in rendering.messages:
            kinds = expand_runs(one.runs)
            found += [
                token
                for token, kind in zip(one.token_ids.tolist(), kinds.tolist(), strict=True)
                if token in control and kind == RunKind.CONTENT
            ]
    return found
