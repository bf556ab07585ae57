"""Read a sampled reply in the Hermes form: ``<think>`` reasoning, text, and JSON tool calls between ``<tool_call>``
markers.

A marker that the tokenizer has as an added token is a marker only by that id; the same spelling made of ordinary
tokens is text. A marker that the tokenizer does not have is found in the text, where it always wins: it cannot be
quoted.

Rules. Every attempt is kept, in the order of the text, and none is repaired. Outside calls, ``<think>`` opens
reasoning and ``</think>`` closes it; a call inside reasoning is only counted (`inside_reasoning`), and the
reasoning keeps its spelling. Inside a call the reasoning markers are text; another ``<tool_call>`` leaves the first
unclosed and opens the next. Markers that close what is not open are text. A call that the end of the reply leaves
open is `cut` where the generation limit ended it and `unclosed` otherwise; complete calls of a cut reply keep their
status, and it is for the loop not to run them. Content is what stands outside calls and reasoning, exactly as
sampled, white space too, less the end-of-turn token; reasoning likewise. Where content is not UTF-8 it shows
U+FFFD, and `raw` holds the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from rollbook.render.calls import CallReader
from rollbook.render.vocabulary import Vocabulary, show_bytes
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["HermesParser", "Marker", "last_opens_reasoning"]


class Marker(StrEnum):
    """What a reply is cut at."""

    CALL = "<tool_call>"
    CALL_END = "</tool_call>"
    THINK = "<think>"
    THINK_END = "</think>"


_Part = bytes | Marker


class HermesParser:
    """Parses replies of one tokenizer. Stateless but for caches."""

    def __init__(self, vocabulary: Vocabulary, added: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._reader = CallReader()
        self._by_id = {added[marker]: marker for marker in Marker if marker in added}
        spelled = [re.escape(marker) for marker in Marker if marker not in added]
        self._by_text = re.compile(f"({'|'.join(spelled)})".encode()) if spelled else None

    def parse(
        self, token_ids: list[int], tools: Sequence[ToolSpec], *, inside_reasoning: bool, cut: bool, call_prefix: str
    ) -> Message:
        """The reply as a message; `token_ids` without the end-of-turn token."""
        reply = _Reply(inside_reasoning=inside_reasoning)
        for part in self._parts(token_ids):
            reply.take(part)
        reply.close(ParseStatus.CUT if cut else ParseStatus.UNCLOSED)
        calls = tuple(self._call(attempt, tools, f"{call_prefix}{n}") for n, attempt in enumerate(reply.calls))
        content = b"".join(reply.content)
        text = show_bytes(content)
        return Message(
            role=Role.ASSISTANT,
            content=text,
            reasoning=None if reply.reasoning is None else show_bytes(b"".join(reply.reasoning)),
            tool_calls=calls,
            raw=None if "\ufffd" not in text or text.encode() == content else content,
        )

    def _call(self, attempt: tuple[bytes, ParseStatus], tools: Sequence[ToolSpec], call_id: str) -> ToolCall:
        body, status = attempt
        if status is ParseStatus.OK:
            return self._reader.read(body, tools, call_id)
        return ToolCall(id=call_id, raw=show_bytes(body), status=status, error=_WHY[status])

    def _parts(self, token_ids: list[int]) -> Iterator[_Part]:
        """The reply as bytes and markers, in order."""
        start = 0
        for at, token in enumerate(token_ids):
            marker = self._by_id.get(token)
            if marker is not None:
                yield from self._spelled(token_ids[start:at])
                yield marker
                start = at + 1
        yield from self._spelled(token_ids[start:])

    def _spelled(self, token_ids: list[int]) -> Iterator[_Part]:
        data = self._vocabulary.join(token_ids)
        if self._by_text is None:
            yield data
            return
        for place, part in enumerate(self._by_text.split(data)):
            yield Marker(part.decode()) if place % 2 else part


_WHY = {
    ParseStatus.UNCLOSED: "the tool call was opened but never closed with </tool_call>",
    ParseStatus.CUT: "the generation limit cut the tool call",
    ParseStatus.INSIDE_REASONING: "the tool call stands inside reasoning",
}


class _Reply:
    """What has been read so far: where we are, and what was found."""

    __slots__ = ("_body", "_thinking", "calls", "content", "reasoning")

    def __init__(self, *, inside_reasoning: bool) -> None:
        self.content: list[bytes] = []
        self.reasoning: list[bytes] | None = [] if inside_reasoning else None
        self.calls: list[tuple[bytes, ParseStatus]] = []
        """Body and status; `OK` stands for a closed body that is still to be read."""
        self._thinking = inside_reasoning
        self._body: list[bytes] | None = None

    def take(self, part: _Part) -> None:
        """Read one more part."""
        match part:
            case Marker.CALL:
                self.close(ParseStatus.UNCLOSED)
                self._keep_in_reasoning(part)
                self._body = []
            case Marker.CALL_END if self._body is not None:
                self.close(ParseStatus.OK)
                self._keep_in_reasoning(part)
            case Marker.THINK if not self._thinking and self._body is None:
                self._thinking = True
                self.reasoning = [] if self.reasoning is None else self.reasoning
            case Marker.THINK_END if self._thinking:
                self.close(ParseStatus.OK)
                self._thinking = False
            case _:
                self._add(part.encode() if isinstance(part, Marker) else part)

    def close(self, status: ParseStatus) -> None:
        """Keep the open call, where there is one, with `status`."""
        if self._body is not None:
            kept = ParseStatus.INSIDE_REASONING if self._thinking else status
            self.calls.append((b"".join(self._body), kept))
            self._body = None

    def _keep_in_reasoning(self, marker: Marker) -> None:
        if self._thinking and self.reasoning is not None:
            self.reasoning.append(marker.encode())

    def _add(self, data: bytes) -> None:
        if self._body is not None:
            self._body.append(data)
        if self._thinking and self.reasoning is not None:
            self.reasoning.append(data)
        elif self._body is None:
            self.content.append(data)


def last_opens_reasoning(text: str) -> bool:
    """True where `text` ends inside a reasoning block."""
    return text.rfind(Marker.THINK) > text.rfind(Marker.THINK_END)
