"""Read a sampled reply strictly: reasoning, content, and every attempted tool call, in any family's form.

A marker that the tokenizer has as an added token is a marker only by that id; the same spelling made of ordinary
tokens is text. A marker that the tokenizer does not have is found in the text, where it cannot be quoted: it always
wins, but for two places where a call could hide in a value: markers around calls are text inside an open value of a
form that writes values as raw text, and, where calls need no quotes of their own, so are an opening inside an open
JSON string, what belongs to it, and its closing. Reasoning markers of other families count only where the tokenizer
has both of a pair.

Rules. Every attempt is kept, in the order of the text, and none is repaired. Outside calls an opening reasoning
marker opens reasoning, and its own closing marker ends it (where the prompt opened it, any does). A call inside
reasoning is only counted (`inside_reasoning`), and the reasoning keeps its spelling; the end of reasoning ends the
call. Inside a call the reasoning markers are text; another opening ends the first call: `unclosed` where the family
has a closing marker. Markers that close what is not open are text. A call that the end of the reply leaves open is
`cut` where the generation limit ended it; otherwise it is `unclosed`, but complete in a family without a closing
marker, where the end of the turn closes it. Complete calls of a cut reply keep their status, and it is for the loop
not to run them.

In a family with section markers, calls stand inside a section; one outside is malformed (`invalid_json`). White space
between the calls of a section is not content; any other text there is. A family without markers reads the whole of
the content (the family says when). Content is what stands outside calls and reasoning, exactly as sampled, white
space too, less the end-of-turn token; reasoning likewise. Where content is not UTF-8 it shows U+FFFD, and `raw`
holds the bytes.

Ids of calls that were read are the policy's own where it wrote one; a call that stays open, stands in reasoning or out
of its section has one of ours, so that a draft cannot take the id of the call that follows it. An id that stands
twice in one reply makes the second call malformed (`invalid_json`, if nothing else was wrong), under an id of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from rollbook.errors import ConfigError
from rollbook.render.calls import CallReader
from rollbook.render.formats.families import FORMS, REASONING, CallFormat
from rollbook.render.formats.form import Body, Form, Found, Part, malformed, raw_of, refused
from rollbook.render.reply_message import reply_message
from rollbook.render.vocabulary import Vocabulary, show_bytes
from rollbook.trace.message import Message, ParseStatus, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["ReplyReader"]

_QUOTE = re.compile(rb'\\.|"', re.DOTALL)


class ReplyReader:
    """Reads replies of one family with one tokenizer. Stateless but for caches."""

    def __init__(
        self,
        format: CallFormat,  # noqa: A002 (no other word says it)
        vocabulary: Vocabulary | None,
        added: Mapping[str, int],
    ) -> None:
        form = FORMS[format]
        self._form = form
        self._vocabulary = vocabulary
        self._calls = CallReader()
        by_id = {pair for pair in REASONING if pair[0] in added and pair[1] in added}
        self._by_id = _Markers.of(form, by_id | set(form.reasoning), added)
        self._by_text = _Markers.of(form, set(form.reasoning), {})

    def parse(
        self, token_ids: list[int], tools: Sequence[ToolSpec], *, inside_reasoning: bool, cut: bool, call_prefix: str
    ) -> Message:
        """The reply as a message; `token_ids` without the end-of-turn token."""
        if self._vocabulary is None:
            raise ConfigError("token ids cannot be read without a vocabulary; pass one, or read the text")
        parts = _parts_of_ids(token_ids, self._vocabulary, self._by_id)
        reply = _Reply(self._form, self._by_id, inside_reasoning=inside_reasoning)
        return self._message(reply, parts, tools, cut=cut, call_prefix=call_prefix)

    def parse_text(
        self, text: str, tools: Sequence[ToolSpec], *, inside_reasoning: bool, cut: bool, call_prefix: str
    ) -> Message:
        """The same for text alone: every spelling of a marker is one."""
        parts = self._by_text.split(text.encode("utf-8", "surrogatepass"))
        reply = _Reply(self._form, self._by_text, inside_reasoning=inside_reasoning)
        return self._message(reply, parts, tools, cut=cut, call_prefix=call_prefix)

    def _message(
        self, reply: _Reply, parts: Iterator[Part], tools: Sequence[ToolSpec], *, cut: bool, call_prefix: str
    ) -> Message:
        for part in parts:
            reply.take(part)
        reply.finish({tool.name for tool in tools}, cut=cut)
        reasoning = None if reply.reasoning is None else b"".join(reply.reasoning)
        return reply_message(b"".join(reply.content), reasoning, self._read(reply.calls, tools, call_prefix))

    def _read(self, calls: list[_Call], tools: Sequence[ToolSpec], prefix: str) -> Iterator[ToolCall]:
        seen: set[str] = set()
        number = 0
        for call in calls:
            for found in self._found(call):
                own = self._form.call_id(prefix, number)
                number += 1
                if call.status is ParseStatus.OK:
                    made = self._calls.read(found.read, found.raw, tools, own)
                else:
                    why = _why(call.status, self._form)
                    made = ToolCall(id=own, raw=show_bytes(found.raw), status=call.status, error=why)
                yield made if made.id not in seen else _twice(made, own)
                seen.add(made.id)

    def _found(self, call: _Call) -> list[Found]:
        if call.status is ParseStatus.OK and not call.misplaced:
            return self._form.find(call.body)
        outside = malformed("it stands outside the markers of a section of calls")
        return [refused(raw_of(call.body), outside)]


def _twice(call: ToolCall, own: str) -> ToolCall:
    if call.status is not ParseStatus.OK:
        return msgspec.structs.replace(call, id=own)
    why = f"the tool call is malformed: the id {call.id[:60]!r} stands twice in the reply"
    return msgspec.structs.replace(call, id=own, status=ParseStatus.INVALID_JSON, error=why)


def _why(status: ParseStatus, form: Form) -> str:
    match status:
        case ParseStatus.CUT:
            return "the generation limit cut the tool call"
        case ParseStatus.INSIDE_REASONING:
            return "the tool call stands inside reasoning"
        case _:
            return f"the tool call was opened but never closed with {form.closes}"


@dataclass(frozen=True, slots=True)
class _Markers:
    """The markers of one family, as one tokenizer has them."""

    reasoning: Mapping[str, str]
    """Closing markers by opening ones."""
    ids: Mapping[int, str]
    text: re.Pattern[bytes] | None
    spelled: frozenset[str]
    """Markers that are found in the text."""
    quotable: frozenset[str]
    """Those of them that stand around calls."""

    @classmethod
    def of(cls, form: Form, pairs: set[tuple[str, str]], added: Mapping[str, int]) -> _Markers:
        calls = {marker for marker in (form.opens, form.closes, *(form.section or ())) if marker}
        markers = {marker for pair in pairs for marker in pair} | calls | set(form.inner)
        spelled = sorted((marker for marker in markers if marker not in added), key=len, reverse=True)
        pattern = b"|".join(re.escape(marker.encode()) for marker in spelled)
        return cls(
            reasoning=dict(pairs),
            ids={added[marker]: marker for marker in markers if marker in added},
            text=re.compile(b"(" + pattern + b")") if spelled else None,
            spelled=frozenset(spelled),
            quotable=frozenset(calls.intersection(spelled)),
        )

    def split(self, data: bytes) -> Iterator[Part]:
        """Bytes as bytes and markers, in order."""
        if self.text is None:
            yield data
            return
        for place, part in enumerate(self.text.split(data)):
            if part:
                yield part.decode() if place % 2 else part


def _parts_of_ids(token_ids: list[int], vocabulary: Vocabulary, markers: _Markers) -> Iterator[Part]:
    start = 0
    if not markers.ids.keys().isdisjoint(token_ids):
        for at in [at for at, token in enumerate(token_ids) if token in markers.ids]:
            yield from markers.split(vocabulary.join(token_ids[start:at]))
            yield markers.ids[token_ids[at]]
            start = at + 1
    yield from markers.split(vocabulary.join(token_ids[start:]))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as it was found."""

    body: Body
    status: ParseStatus
    """`OK` stands for a closed body that is still to be read."""
    misplaced: bool
    """True where it stands outside the section that its family has."""


class _Reply:
    """What has been read so far: where we are, and what was found."""

    __slots__ = (
        "_body",
        "_form",
        "_in_section",
        "_marked",
        "_markers",
        "_open",
        "_quoted",
        "_until",
        "calls",
        "content",
        "reasoning",
    )

    def __init__(self, form: Form, markers: _Markers, *, inside_reasoning: bool) -> None:
        self.content: list[bytes] = []
        self.reasoning: list[bytes] | None = [] if inside_reasoning else None
        self.calls: list[_Call] = []
        self._form = form
        self._markers = markers
        self._until: frozenset[str] = frozenset(markers.reasoning.values() if inside_reasoning else ())
        """What ends reasoning; empty outside it."""
        self._body: Body | None = None
        self._open = 0
        """Values of raw text that are open in the body, or calls that a string in it quotes."""
        self._quoted = False
        """True inside a JSON string of the body; known only where that matters."""
        self._in_section = False
        self._marked = False
        """True where a call outside reasoning was opened by a marker."""

    def take(self, part: Part) -> None:
        """Read one more part."""
        form = self._form
        match part:
            case bytes():
                self._add(part)
            case _ if self._quotes(part):
                self._add(part.encode())
            case form.opens:
                self._opened(part)
            case _ if part == form.closes and self._body is not None:
                self._close(ParseStatus.OK)
                self._keep_in_reasoning(part)
            case _ if part in form.inner and self._body is not None:
                self._body.append(part)
                self._open = max(0, self._open + form.weight(part))
                self._keep_in_reasoning(part)
            case _ if form.section is not None and part in form.section and not self._until:
                self._section(part, form.section)
            case _ if part in self._markers.reasoning and not self._until and self._body is None:
                self._until = frozenset((self._markers.reasoning[part],))
                self.reasoning = [] if self.reasoning is None else self.reasoning
            case _ if part in self._until:
                self._close(ParseStatus.OK)
                self._until = frozenset()
            case _:
                self._add(part.encode())

    def _quotes(self, part: str) -> bool:
        """True where a marker that was found in the text is part of a value."""
        form = self._form
        if part in self._markers.quotable and self._open:
            self._open -= form.quotes and part == form.closes
            return True
        if not self._quoted or part == form.closes or part not in self._markers.spelled:
            return False
        self._open += part == form.opens and form.closes is not None
        return part in form.inner or part in self._markers.quotable

    def finish(self, names: Set[str], *, cut: bool) -> None:
        """The reply ends here."""
        ended = ParseStatus.OK if self._form.closes is None else ParseStatus.UNCLOSED
        self._close(ParseStatus.CUT if cut else ended)
        if self._marked or self._until:
            return
        content = b"".join(self.content)
        if self._form.unmarked(content, names):
            self.content = []
            self.calls.append(_Call([content], ParseStatus.CUT if cut else ParseStatus.OK, misplaced=False))

    def _opened(self, marker: str) -> None:
        self._close(ParseStatus.OK if self._form.closes is None else ParseStatus.UNCLOSED)
        self._keep_in_reasoning(marker)
        self._marked = self._marked or not self._until
        self._body = []

    def _close(self, status: ParseStatus) -> None:
        """Keep the open call, where there is one, with `status`."""
        if self._body is not None:
            kept = ParseStatus.INSIDE_REASONING if self._until else status
            misplaced = self._form.section is not None and not self._in_section
            self.calls.append(_Call(self._body, kept, misplaced))
            self._body = None
            self._open, self._quoted = 0, False

    def _section(self, marker: str, section: tuple[str, str]) -> None:
        self._close(ParseStatus.UNCLOSED)
        opens = marker == section[0]
        if self._in_section == opens:
            self._add(marker.encode())
        self._in_section = opens

    def _keep_in_reasoning(self, marker: str) -> None:
        if self._until and self.reasoning is not None:
            self.reasoning.append(marker.encode())

    def _add(self, data: bytes) -> None:
        if self._body is not None:
            self._body.append(data)
            if self._markers.quotable:
                self._open = max(0, self._open + self._form.weight(data))
                self._quoted ^= self._form.quotes and _QUOTE.findall(data).count(b'"') % 2 == 1
        if self._until and self.reasoning is not None:
            self.reasoning.append(data)
        elif self._body is None and not (self._in_section and data.isspace()):
            self.content.append(data)
