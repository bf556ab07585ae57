"""What the template writes for new messages only, and where the text of each message ends.

The start of a conversation is a full rendering. What follows a sampled turn is rendered behind a fixed base (a user
message and an assistant message) and taken from behind the token that ended the turn there, so it costs what is new.
That this equals what the full rendering ends with is not assumed: `probe` proves it for a set of conversations before
a template is used.

A message ends where the rendering without the later ones stops agreeing with the whole, counted from the last
character of its content; thus results that a template groups into one turn are cut between them, and what only the
last of them gets (the end of the turn) belongs to the last.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Any

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage, call_entry
from rollbook.render.escapes import Escapes
from rollbook.render.template import ChatTemplate
from rollbook.render.tracked import SCAFFOLD, Tracked, call_tag, message_tag, scaffold, tags_of

__all__ = ["BaseCalls", "Increments", "Shape", "Text", "common_prefix", "last_of", "own_ending"]

_CONTENT = re.compile("[^s]+")
_SCAFFOLD = re.compile("s+")
_BASE_TAG = "b"
_BASE_USER = {"role": scaffold("user"), "content": "What is asked?"}
_ASSISTANT = scaffold("assistant")
_BASE_TEXT = Tracked("This is said.", _BASE_TAG * 13)

Tools = list[Any] | None

_Render = Callable[[int, int], Tracked]
"""Renders messages a to i - 1 of a batch without those behind them; where a is not 0, perhaps behind a base."""


class BaseCalls(StrEnum):
    """Which calls the base makes where the new messages begin with tool results."""

    ALL = "all"
    """One for each result."""
    ONE = "one"
    """One, for a template that takes no parallel calls."""
    NONE = "none"
    """None, for a template that takes results behind any turn, and whose calls cannot be found again."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How one template wants to be asked; found by `probe`."""

    base_calls: BaseCalls = BaseCalls.ALL
    arguments_as_text: bool = False
    """True where it takes a call's arguments as JSON text only."""
    silent_calls: bool = False
    """True where a turn with calls and no text must have no content at all (None), not an empty one."""
    prompts: tuple[str, ...] = ()
    """The generation prompts that it writes, but for the empty one; where a rendering ends in one of them, the last
    message ends before it."""


@dataclass(frozen=True, slots=True)
class Text:
    """New text and where its messages end."""

    text: Tracked
    """Ends with the generation prompt."""
    ends: tuple[int, ...]
    """The position behind each message; the generation prompt stands behind the last."""
    stop: str = ""
    """The token that ended the turn before, as the template spells it; empty at the start of a conversation."""

    @property
    def prompt(self) -> str:
        """The generation prompt."""
        return self.text[self.ends[-1] :]

    @property
    def before_reply(self) -> str:
        """What tells whether the reply begins inside reasoning: the generation prompt or, where there is none, the
        template's own words behind the last message's text."""
        return self.prompt if self.prompt.strip() else own_ending(self.text)


@dataclass(frozen=True, slots=True)
class Increments:
    """Renders starts and continuations of conversations with one template."""

    template: ChatTemplate
    stops: tuple[str, ...]
    """The spellings of the tokens that end an assistant's turn."""
    escapes: Escapes = field(default_factory=Escapes)
    """What the tokenizer cannot spell."""
    shape: Shape = Shape()

    def first(self, entries: Sequence[TemplateMessage], tools: Tools) -> Text:
        """The start of a conversation."""
        whole = self._render(list(entries), tools, prompt=True)

        def alone(a: int, i: int) -> Tracked:
            shown = self._behind_base(entries[a:i], entries[a:i]) if a else list(entries[:i])
            return self._render(shown, tools, prompt=False)

        return Text(whole, self._ends(whole, entries, alone))

    def history(self, entries: Sequence[TemplateMessage], tools: Tools) -> Text:
        """A whole conversation as the template writes it now; the text of a turn ends right behind the token that
        ends the turn."""
        made = self.first(entries, tools)
        ends = list(made.ends)
        tags = tags_of(made.text)
        for i, entry in enumerate(entries):
            if entry["role"] != "assistant":
                continue
            written = last_of(tags, i) + 1
            if written:
                ends[i] = self.stop(made.text, written).end()
            elif i and (found := self._find_stop(made.text, max(ends[i - 1], 1))) and found.end() <= ends[i]:
                ends[i] = found.end()
        return Text(made.text, tuple(max(ends[: i + 1]) for i in range(len(ends))))

    def after_turn(self, entries: Sequence[TemplateMessage], tools: Tools) -> Text:
        """What follows the token that ended an assistant's turn."""
        whole = self._render(self._behind_base(entries, entries), tools, prompt=True)
        stop = self.stop(whole, tags_of(whole).rfind(_BASE_TAG) + 1)

        def alone(a: int, i: int) -> Tracked:
            shown = entries[a:i]
            return self._render(self._behind_base(shown, shown if a else entries), tools, prompt=False)

        ends = self._ends(whole, entries, alone)
        behind = tuple(max(0, end - stop.end()) for end in ends)
        return Text(whole[stop.end() :], behind, str.__str__(whole)[stop.start() : stop.end()])

    def close(self) -> str | None:
        """The end-of-turn token that the template itself writes behind a turn; None where the next role's marker is
        what ends it (GLM)."""
        whole = self._render(self._behind_base([], []), None, prompt=False)
        found = self._find_stop(whole, tags_of(whole).rfind(_BASE_TAG) + 1)
        return None if found is None else found[0]

    def stop(self, text: Tracked, position: int) -> re.Match[str]:
        """The first end-of-turn token that the template wrote at or behind `position`."""
        found = self._find_stop(text, position)
        if found is None:
            there = text.plain[position : position + 60]
            raise ModelError(
                f"the chat template does not end an assistant's turn with any of {', '.join(self.stops)}; behind the "
                f"assistant's text stands {there!r}"
            )
        return found

    def _find_stop(self, text: Tracked, position: int) -> re.Match[str] | None:
        if position <= 0:
            raise ModelError("the chat template does not write out an assistant's text as it is given")
        plain, stops = text.plain, _any_of(self.stops)
        for stretch in _SCAFFOLD.finditer(tags_of(text), position):
            match = stops.search(plain, stretch.start(), stretch.end())
            if match is not None:
                return match
        return None

    def _render(self, entries: list[TemplateMessage], tools: Tools, *, prompt: bool) -> Tracked:
        return self.escapes.apply(self.template.render(entries, tools, prompt=prompt))

    def _behind_base(
        self, entries: Sequence[TemplateMessage], batch: Sequence[TemplateMessage]
    ) -> list[TemplateMessage]:
        """`entries` of `batch` behind the base; its assistant makes the calls that the batch's first results
        answer."""
        turn: TemplateMessage = {"role": _ASSISTANT, "content": _BASE_TEXT}
        results = list(takewhile(lambda entry: entry["role"] == "tool", batch))
        match self.shape.base_calls:
            case BaseCalls.ALL:
                pass
            case BaseCalls.ONE:
                results = results[:1]
            case BaseCalls.NONE:
                results = []
        if results:
            if self.shape.silent_calls:
                turn["content"] = None
            turn["tool_calls"] = [
                call_entry(
                    entry.get("tool_call_id"),
                    entry.get("name"),
                    {},
                    tag=_BASE_TAG,
                    as_text=self.shape.arguments_as_text,
                )
                for entry in results
            ]
        return [_BASE_USER, turn, *entries]

    def _ends(self, whole: Tracked, entries: Sequence[TemplateMessage], render: _Render) -> tuple[int, ...]:
        """Where each message ends in `whole`."""
        tags = tags_of(whole)
        spans = _spans(tags, len(entries))
        ends: list[int] = []
        anchor: int | None = None  # the last message so far whose text can be seen
        for i, entry in enumerate(entries):
            if spans[i][1]:
                anchor = i
            if message_tag(i) not in tags and (entry["content"] or "").strip():
                raise ModelError(f"the chat template leaves out the text of message {i + 1} (role {entry['role']})")
            later = next((start for start, _ in spans[i + 1 :] if start >= 0), len(whole))
            known = self._before_prompt(whole, spans[i][1]) if i + 1 == len(entries) else None
            try:
                if known is not None:
                    end = known
                elif anchor is None:
                    end = common_prefix(whole, render(0, i + 1))
                else:
                    end = _end(whole[spans[anchor][1] : later], i, anchor, render) + spans[anchor][1]
            except ModelError:
                if i + 1 == len(entries):
                    raise
                end = 0  # the template takes no conversation that ends here: its tokens go to the next message
            ends.append(max([end, *ends[-1:]]))
        return tuple(ends)

    def _before_prompt(self, whole: Tracked, written: int) -> int | None:
        """Where a known generation prompt begins, with which `whole` ends; None where it ends with none."""
        for prompt in self.shape.prompts:
            start = len(whole) - len(prompt)
            if start >= written and whole.endswith(prompt) and not tags_of(whole)[start:].strip(SCAFFOLD):
                return start
        return None


@functools.cache
def _any_of(stops: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(stops, key=len, reverse=True))))


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
    return [_join(found.get(message_tag(i)), found.get(call_tag(i))) for i in range(count)]


def _join(text: tuple[int, int] | None, calls: tuple[int, int] | None) -> tuple[int, int]:
    if text is None or calls is None:
        return text or calls or (-1, 0)
    return min(text[0], calls[0]), max(text[1], calls[1])


def own_ending(text: Tracked) -> str:
    """The template's own words at the end of `text`."""
    return text.plain[len(tags_of(text).rstrip(SCAFFOLD)) :]


def last_of(tags: str, index: int) -> int:
    """The last position of message `index`: of its text, or of the name of a call that it makes; -1: none is seen."""
    return max(tags.rfind(message_tag(index)), tags.rfind(call_tag(index)))


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
        there = last_of(tags_of(alone), anchor) + 1
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
