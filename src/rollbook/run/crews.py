"""Who carries out the orders of a run: this process, or worker processes of this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from rollbook.rewards import decide, outcome_of
from rollbook.rollout import EnvFactory, LoadedPolicy, Resources, RolloutSettings
from rollbook.rollout.pool import Carrier, Crew, Desk, Order, ProcessWorker, Result
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.keeping import Keeper, Telling
from rollbook.store import RunReader, RunWriter
from rollbook.store.folder import part_folders
from rollbook.trace import Reason

__all__ = ["Plant", "WorkerSpec", "open_crew", "settings_of"]

COMMAND = (sys.executable, "-m", "rollbook.run.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What the rollouts of a run are made from."""

    config: RunConfig
    folder: Path
    run_id: str
    make_env: EnvFactory
    loaded: LoadedPolicy
    writer: RunWriter
    keeper: Keeper
    access: Access


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is told of its run."""

    config: RunConfig
    run_id: str
    folder: str
    name: str
    """Of its part of the run."""
    path: list[str]
    """Where it looks for modules, as its parent does."""
    connections: int
    """To the engine at once."""
    api_key: str | None = None
    """Goes over the socket alone, into no file and no record."""
    cache: str | None = None
    """Where fetched models are kept; None: the user's cache folder."""

    def __repr__(self) -> str:
        return f"WorkerSpec({self.run_id}, {self.name})"


def settings_of(config: RunConfig) -> RolloutSettings:
    """How the rollouts of a run are run."""
    return RolloutSettings(
        limits=config.limits,
        sampling=msgspec.structs.replace(config.sampling, seed=config.seed),
        rules=config.rules,
        context=config.context,
        cancelled_as=Reason.INTERRUPTED,
    )


@asynccontextmanager
async def open_crew(plant: Plant, workers: int) -> AsyncGenerator[Carrier]:
    """The crew of a run, started. With workers, the policy must be one that each can load by its name."""
    if not workers:
        async with _here(plant) as desk:
            yield desk
        return
    async with Crew(workers, _Start(plant), _Salvage(plant)) as crew:
        yield crew


@asynccontextmanager
async def _here(plant: Plant) -> AsyncGenerator[Desk]:
    async with plant.loaded, Resources(plant.config.resources) as resources:
        desk = Desk(
            make_env=plant.make_env,
            loaded=plant.loaded,
            settings=settings_of(plant.config),
            sink=Telling(plant.writer, plant.keeper.progress),
            resources=resources,
            run_id=plant.run_id,
            config=plant.config.plain(),
        )
        try:
            yield desk
        finally:
            await desk.close()


class _Start:
    """Starts the n-th worker process of a run."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._first = _next_number(plant.folder)

    async def __call__(self, number: int) -> ProcessWorker:
        plant, name = self._plant, f"w{self._first + number:04d}"
        spec = WorkerSpec(
            config=plant.config,
            run_id=plant.run_id,
            folder=str(plant.folder),
            name=name,
            path=[str(Path.cwd()), *sys.path],
            connections=plant.access.connections,
            api_key=plant.access.api_key,
            cache=None if plant.access.cache is None else str(plant.access.cache),
        )
        return await ProcessWorker.start(name, COMMAND, _plain(spec))


def _plain(spec: WorkerSpec) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(spec))


def _next_number(folder: Path) -> int:
    """One more than the highest number of a part that is there."""
    return 1 + max((int(part.name[1:]) for part in part_folders(folder) if part.name[1:].isdecimal()), default=-1)


class _Salvage:
    """Takes over what a dead worker left, and reads what became of its orders."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    async def __call__(self, worker: str, orders: Sequence[Order]) -> Mapping[str, Result]:
        return await asyncio.to_thread(self._read, worker, orders)

    def _read(self, worker: str, orders: Sequence[Order]) -> dict[str, Result]:
        plant, found = self._plant, dict[str, Result]()
        plant.writer.recover_part(worker)
        reader, rules = RunReader(plant.folder), plant.config.rules
        for order in orders:
            if order.rollout in reader:
                trace = reader.get(order.rollout)
                outcome = outcome_of(trace, rules, decide(trace, rules, earlier=order.earlier))
                found[order.rollout] = Result(rollout=order.rollout, outcome=outcome, retries_left=order.retries_left)
        return found
