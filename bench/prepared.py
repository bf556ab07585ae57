"""A fake engine that answers generation requests at once from bytes made before: ``python -m bench.prepared FILE``.

Rules. A reply is chosen by the request's length, so equal requests get equal replies. The prompt is not parsed: its ids
are counted, and echoed, as the bytes that they came in. Everything else (greetings, controls, requests that ask for
something unusual) goes to the full fake behind it, on the same connection. Nothing is logged and nothing goes wrong.
FILE holds ``{"replies": [{"token_ids": [...], "logprobs": [...]}]}``: a reply may have a ``text`` (SGLang gives it
back), and ``"named": true`` beside ``replies`` is for clients that look for ``token_id:N`` in vLLM's logprobs. The
options are those of ``rollbook.policy.testing``.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rollbook.policy.testing.__main__ import parser, read_json, serve_command
from rollbook.policy.testing.ask import Answer, Stop
from rollbook.policy.testing.faults import Dialect
from rollbook.policy.testing.latency import Times
from rollbook.policy.testing.llamacpp_replies import CompletionBody as LlamacppBody
from rollbook.policy.testing.llamacpp_replies import completion_reply as llamacpp_reply
from rollbook.policy.testing.server import Wrap
from rollbook.policy.testing.sglang_wire import GenerateBody as SglangBody
from rollbook.policy.testing.sglang_wire import generate_reply as sglang_reply
from rollbook.policy.testing.vllm_wire import GenerateBody as VllmBody
from rollbook.policy.testing.vllm_wire import SamplingParams
from rollbook.policy.testing.vllm_wire import generate_reply as vllm_reply

__all__ = ["Instant", "Prepared", "main", "prepare"]

_COUNT = 987654321
"""Stands for the prompt's count in a prepared reply; llama.cpp's is told twice."""
_MARK = str(_COUNT).encode()
_ECHO = b"[987654322]"
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
_PATHS = {
    Dialect.VLLM: (b"POST /inference/v1/generate ", rb'"token_ids": ?\[', rb'"logprobs": ?[01]\b'),
    Dialect.SGLANG: (b"POST /generate ", rb'"input_ids": ?\[', rb'"return_logprob": ?true'),
    Dialect.LLAMACPP: (b"POST /completion ", rb'"prompt": ?\[', rb'"n_probs": ?1\b'),
}
"""How a request begins, what stands before its ids, and what one asks for that is not unusual; as JSON of either
spacing."""
_LISTS = re.compile(rb'"top_logprobs_num": ?[1-9]')
"""What makes a request to SGLang unusual."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One reply, cut where the prompt's count and echo go."""

    parts: list[bytes]
    """Between them stands the count, and the echo where `echo` says so."""
    echo: int
    """Before which part the echo stands instead of the count; 0: nowhere."""

    def body(self, ids: bytes) -> bytes:
        """For a prompt of `ids`, in the bytes between its brackets."""
        count = str(ids.count(b",") + 1).encode()
        found = [self.parts[0]]
        for number, part in enumerate(self.parts[1:], 1):
            found.append(b"[" + ids + b"]" if number == self.echo else count)
            found.append(part)
        return b"".join(found)


def prepare(
    dialect: Dialect,
    replies: Sequence[tuple[Sequence[int], Sequence[float]]],
    texts: Sequence[str] | None = None,
    *,
    named: bool = False,
) -> list[Prepared]:
    """Replies of a dialect from (ids, logprobs); each ends by its last id.

    `texts`: of each reply, for clients of SGLang that read it. `named`: vLLM's entries also hold ``token_id:N``, for
    clients that look for it.
    """
    spoken = [""] * len(replies) if texts is None else texts
    return [
        _cut(_encoded(dialect, list(ids), list(logprobs), text, named))
        for (ids, logprobs), text in zip(replies, spoken, strict=True)
    ]


class Instant(asyncio.Protocol):
    """One connection."""

    def __init__(self, dialect: Dialect, prepared: list[Prepared], behind: Callable[[], asyncio.Protocol]) -> None:
        """`behind`: makes the protocol of the full fake."""
        self._start, key, usual = _PATHS[dialect]
        self._key, self._usual = re.compile(key), re.compile(usual)
        self._prepared = prepared
        self._behind = behind()
        self._seen = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._behind.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._seen and not data.startswith(self._start):
            self._behind.data_received(data)
            return
        self._seen += data
        head = self._seen.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _length(self._seen[:head])
        if len(self._seen) < head + 4 + length:
            return
        request = bytes(self._seen)
        self._seen.clear()
        found = self._key.search(request, head)
        if found is None or not self._usual.search(request, head) or _LISTS.search(request, head):
            self._behind.data_received(request)
            return
        ids = request[found.end() : request.find(b"]", found.end())]
        body = self._prepared[length % len(self._prepared)].body(ids)
        self._transport.write(b"%b%d\r\n\r\n%b" % (_OK, len(body), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()


def _length(head: bytearray) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _encoded(dialect: Dialect, ids: list[int], logprobs: list[float], text: str, named: bool) -> bytes:
    answer = Answer(
        prompt=[_COUNT + 1],
        token_ids=ids,
        logprobs=list[float | None](logprobs),
        top=[[] for _ in ids],
        stop=Stop.ID,
        matched=ids[-1],
        prompt_tokens=_COUNT,
        completion_tokens=len(ids),
        cached_tokens=0,
        spans=[("default", len(ids))],
        times=Times(0.0, 0.0, 0.0),
    )
    reply: dict[str, Any]
    match dialect:
        case Dialect.VLLM:
            asked = VllmBody(token_ids=[1], sampling_params=SamplingParams(logprobs=0), return_token_ids=True)
            reply = vllm_reply(answer, asked, name="instant", model="fake", stop_reason=None, details=True, timed=False)
            for row in reply["choices"][0]["logprobs"]["content"] if named else ():
                row["token"] = f"token_id:{row['token_id']}"
        case Dialect.SGLANG:
            wanted = SglangBody(input_ids=[1], return_logprob=True, return_prompt_token_ids=True)
            reply = sglang_reply(answer, wanted, rid="instant", label="default", text=text)
        case _:
            body = LlamacppBody(prompt=[1], n_probs=1, return_tokens=True)
            reply = llamacpp_reply(answer, body, model="fake", text="", full=False)
            reply["tokens_cached"] = len(ids)
    if "usage" in reply:
        reply["usage"]["total_tokens"] = _COUNT
    return msgspec.json.encode(reply)


def _cut(encoded: bytes) -> Prepared:
    before, echo, after = encoded.partition(_ECHO)
    parts = before.split(_MARK)
    if not echo:
        return Prepared(parts, 0)
    return Prepared([*parts, *after.split(_MARK)], len(parts))


class _Reply(msgspec.Struct):
    token_ids: list[int]
    logprobs: list[float]
    text: str = ""


class _Replies(msgspec.Struct):
    replies: list[_Reply]
    named: bool = False


def _before(asked: argparse.Namespace) -> Wrap:
    found, dialect = read_json(asked.replies, _Replies), Dialect(asked.dialect)
    replies = [(each.token_ids, each.logprobs) for each in found.replies]
    prepared = prepare(dialect, replies, [each.text for each in found.replies], named=found.named)
    return lambda behind: lambda: Instant(dialect, prepared, behind)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    line = parser()
    line.prog = "python -m bench.prepared"
    line.add_argument("replies", help="the prepared replies, as JSON or a file with them")
    return serve_command(line, arguments, _before)


if __name__ == "__main__":
    sys.exit(main())
