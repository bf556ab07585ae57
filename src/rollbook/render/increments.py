"""What the template writes for new messages only, and where the text of each message ends.

The start of a conversation is a full rendering. What follows a sampled turn is rendered behind a fixed base (a user
message and an assistant message) and taken from behind the assistant's end-of-turn token, so it costs what is new.
That this equals the full rendering is not assumed: `probe` proves it for a set of conversations before a template
is used.

A message ends where the rendering without the later ones stops agreeing with the whole, counted from the last
character of its content; thus results that a template groups into one turn are cut between them, and what only the
last of them gets (the end of the turn) belongs to the last.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage, call_entry
from rollbook.render.escapes import Escapes
from rollbook.render.template import ChatTemplate
from rollbook.render.tracked import CONTENT, Tracked, message_tag, scaffold, tags_of

__all__ = ["Increments", "Text", "common_prefix"]

_CONTENT = re.compile("[^s]+")
_SCAFFOLD = re.compile("s+")
_BASE_TAG = "b"
_BASE_USER = {"role": scaffold("user"), "content": "What is asked?"}
_BASE_TEXT = Tracked("This is said.", _BASE_TAG * 13)

Tools = list[Any] | None

_Render = Callable[[int, int], Tracked]
"""Renders messages a to i - 1 of a batch without those behind them; where a is not 0, perhaps behind a base."""


@dataclass(frozen=True, slots=True)
class Text:
    """New text and where its messages end."""

    text: Tracked
    """Ends with the generation prompt."""
    ends: tuple[int, ...]
    """The position behind each message; the generation prompt stands behind the last."""

    @property
    def prompt(self) -> str:
        """The generation prompt."""
        return self.text[self.ends[-1] :]


@dataclass(frozen=True, slots=True)
class Increments:
    """Renders starts and continuations of conversations with one template."""

    template: ChatTemplate
    stops: tuple[str, ...]
    """The spellings of the tokens that end an assistant's turn."""
    escapes: Escapes = field(default_factory=Escapes)
    """What the tokenizer cannot spell."""

    def first(self, entries: Sequence[TemplateMessage], tools: Tools) -> Text:
        """The start of a conversation."""
        whole = self._render(list(entries), tools, prompt=True)

        def alone(a: int, i: int) -> Tracked:
            shown = _behind_base(entries[a:i], entries[a:i]) if a else list(entries[:i])
            return self._render(shown, tools, prompt=False)

        ends = _ends(whole, entries, alone)
        return Text(whole, ends)

    def after_turn(self, entries: Sequence[TemplateMessage], tools: Tools) -> Text:
        """What follows the end-of-turn token of an assistant's turn."""
        whole = self._render(_behind_base(entries, entries), tools, prompt=True)
        start = self.turn_end(whole, tags_of(whole).rfind(_BASE_TAG) + 1)

        def alone(a: int, i: int) -> Tracked:
            shown = entries[a:i]
            return self._render(_behind_base(shown, shown if a else entries), tools, prompt=False)

        ends = _ends(whole, entries, alone)
        return Text(whole[start:], tuple(max(0, end - start) for end in ends))

    def turn_end(self, text: Tracked, position: int) -> int:
        """The end of the first end-of-turn token that the template wrote at or behind `position`."""
        return self._stop(text, position).end()

    def close(self) -> str:
        """The end-of-turn token that the template itself writes."""
        whole = self._render(_behind_base([], []), None, prompt=False)
        start, end = self._stop(whole, tags_of(whole).rfind(_BASE_TAG) + 1).span()
        return whole[start:end].plain

    def _stop(self, text: Tracked, position: int) -> re.Match[str]:
        if position <= 0:
            raise ModelError("the chat template does not write out an assistant's text as it is given")
        for stretch in _SCAFFOLD.finditer(tags_of(text), position):
            match = _any_of(self.stops).search(text, stretch.start(), stretch.end())
            if match is not None:
                return match
        raise ModelError(f"the chat template does not end an assistant's turn with any of {', '.join(self.stops)}")

    def _render(self, entries: list[TemplateMessage], tools: Tools, *, prompt: bool) -> Tracked:
        return self.escapes.apply(self.template.render(entries, tools, prompt=prompt))


@functools.cache
def _any_of(stops: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(stops, key=len, reverse=True))))


def _behind_base(entries: Sequence[TemplateMessage], batch: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """`entries` of `batch` behind the base; its assistant makes the calls that the batch's first results answer."""
    turn: TemplateMessage = {"role": scaffold("assistant"), "content": _BASE_TEXT}
    results = takewhile(lambda entry: entry["role"] == "tool", batch)
    calls = [call_entry(entry.get("tool_call_id"), entry.get("name"), {}) for entry in results]
    if calls:
        turn["tool_calls"] = calls
    return [_BASE_USER, turn, *entries]


def _ends(whole: Tracked, entries: Sequence[TemplateMessage], render: _Render) -> tuple[int, ...]:
    """Where each message ends in `whole`."""
    spans = _spans(tags_of(whole), len(entries))
    ends: list[int] = []
    anchor: int | None = None  # the last message so far whose text can be seen
    for i, entry in enumerate(entries):
        if spans[i][1]:
            anchor = i
        elif message_tag(i) != CONTENT and entry["content"].strip():
            raise ModelError(f"the chat template leaves out the text of message {i + 1} (role {entry['role']})")
        later = next((start for start, _ in spans[i + 1 :] if start >= 0), len(whole))
        try:
            if anchor is None:
                end = common_prefix(whole, render(0, i + 1))
            else:
                end = _end(whole[spans[anchor][1] : later], i, anchor, render) + spans[anchor][1]
        except ModelError:
            if i + 1 == len(entries):
                raise
            end = 0  # the template takes no conversation that ends here: its tokens go to the next message
        ends.append(max([end, *ends[-1:]]))
    return tuple(ends)


def _spans(tags: str, count: int) -> list[tuple[int, int]]:
    """First and last position of each message's text, the last exclusive; (-1, 0) where there is none."""
    found: dict[str, tuple[int, int]] = {}
    for stretch in _CONTENT.finditer(tags):
        rest, position = stretch[0], stretch.start()
        while rest:
            tag = rest[0]
            behind = rest.lstrip(tag)
            first, _ = found.get(tag, (position, 0))
            position += len(rest) - len(behind)
            found[tag], rest = (first, position), behind
    return [found.get(message_tag(i), (-1, 0)) for i in range(count)]


def _end(gap: Tracked, i: int, anchor: int, render: _Render) -> int:
    """How much of `gap`, the text behind message `anchor`, belongs to message i and those before it.

    One message of context tells nearly always, so a long batch costs no more than its length.
    """
    for first in sorted({max(0, min(i - 1, anchor)), 0}, reverse=True):
        try:
            alone = render(first, i + 1)
        except ModelError:
            if not first:
                raise
            continue  # the template does not take the short form
        there = tags_of(alone).rfind(message_tag(anchor)) + 1
        if there:
            return common_prefix(gap, alone[there:])
    return 0


def common_prefix(one: str, other: str) -> int:
    """The length of the longest common prefix."""
    low, high = 0, min(len(one), len(other))
    if str.__getitem__(one, slice(high)) == str.__getitem__(other, slice(high)):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if str.__getitem__(one, slice(low, middle)) == str.__getitem__(other, slice(low, middle)):
            low = middle
        else:
            high = middle - 1
    return low
