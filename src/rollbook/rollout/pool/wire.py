"""What a worker process and its parent say to each other: tagged msgspec data in frames, never pickles.

A frame is its length (4 bytes, big-endian) and that many bytes of MessagePack. Either side closes the socket to end.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import msgspec

from rollbook.errors import ConfigError, RecordError, RollbookError, StoreError, UsageError, told
from rollbook.rollout.pool.local_worker import Result
from rollbook.rollout.pool.orders import Order
from rollbook.rollout.snapshot import Snapshot

__all__ = [
    "Beat",
    "Broken",
    "Cancel",
    "Done",
    "FromWorker",
    "Ready",
    "Run",
    "Setup",
    "Stop",
    "ToWorker",
    "read",
    "write",
]

MAX_FRAME = 1 << 30
_LENGTH = struct.Struct(">I")


class Setup(msgspec.Struct, frozen=True, tag="setup"):
    """First of all: what the worker is to be."""

    spec: dict[str, Any]
    """Plain data, for the process's own `open_worker`."""


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Carry out an order."""

    order: Order


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a rollout as ``cancelled``."""

    rollout: str


class Interrupt(msgspec.Struct, frozen=True, tag="interrupt"):
    """End a rollout as the settings say of a run that stops."""

    rollout: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Interrupt everything, keep it, and exit."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker takes orders: its policy answers and its part of the run is open."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """An order ended."""

    result: Result


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life, with what the worker says of itself."""

    snapshot: Snapshot


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The worker cannot go on."""

    kind: str
    """The name of its class, or of the nearest one above it that says what it stops."""
    text: str

    @classmethod
    def of(cls, error: RollbookError) -> Broken:
        """What an error is on the wire."""
        kind = next((each for each in type(error).__mro__ if each.__name__ in _KINDS), RollbookError)
        return cls(kind.__name__, told(error))

    def error(self, worker: str) -> RollbookError:
        """The error again."""
        return _KINDS.get(self.kind, RollbookError)(f"worker {worker}: {self.text}")


_KINDS = {each.__name__: each for each in (ConfigError, RecordError, StoreError, UsageError)}


ToWorker = Setup | Run | Cancel | Interrupt | Stop
FromWorker = Ready | Done | Beat | Broken

_encoder = msgspec.msgpack.Encoder()


def write(stream: asyncio.StreamWriter, message: ToWorker | FromWorker) -> None:
    """Queue one message; the stream sends it."""
    data = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)


async def read(stream: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """The next message; None where the other side is gone, be it in the middle of one. Raises `RecordError` for what
    is no message."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        if length > MAX_FRAME:
            raise RecordError(f"a message of {length} bytes")
        data = await stream.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise RecordError(f"not a message between worker and parent: {error}") from error
