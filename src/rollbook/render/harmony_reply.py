"""Read a sampled reply in the harmony form of gpt-oss, strictly and by token id.

A reply is a list of messages: a header, ``<|message|>``, a body, and an end (``<|end|>``, ``<|call|>``,
``<|return|>`` or ``<|endoftext|>``). The prompt has written ``<|start|>assistant`` of the first one. A marker is one
only by its id; the same spelling made of ordinary tokens is text, and inside a body so is every control token but
the ends and ``<|start|>``. ``<|start|>`` where no message has ended leaves that message open and begins the next.
What stands behind an end without ``<|start|>`` is content.

A header is the role ``assistant``, perhaps ``to=RECIPIENT``, ``<|channel|>``, the channel's name, perhaps
``to=RECIPIENT`` if the role had none, and perhaps a content type of one word, with or without ``<|constrain|>``.

Rules. Without a recipient, the channel ``analysis`` is reasoning; ``final``, ``commentary`` (a preamble) and a
missing channel are content; bodies of one kind are joined as they were sampled, with nothing between. With a
recipient it is an attempted call, wherever the recipient stands. Order of checks, the first that fails gives the
status: the end is ``<|call|>`` (`cut` where the generation limit ended the reply inside the call, `unclosed`
otherwise); the recipient is ``functions.NAME`` and the channel is ``commentary`` (`unknown_tool`); the body is read
as JSON arguments by the rules of `rollbook.render.calls`. A body that ends with ``<|call|>`` and names no recipient
is an attempt without a name (`missing_name`), except in ``analysis`` and ``final``. A header that is none (two
recipients, an unknown channel, further words, no ``<|message|>``) makes its whole message an attempt where it holds
``to=`` or has a body that ended with ``<|call|>`` (`missing_name` with that end, else `cut` or `unclosed`), and
content otherwise, spelled out from its ``<|start|>`` on; a message of another role is always such content. Nothing is
repaired and nothing is lost. A second call of the same turn is kept like the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from rollbook.render.calls import MAX_ERROR, CallReader, json_arguments, text_of
from rollbook.render.reply_message import reply_message
from rollbook.render.vocabulary import Vocabulary, show_bytes
from rollbook.trace.message import Message, ParseStatus, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["HarmonyReader", "Mark"]


class Mark(StrEnum):
    """The control tokens that a reply is cut at."""

    START = "<|start|>"
    CHANNEL = "<|channel|>"
    CONSTRAIN = "<|constrain|>"
    MESSAGE = "<|message|>"
    END = "<|end|>"
    CALL = "<|call|>"
    RETURN = "<|return|>"
    TEXT_END = "<|endoftext|>"


_ENDS = frozenset({Mark.END, Mark.CALL, Mark.RETURN, Mark.TEXT_END})
_CHANNEL = re.compile(rb"(analysis|commentary|final)(?=\s|$)")
_ROLE = re.compile(rb"assistant(?=\s|$)")
_CONTENT_TYPE = re.compile(rb"(?!functions\.)[\w./+-]+")
_TO = b"to="
_FUNCTIONS = "functions."


@dataclass(slots=True)
class _Section:
    """One message of a reply, as ids."""

    started: bool
    """True where its ``<|start|>`` stands in the reply."""
    header: list[int] = field(default_factory=list[int])
    body: list[int] | None = None
    """None where there is no ``<|message|>``."""
    end: Mark | None = None
    """What ended it; None for the end of the reply."""
    last: bool = False
    """True where the end is the reply's last token, which ends the turn and says nothing."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What a header says."""

    channel: str | None
    recipient: str | None


class _Malformed(ValueError):
    """The header is none, and why."""


class _Foreign(ValueError):
    """The header speaks for somebody else."""


class HarmonyReader:
    """Reads replies of one tokenizer. Stateless but for caches."""

    def __init__(self, vocabulary: Vocabulary, added: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._marks = {added[mark]: mark for mark in Mark}
        self._calls = CallReader()

    def parse(self, token_ids: list[int], tools: Sequence[ToolSpec], *, cut: bool, call_prefix: str) -> Message:
        """The reply as a message; `token_ids` with the token that ended the turn."""
        reply = _Reply()
        for part in self._sections(token_ids):
            if isinstance(part, bytes):
                reply.content.append(part)
            else:
                self._take(part, reply, tools, cut=cut, call_prefix=call_prefix)
        reasoning = None if reply.reasoning is None else b"".join(reply.reasoning)
        return reply_message(b"".join(reply.content), reasoning, reply.calls)

    def _sections(self, token_ids: list[int]) -> Iterator[_Section | bytes]:
        """The messages of the reply in order, and what stands between them."""
        section: _Section | None = _Section(started=False)
        ids, start = section.header, 0  # where the tokens from `start` on belong
        count = len(token_ids)
        for at, token in enumerate(token_ids):
            mark = self._marks.get(token)
            if mark is None:
                continue
            last = at + 1 == count
            if section is None:
                if mark is not Mark.START and not (last and mark in _ENDS):
                    continue
                if at > start:
                    yield self._vocabulary.join(token_ids[start:at])
                section = _Section(started=True) if mark is Mark.START else None
            elif mark is Mark.MESSAGE and section.body is None:
                ids.extend(token_ids[start:at])
                section.body = ids = []
                start = at + 1
                continue
            elif mark is Mark.START or mark in _ENDS:
                ids.extend(token_ids[start:at])
                section.end, section.last = mark, last
                yield section
                section = _Section(started=True) if mark is Mark.START else None
            else:
                continue
            ids, start = section.header if section else [], at + 1
        ids.extend(token_ids[start:])
        if section is not None:
            yield section
        elif ids:
            yield self._vocabulary.join(ids)

    def _take(
        self, section: _Section, reply: _Reply, tools: Sequence[ToolSpec], *, cut: bool, call_prefix: str
    ) -> None:
        call_id = f"{call_prefix}{len(reply.calls)}"
        try:
            header = self._header(section)
        except _Foreign:
            reply.content.append(self._spelled(section))
            return
        except _Malformed as why:
            self._take_malformed(section, str(why), reply, call_id, cut=cut)
            return
        if section.body is None:
            self._take_malformed(section, "the header has no <|message|>", reply, call_id, cut=cut)
            return
        body = self._vocabulary.join(section.body)
        if header.recipient is not None:
            status = None if section.end is Mark.CALL else _open_status(section, cut=cut)
            reply.calls.append(self._call(header.channel, header.recipient, body, status, tools, call_id))
        elif header.channel == "analysis":
            reply.reasoning = reply.reasoning or []
            reply.reasoning.append(body)
        elif section.end is Mark.CALL and header.channel != "final":
            reply.calls.append(_bad(call_id, ParseStatus.MISSING_NAME, "the header names no recipient (to=...)", body))
        else:
            reply.content.append(body)

    def _header(self, section: _Section) -> _Header:
        """Raises `_Malformed` and `_Foreign`."""
        pieces, marks = self._pieces(section.header)
        words = _behind_role(pieces[0], started=section.started)
        channel = None
        if marks not in ([], [Mark.CHANNEL], [Mark.CHANNEL, Mark.CONSTRAIN]):
            raise _Malformed("the header's <|channel|> and <|constrain|> are not in order")
        if marks:
            match = _CHANNEL.match(pieces[1])
            if match is None:
                raise _Malformed(f"there is no channel {show_bytes(pieces[1][:60])!r}")
            channel = match[0].decode()
            words += pieces[1][match.end() :].split()
        return _Header(channel, _recipient(words, pieces[2].split() if len(marks) > 1 else []))

    def _pieces(self, header: list[int]) -> tuple[list[bytes], list[Mark]]:
        """The header's text between its marks, and the marks."""
        places = [at for at, token in enumerate(header) if token in self._marks]
        starts, ends = [0, *(at + 1 for at in places)], [*places, len(header)]
        pieces = [self._vocabulary.join(header[a:b]) for a, b in zip(starts, ends, strict=True)]
        return pieces, [self._marks[header[at]] for at in places]

    def _take_malformed(self, section: _Section, why: str, reply: _Reply, call_id: str, *, cut: bool) -> None:
        spelled = self._spelled(section)
        called = section.end is Mark.CALL and section.body is not None
        if not called and _TO not in self._vocabulary.join(section.header):
            reply.content.append(spelled)
            return
        status = ParseStatus.MISSING_NAME if section.end is Mark.CALL else _open_status(section, cut=cut)
        reply.calls.append(_bad(call_id, status, _WHY.get(status, why), spelled))

    def _spelled(self, section: _Section) -> bytes:
        """The section as it stands in the reply, with its end unless that ends the turn."""
        parts = [Mark.START.encode() if section.started else b"", self._vocabulary.join(section.header)]
        if section.body is not None:
            parts += [Mark.MESSAGE.encode(), self._vocabulary.join(section.body)]
        if section.end is not None and section.end is not Mark.START and not section.last:
            parts.append(section.end.encode())
        return b"".join(parts)

    def _call(
        self,
        channel: str | None,
        recipient: str,
        body: bytes,
        status: ParseStatus | None,
        tools: Sequence[ToolSpec],
        call_id: str,
    ) -> ToolCall:
        """The call to `recipient`. `status`: why it is not complete; None where it is."""
        name = recipient.removeprefix(_FUNCTIONS)
        if status is not None:
            return _bad(call_id, status, _WHY[status], body, name)
        if name == recipient or channel != "commentary":
            where = f"the channel {channel}" if channel else "no channel"
            why = f"calls go to functions.NAME in the channel commentary, not to {recipient[:60]!r} in {where}"
            return _bad(call_id, ParseStatus.UNKNOWN_TOOL, why, body, name)
        return self._read(name, body, tools, call_id)

    def _read(self, name: str, body: bytes, tools: Sequence[ToolSpec], call_id: str) -> ToolCall:
        """A complete call: its name stands in the header, also where the body is not even text."""
        found = self._calls.read(lambda: json_arguments(text_of(body), name), body, tools, call_id)
        return msgspec.structs.replace(found, name=name)


@dataclass(slots=True)
class _Reply:
    """What has been read so far."""

    content: list[bytes] = field(default_factory=list[bytes])
    reasoning: list[bytes] | None = None
    calls: list[ToolCall] = field(default_factory=list[ToolCall])


def _behind_role(text: bytes, *, started: bool) -> list[bytes]:
    """The words behind the role, which the prompt has written where the section is not `started`."""
    if started:
        match = _ROLE.match(text)
        if match is None:
            raise _Foreign
        text = text[match.end() :]
    if text and not text[:1].isspace():
        raise _Malformed(f"the role goes on with {show_bytes(text[:60])!r}")
    words = text.split()
    if not all(word.startswith(_TO) for word in words):
        raise _Malformed("there are further words behind the role")
    return words


def _recipient(words: list[bytes], constrained: list[bytes]) -> str | None:
    """The one recipient, before the one content type. `constrained`: the words behind ``<|constrain|>``."""
    named = [word.removeprefix(_TO) for word in words if word.startswith(_TO)]
    kinds = [word for word in words if not word.startswith(_TO)]
    if kinds and words[-1].startswith(_TO):
        raise _Malformed("the header's recipient stands behind its content type")
    if len(named) > 1 or b"" in named:
        raise _Malformed("the header must name one recipient")
    kinds += constrained
    if len(kinds) > 1 or not all(map(_CONTENT_TYPE.fullmatch, kinds)):
        raise _Malformed("there are further words in the header")
    try:
        return named[0].decode() if named else None
    except UnicodeDecodeError as error:
        raise _Malformed("the header's recipient is not UTF-8") from error


_WHY = {
    ParseStatus.UNCLOSED: "the tool call was opened but never closed with <|call|>",
    ParseStatus.CUT: "the generation limit cut the tool call",
}


def _open_status(section: _Section, *, cut: bool) -> ParseStatus:
    """The status of a call that has not ended well."""
    return ParseStatus.CUT if cut and section.end is None else ParseStatus.UNCLOSED


def _bad(call_id: str, status: ParseStatus, why: str, body: bytes, name: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, raw=show_bytes(body), status=status, error=why[:MAX_ERROR])
