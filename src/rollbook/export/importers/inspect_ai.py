"""Inspect AI's logs: ``.eval`` archives and ``.json`` files, text without ids.

Source: inspect_ai 0.3.285, `inspect_ai/log/_log.py` (`EvalLog`, `EvalSample`, log version 2); in an archive
``header.json`` holds the log but its samples, and each ``samples/ID_epoch_N.json`` one of these (compressed with zstd).

Convention: a sample's `messages` are one path; a reply is the policy's own where its `source` says ``generate``, else
the harness's. Rows of one sample id, over the epochs, are a group. A score of one scorer that is a number, a truth
value or one of Inspect's letters (C 1, P 0.5, I and N 0) is the reward, with several scorers each is a part and
nothing says what their total is, so there is none; a score of no such value is no reward. Tools are taken from the
first model event that offers some.

Endings: a `limit` is ``truncated`` by its type (messages and turns, tokens, time, working time, context), an operator's
is ``error/cancelled``; an `error` is ``error/harness``; else the last stop reason decides: ``stop`` is
``submitted/final_answer``, ``max_tokens`` is ``length_cut/generation_limit``, ``model_length`` is
``truncated/context_overflow``. Anything else is not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from rollbook.errors import UsageError
from rollbook.export.importers.archive import Archive, is_archive, opened_archive
from rollbook.export.importers.book import UNKNOWN, Book
from rollbook.export.importers.messages import Content, chat_message, text_of, tool_specs
from rollbook.export.importers.rows import MOST_DOCUMENT, BadRow, Row, as_record, decode_json, opened
from rollbook.export.importers.spans import add_text
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Fault, Message, Role
from rollbook.trace.task import Task
from rollbook.trace.tools import ToolSpec
from rollbook.trace.trace import Trace

__all__ = ["rows", "traces"]

_LIMITS = {
    "message": Reason.MAX_TURNS,
    "turn": Reason.MAX_TURNS,
    "token": Reason.MAX_TOKENS,
    "time": Reason.DEADLINE,
    "working": Reason.DEADLINE,
    "context": Reason.CONTEXT_OVERFLOW,
    "operator": Reason.CANCELLED,
}
_STOPS = {
    "stop": Reason.FINAL_ANSWER,
    "max_tokens": Reason.GENERATION_LIMIT,
    "model_length": Reason.CONTEXT_OVERFLOW,
}
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    task: str = ""
    model: str = UNKNOWN


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    eval: _Spec


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a message beyond the chat format's."""

    content: Content = None
    source: str | None = None
    function: str | None = None
    error: dict[str, Any] | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    stop_reason: str | None = None


class _Output(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice] = []


class _Score(msgspec.Struct, frozen=True, kw_only=True):
    value: Any


class _Limit(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    reason: str | None = None


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    id: int | str
    epoch: int
    input: str | list[dict[str, Any]]
    messages: list[dict[str, Any]]
    target: str | list[str] | None = None
    output: _Output = _Output()
    scores: dict[str, _Score] | None = None
    error: _Error | None = None
    limit: _Limit | None = None
    events: list[dict[str, Any]] = []


def rows(path: Path) -> Iterator[Row]:
    """One row for each sample."""
    if is_archive(path):
        with opened_archive(path) as archive:
            header = _header(path, lambda: decode_json(archive.read("header.json")))
            for name in archive.names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield Row(name, _Member(archive, name, header))
        return
    with opened(path) as file:
        text = file.read(MOST_DOCUMENT + 1)
    if len(text) > MOST_DOCUMENT:
        raise UsageError(f"{path} is larger than {MOST_DOCUMENT} bytes; have Inspect write it in its 'eval' format")
    log = _plain_log(path, text)
    header = _header(path, lambda: log)
    for number, sample in enumerate(cast("list[Any]", log.get("samples") or ()), 1):
        yield Row(f"sample {number}", _Pair(header, sample))


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The trace of one sample."""
    header, found = cast("tuple[_Header, Any]", plain)
    sample = as_record(found, _Sample)
    said = [_message(each) for each in sample.messages]
    asked = sample.input
    head = book.head(
        task=Task(
            id=str(sample.id),
            prompt=asked if isinstance(asked, str) else tuple(chat_message(each) for each in asked),
            target=sample.target,
        ),
        group=[sample.id],
        policy=header.eval.model,
        environment=header.eval.task,
        tools=_tools(sample),
        source={"id": sample.id, "epoch": sample.epoch},
    )
    trace = Trace(head)
    for message, sampled in said:
        add_text(trace, message, sampled=sampled)
    trace.end(_ending(sample))
    _score(trace, sample.scores or {})
    yield trace


class _Member:
    """A sample in an archive, read when it is asked for."""

    def __init__(self, archive: Archive, name: str, header: _Header) -> None:
        self._archive, self._name, self._header = archive, name, header

    def __call__(self) -> Any:
        return self._header, decode_json(self._archive.read(self._name))


class _Pair:
    """A sample that is read already."""

    def __init__(self, header: _Header, sample: Any) -> None:
        self._pair = header, sample

    def __call__(self) -> Any:
        return self._pair


def _plain_log(path: Path, text: bytes) -> dict[str, Any]:
    try:
        log = decode_json(text)
    except BadRow as error:
        raise UsageError(f"{path} is no log of Inspect: {error}") from error
    if not isinstance(log, dict):
        raise UsageError(f"{path} is no log of Inspect: it is no JSON object")
    return cast("dict[str, Any]", log)


def _header(path: Path, read: Any) -> _Header:
    try:
        return as_record(read(), _Header)
    except BadRow as error:
        raise UsageError(f"{path} is no log of Inspect: {error}") from error


def _message(plain: dict[str, Any]) -> tuple[Message, bool]:
    """A message, and whether the policy sampled it."""
    said = as_record(plain, _Said)
    flat = {key: value for key, value in plain.items() if key not in ("content", "function", "error")}
    message = chat_message({**flat, "content": text_of(said.content)})
    reasoning = _reasoning(said.content)
    message = msgspec.structs.replace(
        message,
        reasoning=reasoning,
        name=said.function if message.role is Role.TOOL else None,
        fault=Fault.UNKNOWN if said.error is not None and message.role is Role.TOOL else None,
    )
    return message, message.role is Role.ASSISTANT and said.source == "generate"


def _reasoning(content: Content) -> str | None:
    if not isinstance(content, list):
        return None
    parts = [cast("dict[str, Any]", part) for part in content if isinstance(part, dict)]
    texts = [part.get("reasoning") for part in parts if part.get("type") == "reasoning"]
    found = [text for text in texts if isinstance(text, str)]
    return "".join(found) if found else None


def _tools(sample: _Sample) -> tuple[ToolSpec, ...]:
    offered = (event.get("tools") for event in sample.events if event.get("event") == "model")
    found: Any = next((tools for tools in offered if tools), None)
    return tool_specs(cast("list[Any]", found)) if isinstance(found, list) else ()


def _ending(sample: _Sample) -> Ending:
    if sample.error is not None:
        return Ending(Reason.HARNESS, sample.error.message[:1000])
    if sample.limit is not None:
        reason = _LIMITS.get(sample.limit.type, Reason.NOT_RECORDED)
        return Ending(reason, sample.limit.reason or f"limit {sample.limit.type}")
    stop = sample.output.choices[0].stop_reason if sample.output.choices else None
    return Ending(_STOPS.get(stop or "", Reason.NOT_RECORDED), f"stop reason {stop}" if stop else "nothing is recorded")


def _score(trace: Trace, scores: dict[str, _Score]) -> None:
    values = {name: _number(score.value) for name, score in scores.items()}
    parts = {name: value for name, value in values.items() if value is not None}
    if not parts:
        return
    trace.score(next(iter(parts.values())) if len(values) == 1 else None, parts)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _LETTERS.get(value)
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    return None
