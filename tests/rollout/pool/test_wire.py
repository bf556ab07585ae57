"""The wire between a worker and its parent: each message comes over as it was, however it is cut up, and what is no
message is refused."""

from __future__ import annotations

import asyncio
import socket
import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import (
    ConfigError,
    ModelError,
    RecordError,
    RollbookError,
    RunLocked,
    StoreError,
    UsageError,
)
from rollbook.rollout.pool import Order, Result
from rollbook.rollout.pool.wire import (
    MAX_FRAME,
    Beat,
    Broken,
    Cancel,
    Done,
    FromWorker,
    Interrupt,
    Ready,
    Run,
    Setup,
    Stop,
    ToWorker,
    read,
    write,
)
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import Reason
from tests.rollout.pool.pooled import TASK, outcome

ORDER = Order(group="g", task=TASK, member=1, attempt=2, earlier=(Reason.SANDBOX_LOST,), retries_left=3)
TO_WORKER: list[ToWorker] = [Setup({"a": [1, None]}), Run(ORDER), Cancel("g-1"), Interrupt("g-1"), Stop()]
FROM_WORKER: list[FromWorker] = [
    Ready(),
    Done(Result(rollout="g-1.2", outcome=outcome(ORDER), retries_left=1)),
    Beat(Snapshot(started=3, endings={Reason.FINAL_ANSWER: 2})),
    Broken("StoreError", "no space"),
]
to_worker, from_worker = msgspec.msgpack.Decoder(ToWorker), msgspec.msgpack.Decoder(FromWorker)


def frame(message: ToWorker | FromWorker) -> bytes:
    data = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(data)) + data


async def all_of(chunks: list[bytes], decoder: msgspec.msgpack.Decoder[object]) -> list[object]:
    """What is read where these bytes come, and then the end."""
    stream, found = asyncio.StreamReader(), list[object]()
    for chunk in chunks:
        stream.feed_data(chunk)
    stream.feed_eof()
    while (message := await read(stream, decoder)) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize(("messages", "decoder"), [(TO_WORKER, to_worker), (FROM_WORKER, from_worker)])
def test_each_message_comes_over_as_it_was(messages: list[ToWorker | FromWorker], decoder: object) -> None:
    async def main() -> list[object]:
        ours, theirs = socket.socketpair()
        reader, other = await asyncio.open_connection(sock=theirs)
        _, writer = await asyncio.open_connection(sock=ours)
        for message in messages:
            write(writer, message)
        writer.close()
        await writer.wait_closed()
        found = list[object]()
        while (said := await read(reader, decoder)) is not None:  # type: ignore[arg-type]
            found.append(said)
        other.close()
        await other.wait_closed()
        return found

    assert asyncio.run(main()) == messages


@given(st.lists(st.sampled_from(TO_WORKER), max_size=6), st.data())
def test_however_they_are_cut_up_whole_messages_are_read_and_a_broken_one_is_the_end(
    messages: list[ToWorker], data: st.DataObject
) -> None:
    frames = [frame(message) for message in messages]
    together = b"".join(frames)
    end = data.draw(st.integers(0, len(together)))
    cuts = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=8))})
    chunks = [together[start:stop] for start, stop in pairwise(cuts)]
    whole = sum(len(b"".join(frames[: at + 1])) <= end for at in range(len(frames)))
    assert asyncio.run(all_of(chunks, to_worker)) == messages[:whole]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x03no!",
        frame(Ready()),
        frame(Stop())[:-1] + b"\xff",
        struct.pack(">I", MAX_FRAME + 1),
    ],
    ids=["no data", "another's message", "damaged", "too long"],
)
def test_what_is_no_message_is_refused(sent: bytes) -> None:
    with pytest.raises(RecordError, match="message"):
        asyncio.run(all_of([sent, b"\x00" * 8], to_worker))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigError("x"), ConfigError),
        (StoreError("x"), StoreError),
        (RecordError("x"), RecordError),
        (UsageError("x"), UsageError),
        (ModelError("x"), UsageError),
        (RunLocked("x"), StoreError),
        (RollbookError("x"), RollbookError),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_error_comes_over_as_the_nearest_class_that_says_what_it_stops(
    error: RollbookError, kind: type[RollbookError]
) -> None:
    again = Broken.of(error).error("w3")
    assert type(again) is kind
    assert str(again) == "worker w3: x"


def test_what_is_noted_on_an_error_comes_over_with_it() -> None:
    error = StoreError("no space")
    error.add_note("and the report failed too")
    assert str(Broken.of(error).error("w3")) == "worker w3: no space\nand the report failed too"
