"""Our rollouts beside TRL's `AsyncGRPOTrainer`: the object to give as its `rollout_worker` (TRL 1.16).

    worker = RolloutWorker(RunConfig(environment="calculator", policy="vllm:http://..."), "runs/first", rounds=None)
    AsyncGRPOTrainer(model, reward_funcs=[], rollout_worker=worker, ...)

It runs `open_stream` in a thread with an event loop of its own. A group's rows are put into `rollout_buffer` as the
group closes, with our advantages (`rollbook.export.doors.trl_async` has the fields); while the buffer is full no
further group is taken, and so none begins. TRL gives the engine its weights itself; it tells us the version, and the
stream drops what its bound does not allow any more. An engine that tells no versions has its rows stamped with the
trainer's version at the time when the group was taken, and `StalenessBound` says what becomes of such ones.

`check_health` raises what stopped the stream, also where the stream is over and the trainer still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rollbook.errors import ConfigError, UsageError
from rollbook.export.doors.trl_async import records
from rollbook.rollout import StalenessBound
from rollbook.run.config import RunConfig
from rollbook.run.live_run import RunOptions
from rollbook.run.stream import ClosedGroup, open_stream
from rollbook.trace import Message, Trace

__all__ = ["RolloutWorker"]

_POLL = 0.02
"""Seconds between two looks at a buffer that is full."""
_PATIENCE = 60.0
"""Seconds that a stop may take: rollouts in flight are recorded as interrupted."""


class RolloutWorker:
    """TRL's `RolloutWorkerProtocol` over `open_stream`."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path | str,
        *,
        queue_size: int = 16,
        buffer: int = 1024,
        bound: StalenessBound | None = None,
        rounds: int | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """`queue_size`: the most groups that run or wait. `buffer`: the most rows that wait for the trainer; above it
        no group is taken. `bound`, `rounds`, `options`: as in `open_stream`; TRL goes through its data for as long as
        it trains, so None, for ever, is the default for `rounds`."""
        if buffer < 1:
            raise ConfigError(f"a buffer holds at least 1 row, not {buffer}")
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(buffer)
        self.metrics_queue: queue.Queue[dict[str, float | tuple[float, float]]] = queue.Queue(4096)
        self._config, self._folder = config, folder
        self._queue_size, self._bound, self._rounds, self._options = queue_size, bound, rounds, options
        self._version = 0
        self._moved = time.monotonic()
        self._failure: BaseException | None = None
        self._over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin. Raises `UsageError` where it has begun already."""
        if self._thread is not None:
            raise UsageError("this worker has been started before: make another one")
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the stream: what runs is recorded as interrupted. Calling it twice, or before `start`, does nothing."""
        if self._thread is None:
            return
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(_PATIENCE)

    def update_model_version(self, model_version: int) -> None:
        """The trainer is at this version now, and the engine has its weights."""
        self._version = model_version
        loop, told = self._loop, self._told
        if loop is not None and told is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(told.set)

    def check_health(self, stale_after_s: float) -> None:
        """Raises `UsageError` where the stream is over or nothing moved for so long, and what stopped it otherwise."""
        if self._failure is not None:
            raise self._failure
        if self._over and self.rollout_buffer.empty():
            raise UsageError("the stream is over and the trainer waits for more: give more `rounds`, or None for ever")
        waited = time.monotonic() - self._moved
        if not self._over and waited > stale_after_s:
            raise UsageError(f"no group closed for {waited:.0f} s: see `rollbook top {self._folder}`")

    def _work(self) -> None:
        try:
            asyncio.run(self._stream())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 (told by `check_health`, in the trainer's thread)
            self._failure = error
        finally:
            self._over = True

    async def _stream(self) -> None:
        self._told = asyncio.Event()
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with open_stream(
            self._config,
            self._folder,
            queue=self._queue_size,
            bound=self._bound,
            rounds=self._rounds,
            version=self._version,
            **self._options,
        ) as stream:
            following = asyncio.create_task(self._follow(stream))
            try:
                number = 0
                async for group in stream:
                    await self._put(group, number)
                    number += 1
            finally:
                following.cancel()

    async def _follow(self, stream: Any) -> None:
        """Tell the stream of each later version."""
        told = self._told
        while told is not None:
            told.clear()
            if self._version > stream.version:
                stream.advance(self._version)
            await told.wait()

    async def _put(self, group: ClosedGroup, number: int) -> None:
        for trace in group.traces():
            for row in _rows(group, trace, number):
                while True:
                    row.enqueued_at = time.time()
                    try:
                        self.rollout_buffer.put_nowait(row)
                    except queue.Full:
                        self._moved = time.monotonic()  # it is the trainer that is waited for
                        await asyncio.sleep(_POLL)
                    else:
                        break
        self._moved = time.monotonic()
        with contextlib.suppress(queue.Full):  # numbers for people never hold rollouts up
            self.metrics_queue.put_nowait(_metrics(group))


def _metrics(group: ClosedGroup) -> dict[str, float | tuple[float, float]]:
    return {
        "rollout/queued_s": group.queued,
        "rollout/used": (float(len(group.values)), float(len(group.outcomes))),
        "rollout/zero_variance": (float(group.zero_variance), 1.0),
        "rollout/refilled_total": float(group.refilled),
    }


def _rows(group: ClosedGroup, trace: Trace, number: int) -> Iterator[RolloutSample]:
    """TRL's rows of one rollout."""
    taken = sorted(group.samples(trace), key=lambda sample: sample.branch)
    if not taken:
        return
    for sample, fields in zip(taken, records(taken, version=group.version, group_id=number), strict=True):
        prompt, completion = _messages(trace, sample.branch)
        told: dict[str, Any] = {**fields, "prompt": prompt, "completion": completion}
        yield RolloutSample(**told)


def _messages(trace: Trace, branch: int) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What a branch says, before its first turn and from there on, for TRL's logs."""
    nodes: list[int] = trace.graph.branches()[branch].nodes.tolist()
    turns = np.isin(nodes, trace.policy_nodes)
    first = int(turns.argmax())
    said = [_plain(trace.graph.messages[node]) for node in nodes]
    return said[:first], said[first:]


def _plain(message: Message) -> dict[str, str]:
    return {"role": str(message.role), "content": message.content}
