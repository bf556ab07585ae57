"""Who carries out the orders of a run: this process, worker processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from rollbook.envs.finishing import to_its_end
from rollbook.errors import RunLocked, optional
from rollbook.rollout import EnvFactory, LoadedPolicy, Resources, RolloutSettings
from rollbook.rollout.pool import Executor, LocalWorker, Order, ProcessWorker, Result, Worker, WorkerPool, salvaged
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.copies import Copy
from rollbook.run.policies import judge_loader
from rollbook.run.recording import ProgressSink, Recorder
from rollbook.store import Manifest, RunReader, RunWriter
from rollbook.store.folder import part_folders
from rollbook.trace import Reason

__all__ = ["RunParts", "StartWorker", "WorkerSpec", "open_executor", "settings_of", "start_process", "starting"]

DYING_SECONDS = 60.0
"""How long a worker whose death was told may still hold its part."""
COMMAND = (sys.executable, "-m", "rollbook.run.worker")


StartWorker = Callable[[str, dict[str, Any]], Awaitable[Worker]]
"""Starts a worker of this name, from a `WorkerSpec` as plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What the rollouts of a run are made from."""

    config: RunConfig
    folder: Path
    run_id: str
    make_env: EnvFactory
    loaded: LoadedPolicy
    writer: RunWriter
    recorder: Recorder
    access: Access
    start: StartWorker
    copy: Copy | None = None
    """In an object store."""
    spools: bool = False
    """True: the run's folder is on this machine alone, so workers write into spools and mirror them to the copy."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is told of its run."""

    config: RunConfig
    run_id: str
    folder: Path
    name: str
    """Of its part of the run."""
    path: list[str]
    """Where it looks for modules, as its parent does."""
    access: Access
    """Goes to the worker alone, into no file and no record."""
    manifest: Manifest
    """Of the run."""
    store: str | None = None
    """Where a spool of this worker is mirrored to; None: it joins the run in its folder."""

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return cast("dict[str, Any]", msgspec.to_builtins(self, enc_hook=os.fspath))  # msgspec knows no paths

    @classmethod
    def read(cls, plain: dict[str, Any]) -> WorkerSpec:
        """From what `plain` gives."""
        return msgspec.convert(plain, cls, dec_hook=lambda kind, value: kind(value))


def settings_of(config: RunConfig) -> RolloutSettings:
    """How the rollouts of a run are run."""
    return RolloutSettings(
        limits=config.limits,
        sampling=msgspec.structs.replace(config.sampling, seed=config.seed),
        rules=config.rules,
        context=config.context,
        cancelled_as=Reason.INTERRUPTED,
    )


def starting(ray: str | None) -> AbstractContextManager[StartWorker]:
    """Starts workers: processes of this machine, or actors of the Ray cluster at the address `ray`, connected while it
    is open. Raises `UsageError` where there is none."""
    return nullcontext(start_process) if ray is None else _on_ray(ray)


@asynccontextmanager
async def open_executor(parts: RunParts, workers: int) -> AsyncGenerator[Executor]:
    """What carries out the orders of a run, started: this process, or so many workers. With workers, the policy must be
    one that each can load by its name."""
    if not workers:
        async with _here(parts) as worker:
            yield worker
        return
    try:
        async with WorkerPool(workers, _Start(parts), _Recover(parts)) as executor:
            yield executor
    finally:
        if parts.copy is not None and parts.spools:
            await to_its_end(_fetched(parts.copy))


async def _fetched(copy: Copy) -> None:
    """What the workers kept until they closed, also those of a run that is stopped."""
    await asyncio.to_thread(copy.fetch)


async def start_process(name: str, spec: dict[str, Any]) -> Worker:
    """A `StartWorker`: a process of this machine."""
    return await ProcessWorker.start(name, COMMAND, spec)


class _RayWorkers(Protocol):
    """`rollbook.run.ray_workers`."""

    def connected(self, address: str) -> AbstractContextManager[StartWorker]: ...


def _on_ray(address: str) -> AbstractContextManager[StartWorker]:
    module = optional("rollbook.run.ray_workers", "ray", says=str)
    return cast("_RayWorkers", module).connected(address)


@asynccontextmanager
async def _here(parts: RunParts) -> AsyncGenerator[LocalWorker]:
    load_judge = judge_loader(parts.access)
    async with parts.loaded, Resources(parts.config.resources, load_judge=load_judge) as resources:
        worker = LocalWorker(
            make_env=parts.make_env,
            loaded=parts.loaded,
            settings=settings_of(parts.config),
            sink=ProgressSink(parts.writer, parts.recorder.progress),
            resources=resources,
            run_id=parts.run_id,
            config=parts.config.plain(),
        )
        try:
            yield worker
        finally:
            await worker.close()


class _Start:
    """Starts the n-th worker of a run."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._first = _next_number(parts.folder)
        # no two machines may have a spool of one name, and what a later process writes comes later by its name
        self._life = f"-{int(time.time()):x}" if parts.spools else ""

    async def __call__(self, number: int) -> Worker:
        parts, name = self._parts, f"w{self._first + number:04d}{self._life}"
        spec = WorkerSpec(
            config=parts.config,
            run_id=parts.run_id,
            folder=parts.folder,
            name=name,
            path=[str(Path.cwd()), *sys.path],
            access=parts.access,
            manifest=parts.writer.manifest,
            store=parts.copy.url if parts.copy is not None and parts.spools else None,
        )
        return await parts.start(name, spec.plain())


def _next_number(folder: Path) -> int:
    """One more than the highest number of a part that is there."""
    found = (_NUMBERED.fullmatch(part.name) for part in part_folders(folder))
    return 1 + max((int(match[1]) for match in found if match), default=-1)


_NUMBERED = re.compile(r"w(\d+)(?:-[0-9a-f]+)?")


class _Recover:
    """Takes over what a dead worker left, and reads what became of its orders."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts

    async def __call__(self, worker: str, orders: Sequence[Order]) -> Mapping[str, Result]:
        return await asyncio.to_thread(self._read, worker, orders)

    def _read(self, worker: str, orders: Sequence[Order]) -> dict[str, Result]:
        parts, found = self._parts, dict[str, Result]()
        if parts.copy is not None and parts.spools:
            parts.copy.recover(parts.writer, worker)
        else:
            _take_over(parts.writer, worker)
        reader, rules = RunReader(parts.folder), parts.config.rules
        for order in orders:
            if order.rollout in reader:
                found[order.rollout] = salvaged(order, reader.get(order.rollout), rules)
        return found


def _take_over(writer: RunWriter, worker: str) -> None:
    """Recover a part whose worker died, which may be told before it is quite gone. Raises `RunLocked` where it lives
    on: then its machine is cut off, and nobody can say what it still writes."""
    for left in reversed(range(round(DYING_SECONDS))):
        try:
            writer.recover_part(worker)
        except RunLocked:
            if not left:
                raise
            time.sleep(1)
        else:
            return
