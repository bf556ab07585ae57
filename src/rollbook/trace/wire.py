"""The wire form: a trace as named sections of MessagePack, and back.

Rules: a section decodes on its own; numbers are little-endian; what a newer version added is refused by name, what
an older one lacked gets its default; everything is checked again when it is read. A *part* is what a trace gained
since a cursor, so a running rollout is stored turn by turn and the parts of one trace, in order, give it back.

Text may hold lone surrogates, which UTF-8 cannot, and a tool call's arguments whole numbers beyond 64 bits, which
MessagePack cannot: such a section is stored with ``wtf8`` set, each of its strings as the Latin-1 reading of its
surrogatepass-UTF-8 bytes, and each such number as U+0100 (no byte reads as that) and its decimal digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import ConfigError, NewerFormat, RecordError
from rollbook.trace.call import Call
from rollbook.trace.experts import decode_experts, encode_experts
from rollbook.trace.graph import MessageGraph
from rollbook.trace.node import COLUMN_KINDS, TABLE_WIDTH, NodeText
from rollbook.trace.record import Edge, TraceHead, TraceTail
from rollbook.trace.trace import Trace

__all__ = [
    "WIRE_VERSION",
    "Cursor",
    "Sections",
    "TokenPart",
    "as_column",
    "check_version",
    "decode_record",
    "decode_tokens",
    "decode_trace",
    "encode_head",
    "encode_part",
    "encode_record",
    "encode_tail",
]

WIRE_VERSION = 1
"""Raised when a reader of the older version could misread what is written."""

Sections = dict[str, bytes]
"""Section name -> bytes. Names: ``head``, ``text``, ``tokens``, ``calls``, ``tail``, and ``experts`` where there are
some."""

_DTYPES: dict[str, npt.DTypeLike] = {name: "<f4" if name == "logprobs" else "<i4" for name in COLUMN_KINDS}
_PAIRS = ("runs", "versions", "segments")

PART_SECTIONS = ("text", "tokens", "calls")
"""The sections that a part has; ``experts`` comes where its nodes have routed experts."""


class Cursor(msgspec.Struct, frozen=True):
    """How much of a trace was stored before."""

    nodes: int = 0
    calls: int = 0
    edges: int = 0

    @classmethod
    def end_of(cls, trace: Trace) -> Cursor:
        """The cursor behind everything that the trace holds now."""
        return cls(len(trace.graph), len(trace.calls), len(trace.edges))


START = Cursor()
"""The cursor of a trace of which nothing was stored."""


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section ``text``: messages from node `first` on."""

    first: int
    nodes: list[NodeText]


class TokenPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section ``tokens``: the node table and the columns, as little-endian arrays.

    `counts`: int32 (nodes, 9): parent, origin code, then the node's rows in tokens, runs, (sampled tokens), logprobs,
    rescored, versions, segments. Pairs are int32 (rows, 2); logprobs are float32; the rest is int32.
    """

    counts: memoryview
    tokens: memoryview
    runs: memoryview
    logprobs: memoryview
    rescored: memoryview
    versions: memoryview
    segments: memoryview


class CallPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section ``calls``: calls and edges from these places on."""

    first_call: int
    first_edge: int
    calls: list[Call]
    edges: list[Edge]


class _Wtf8(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section that holds lone surrogates or long numbers."""

    wtf8: Any


_Record = TypeVar("_Record")
_encode = msgspec.msgpack.Encoder().encode
decode_tokens = msgspec.msgpack.Decoder(TokenPart).decode
"""Section ``tokens``, its arrays not looked at yet; raises `msgspec.MsgspecError`."""


def encode_head(trace: Trace) -> bytes:
    """Section ``head``."""
    return encode_record(trace.head)


def encode_tail(trace: Trace) -> bytes:
    """Section ``tail``."""
    return encode_record(trace.tail)


def encode_part(trace: Trace, since: Cursor = START) -> Sections:
    """Sections ``text``, ``tokens``, ``calls`` and, where there are some, ``experts`` of what the trace gained since a
    cursor."""
    text = TextPart(first=since.nodes, nodes=trace.graph.texts(since.nodes))
    calls = CallPart(
        first_call=since.calls,
        first_edge=since.edges,
        calls=trace.calls[since.calls :],
        edges=trace.edges[since.edges :],
    )
    sections = {
        "text": encode_record(text),
        "tokens": _encode(_token_part(trace.graph, since.nodes)),
        "calls": encode_record(calls),
    }
    experts = encode_experts(trace.graph.experts, since.nodes)
    return sections if experts is None else sections | {"experts": experts}


def decode_trace(
    head: bytes, parts: Iterable[Mapping[str, bytes]], tail: bytes | None, *, sealed: bool = True
) -> Trace:
    """A trace from its head, its parts in order and its tail (None: it was still running).

    Raises `RecordError` where the sections are damaged, do not follow each other or break an invariant.
    """
    trace = Trace(_decode_text(head, TraceHead, "head"))
    for part in parts:
        _load_part(trace, part)
    if tail is not None:
        trace.tail = _decode_text(tail, TraceTail, "tail")
    if sealed and tail is not None:
        trace.seal()
    else:
        trace.check()
    return trace


def encode_record(value: msgspec.Struct | Sequence[msgspec.Struct]) -> bytes:
    """A record that is stored beside traces (a summary, annotations), whatever text it holds.

    Raises `RecordError` for what is not plain data, and for what would not read back: Python holds no field to its
    type, and what is stored is all that is left.
    """
    try:
        data = _encode_text(value)
        if isinstance(value, msgspec.Struct):
            _read_text(data, type(value))
        elif value:
            _read_text(data, list[type(value[0])])
    except (*_UNREADABLE, TypeError) as error:
        raise RecordError(f"cannot be stored as plain data: {error}") from error
    return data


def decode_record(data: bytes, kind: type[_Record], name: str) -> _Record:
    """The reverse of `encode_record`; raises `RecordError` where the data is damaged."""
    return _decode_text(data, kind, name)


def check_version(version: int, what: str) -> None:
    """Refuse what a newer version wrote."""
    if version > WIRE_VERSION:
        raise NewerFormat(
            f"{what} has format version {version}; this Rollbook reads versions up to {WIRE_VERSION}. Upgrade Rollbook."
        )


def _load_part(trace: Trace, part: Mapping[str, bytes]) -> None:
    missing = [name for name in PART_SECTIONS if name not in part]
    if missing:
        raise RecordError(f"a part lacks its sections {missing}")
    text = _decode_text(part["text"], TextPart, "text")
    calls = _decode_text(part["calls"], CallPart, "calls")
    if Cursor(text.first, calls.first_call, calls.first_edge) != Cursor.end_of(trace):
        raise RecordError(
            f"a part that begins at node {text.first} does not follow the {len(trace.graph)} nodes before it"
        )
    try:
        tokens = decode_tokens(part["tokens"])
        counts = np.frombuffer(tokens.counts, "<i4").reshape(-1, TABLE_WIDTH)
        raw: dict[str, memoryview] = msgspec.structs.asdict(tokens)
        columns = {name: as_column(name, raw[name]) for name in COLUMN_KINDS}
    except (msgspec.MsgspecError, ValueError) as error:
        raise RecordError(f"section 'tokens' is damaged: {error}") from error
    trace.graph.load(text.nodes, counts, columns)
    if "experts" in part:
        trace.graph.load_experts(decode_experts(part["experts"]))
    trace.calls += calls.calls
    trace.edges += calls.edges


def as_column(name: str, raw: bytes | memoryview) -> npt.NDArray[Any]:
    """The stored bytes of one column as its array; pairs have shape (rows, 2)."""
    array = np.frombuffer(raw, _DTYPES[name])
    return array.reshape(-1, 2) if name in _PAIRS else array


def _token_part(graph: MessageGraph, first: int) -> TokenPart:
    starts: list[int] = graph.table.view[first - 1].tolist() if first else [0] * TABLE_WIDTH
    arrays = {
        name: memoryview(graph.columns[name].view[starts[kind] :].astype(_DTYPES[name], copy=False).tobytes())
        for name, kind in COLUMN_KINDS.items()
    }
    return TokenPart(counts=memoryview(graph.counts(first).astype("<i4", copy=False).tobytes()), **arrays)


def _encode_text(value: msgspec.Struct | Sequence[msgspec.Struct]) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        return _encode(_Wtf8(_map_text(plain, to_wtf8=True)))


def _decode_text(data: bytes, kind: type[_Record], name: str) -> _Record:
    try:
        return _read_text(data, kind)
    except _UNREADABLE as error:
        raise RecordError(f"section '{name}' is damaged: {error}") from error


def _read_text(data: bytes, kind: type[_Record]) -> _Record:
    if data.startswith(_WTF8_MARK):
        plain = _map_text(msgspec.msgpack.decode(data, type=_Wtf8).wtf8, to_wtf8=False)
        return msgspec.convert(plain, kind, builtin_types=(bytes,))
    return msgspec.msgpack.decode(data, type=kind)


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, ConfigError)
_WTF8_MARK = _encode(_Wtf8(None))[:-1]
_LONG = "\u0100"


def _map_text(value: Any, *, to_wtf8: bool) -> Any:
    """`value` (plain data) with every text and long number in the other spelling."""
    match value:
        case str():
            return _to_wtf8(value) if to_wtf8 else _from_wtf8(value)
        case int() if not -(2**63) <= value < 2**64:
            return f"{_LONG}{value}"
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {_map_text(key, to_wtf8=to_wtf8): _map_text(item, to_wtf8=to_wtf8) for key, item in items}
        case list() | tuple():
            return [_map_text(item, to_wtf8=to_wtf8) for item in cast("list[Any]", value)]
        case _:
            return value


def _to_wtf8(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _from_wtf8(text: str) -> str | int:
    if text.startswith(_LONG):
        return int(text.removeprefix(_LONG))
    return text.encode("latin-1").decode("utf-8", "surrogatepass")
