"""What another package read in a reply is taken only where our call rule holds of it.

Of each call that the package lists, in the order of the reply: one that stands inside reasoning is
`inside_reasoning`, whatever the package says (it lets a call end open reasoning); one that the end of the reply leaves
open is `cut` or `unclosed`; one that the package could not read stays unread; one that it read must be read the same
by `rollbook.render.calls`: where the body is JSON, from the exact bytes, and with the same name and arguments; in
other forms every value that the package found must stand in the body, and the call is checked against its tool.
Where the package says that a call is fine and we do not, the call does not run and its error says that the two
differ. Wherever calls are opened by a token, each opener is an attempt: one that the package passes over (inside
reasoning, inside another call, behind a token that ends the turn) is kept, and does not run.

Where reasoning stands between marker tokens, reasoning and content are the exact bytes of the reply outside calls and
markers, white space and what the package leaves out included. In other forms (channels) they are the bytes behind
what the package found, with the white space around it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, Protocol, cast

from msgspec.structs import replace

from rollbook.render.calls import CallReader, json_call, read_json, text_of
from rollbook.render.formats import REASONING
from rollbook.render.reply_message import reply_message
from rollbook.render.vocabulary import Vocabulary, show_bytes
from rollbook.trace.message import Message, ParseStatus, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["BodyKind", "CallForm", "ReadCall", "ReadReply", "ReplyCheck", "body_of"]


class ReadCall(Protocol):
    """The package's ``ParsedToolCall``."""

    raw: str
    name: str | None
    arguments: Any
    token_span: tuple[int, int] | None
    status: str
    id: str | None


class ReadReply(Protocol):
    """The package's ``ParsedResponse``."""

    content: str
    reasoning_content: str | None
    tool_calls: Sequence[ReadCall]


class BodyKind(StrEnum):
    """What the body of a call is in one format."""

    CALL = "call"
    """A JSON object with name and arguments."""
    ARGUMENTS = "arguments"
    """A JSON object of arguments; the name stands elsewhere."""
    OTHER = "other"
    """Not JSON."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How calls look to the package, learned from one that it wrote itself."""

    body: BodyKind
    opener: int | None
    """The control token that opens a call; None where none does."""
    closer: int | None
    """The control token that closes one."""
    marked: bool
    """True where reasoning stands between marker tokens, and content is all the rest."""


PACKAGE = "the renderers package"
_PASSED_OVER = "the tool call was not closed before another one opened, or stands behind the end of the turn"

_STATUS = {
    "invalid_json": ParseStatus.INVALID_JSON,
    "malformed_structure": ParseStatus.INVALID_JSON,
    "missing_name": ParseStatus.MISSING_NAME,
    "unknown_tool": ParseStatus.UNKNOWN_TOOL,
}
_WHY = {
    ParseStatus.UNCLOSED: "the tool call was opened but never closed",
    ParseStatus.CUT: "the generation limit cut the tool call",
    ParseStatus.INSIDE_REASONING: "the tool call stands inside reasoning",
}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One call in the reply; `call` is None where the package passed over it."""

    start: int
    end: int
    call: ReadCall | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where reasoning stands in a reply."""

    inside: list[bool]
    """One a token and one for the end: whether it stands inside reasoning, as far as marker tokens tell."""
    turns: frozenset[int]
    """Places of the markers that open or close it."""


class ReplyCheck:
    """Checks what the package read in replies of one tokenizer. Stateless but for caches."""

    def __init__(
        self, vocabulary: Vocabulary, added: Mapping[str, int], control: frozenset[int], form: CallForm
    ) -> None:
        self._vocabulary = vocabulary
        self._control = control
        self._form = form
        self._reader = CallReader()
        self._turns = {added[mark]: at == 0 for pair in REASONING for at, mark in enumerate(pair) if mark in added}
        """Marker tokens of reasoning: whether each opens it."""

    def message(
        self,
        ids: list[int],
        found: ReadReply,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Message:
        """The reply as a message; `ids` without the end-of-turn token."""
        attempts = self._attempts(ids, found)
        calls: list[ToolCall] = []
        layout = self._layout(ids, attempts, inside_reasoning=inside_reasoning)
        for number, attempt in enumerate(attempts):
            read = self._read(ids, attempt, tools, inside=layout.inside[attempt.start], cut=cut)
            native = None if attempt.call is None else attempt.call.id
            calls.append(replace(read, id=native or f"{call_prefix}{number}"))
        reasoning, content = self._said(ids, found, attempts, layout)
        return reply_message(content, reasoning, calls)

    def _attempts(self, ids: list[int], found: ReadReply) -> list[_Attempt]:
        """What the package lists and what it passes over, in the order of the reply."""
        openers = [place for place, token in enumerate(ids) if token == self._form.opener]
        ends = sorted(
            [place + 1 for place, token in enumerate(ids) if token == self._form.closer] + [*openers, len(ids)]
        )
        spans = ((self._span(ids, call, ends), call) for call in found.tool_calls)
        listed = [
            _Attempt(start, end, call)
            for (start, end), call in spans
            if bisect_left(openers, start + 1) == bisect_left(openers, end)  # none opens inside it
        ]
        covered = {place for attempt in listed for place in range(attempt.start, attempt.end)}
        passed = [_Attempt(at, ends[bisect_right(ends, at)], None) for at in openers if at not in covered]
        return sorted([*listed, *passed], key=lambda attempt: attempt.start)

    def _span(self, ids: list[int], call: ReadCall, ends: list[int]) -> tuple[int, int]:
        """The call's tokens; where its text does not stand in the reply, none at the end."""
        if call.token_span is not None and 0 <= call.token_span[0] <= call.token_span[1] <= len(ids):
            start, end = call.token_span
            # an open one ends for the package at a token that would end the turn
            open_ = call.status == "unclosed_block" and start < end
            return start, ends[bisect_right(ends, start)] if open_ else end
        at = self._vocabulary.join(ids).find(call.raw.encode("utf-8", "surrogatepass"))
        if at < 0 or not call.raw:
            return len(ids), len(ids)
        ends = list(accumulate(len(self._vocabulary[token]) for token in ids))
        return bisect_right(ends, at), bisect_left(ends, at + len(call.raw.encode("utf-8", "surrogatepass"))) + 1

    def _layout(self, ids: list[int], attempts: Sequence[_Attempt], *, inside_reasoning: bool) -> _Layout:
        inside, done, now = [False] * (len(ids) + 1), 0, inside_reasoning
        turns: list[int] = []
        for place, opens in ((at, self._turns[token]) for at, token in enumerate(ids) if token in self._turns):
            if opens == now or (not now and any(a.start < place < a.end and not inside[a.start] for a in attempts)):
                continue  # it changes nothing, or it is text of a call
            inside[done : place + 1] = [now] * (place + 1 - done)
            done, now = place + 1, opens
            turns.append(place)
        inside[done:] = [now] * (len(inside) - done)
        return _Layout(inside, frozenset(turns))

    def _said(
        self, ids: list[int], found: ReadReply, attempts: Sequence[_Attempt], layout: _Layout
    ) -> tuple[bytes | None, bytes]:
        """Reasoning, None where there was none, and content."""
        if not self._form.marked:
            return self._found(ids, found)
        called = {place for a in attempts if not layout.inside[a.start] for place in range(a.start, a.end)}
        thought = [token for at, token in enumerate(ids) if layout.inside[at] and at not in layout.turns]
        said = [
            token
            for at, token in enumerate(ids)
            if not layout.inside[at] and at not in layout.turns and at not in called
        ]
        opened = bool(layout.turns) or layout.inside[0]
        return self._vocabulary.join(thought) if opened else None, self._vocabulary.join(said)

    def _found(self, ids: list[int], found: ReadReply) -> tuple[bytes | None, bytes]:
        data = self._vocabulary.join(ids)
        reasoning, behind = _exact(data, found.reasoning_content or "", 0)
        content, _ = _exact(data, found.content, behind)
        return None if found.reasoning_content is None else reasoning, content

    def _read(
        self, ids: list[int], attempt: _Attempt, tools: Sequence[ToolSpec], *, inside: bool, cut: bool
    ) -> ToolCall:
        call, body = attempt.call, self._body(ids, attempt)
        if inside:
            return _unread(body, ParseStatus.INSIDE_REASONING)
        if call is None:
            return replace(_unread(body, ParseStatus.UNCLOSED), error=_PASSED_OVER)
        if call.status == "unclosed_block" or (cut and attempt.end == len(ids) and ids[-1] != self._form.closer):
            return _unread(body, ParseStatus.CUT if cut else ParseStatus.UNCLOSED)
        ours = self._strict(body, call, tools)
        if call.status == "ok":
            return ours if ours.status is ParseStatus.OK else replace(ours, error=f"{ours.error} ({PACKAGE} took it)")
        if ours.status is not ParseStatus.OK and self._form.body is BodyKind.CALL:
            return ours
        status = _STATUS.get(call.status, ParseStatus.INVALID_JSON)
        return replace(ours, status=status, error=f"{PACKAGE} could not read this call: {call.status}")

    def _body(self, ids: list[int], attempt: _Attempt) -> bytes:
        """The exact bytes between the markers of the call."""
        start, end = attempt.start, attempt.end
        if start < end and ids[start] == self._form.opener:
            start += 1
        if start < end and ids[end - 1] == self._form.closer:
            end -= 1
        return self._vocabulary.join(ids[start:end])

    def _read_strictly(self, body: bytes, tools: Sequence[ToolSpec]) -> ToolCall:
        return self._reader.read(lambda: json_call(text_of(body)), body, tools, "")

    def _strict(self, body: bytes, call: ReadCall, tools: Sequence[ToolSpec]) -> ToolCall:
        """What our own reading makes of it."""
        match self._form.body:
            case BodyKind.CALL:
                read = self._read_strictly(body, tools)
                same = (call.name, _plain(call.arguments)) == (read.name, _plain(read.arguments))
            case BodyKind.ARGUMENTS:
                composed = f'{{"name": {json.dumps(call.name)}, "arguments": {call.raw}}}'
                read = self._read_strictly(composed.encode("utf-8", "surrogatepass"), tools)
                same = call.name == read.name and _plain(call.arguments) in (_plain(read.arguments), _plain(call.raw))
            case BodyKind.OTHER:
                composed = json.dumps({"name": call.name, "arguments": call.arguments})
                read = self._read_strictly(composed.encode(), tools)
                text = show_bytes(body)
                same = all(part in text for part in (call.name or "", *_spellings(call.arguments)))
        read = replace(read, raw=show_bytes(body))
        if same or read.status is not ParseStatus.OK:
            return read
        why = "the name or the arguments that were found are not what stands in the call"
        return replace(read, status=ParseStatus.BAD_ARGUMENTS, error=why)


def body_of(call: ReadCall) -> BodyKind:
    """What the body of a call is that the package wrote and read itself."""
    try:
        value = read_json(call.raw)
    except ValueError:
        return BodyKind.OTHER
    if value == {"name": call.name, "arguments": call.arguments}:
        return BodyKind.CALL
    return BodyKind.ARGUMENTS if value == call.arguments else BodyKind.OTHER


def _unread(body: bytes, status: ParseStatus) -> ToolCall:
    return ToolCall(id="", raw=show_bytes(body), status=status, error=_WHY[status])


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _spellings(value: Any) -> Iterator[str]:
    """How the values in `value` must stand in a body that is not JSON."""
    match value:
        case str():
            yield value
        case list():
            for item in cast("list[Any]", value):
                yield from _spellings(item)
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield key
                yield from _spellings(item)
        case bool() | None:
            return  # spelled in several ways
        case _:
            yield json.dumps(value)


def _exact(data: bytes, text: str, start: int) -> tuple[bytes, int]:
    """The bytes behind `text`, in which U+FFFD stands for bytes that are not UTF-8, with the white space around
    them, and where they end. Where they cannot be found, `text` itself."""
    if not text:
        return b"", start
    parts = (re.escape(part.encode("utf-8", "surrogatepass")) for part in text.split("\ufffd"))
    found = re.compile(b"\\s*" + b"[\x80-\xff]{1,4}?".join(parts) + b"\\s*").search(data, start)
    return (text.encode("utf-8", "surrogatepass"), start) if found is None else (found[0], found.end())
