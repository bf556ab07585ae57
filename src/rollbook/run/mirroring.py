"""A run's copy in an object store, kept up while the run runs. Needs the extra ``objects``, so it is imported when it
is asked for.

Rules: one sync at a time, in a thread; whoever waits for one (`settled`) gets one that began later than what it has
stored, so those who wait together share it; the last one comes behind the last write. A sync that fails is told to
those who wait; to the caller only if the last one fails as well, for a later one sends what an earlier one could not.

A worker on another machine writes into a spool, a folder on that machine, which goes when all of it is mirrored. Where
it stays behind, it holds what its machine did not get rid of; the next worker of the same run there clears it away,
for by then its orders have run again.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from rollbook.envs.finishing import to_its_end
from rollbook.errors import ConfigError, RunLocked, StoreError, behind, boundary
from rollbook.store import Manifest, RunWriter, create_spool
from rollbook.store.fetch import fetch_parts, holds_run
from rollbook.store.folder import RunLock
from rollbook.store.mirror import MirrorReport, ObjectMirror

__all__ = ["Mirroring", "ObjectCopy", "open_copy", "open_spool"]

OWNER_SECONDS = 2.0
"""Between two syncs of the run's owner."""
WORKER_SECONDS = 5.0
"""Between two syncs of a worker where no rollout ends."""
GATHER_SECONDS = 0.5
"""From the end of a sync to the next one at the earliest: what ends meanwhile goes together."""
SALVAGES = 3
"""How often a dead worker's part is fetched again, for something it had sent may arrive behind its death."""


SWEEP_SECONDS = 60.0
"""How old the lock of a spool is that is cleared away: a younger one may be about to be taken."""


class Mirror(Protocol):
    """`rollbook.store.mirror.ObjectMirror`."""

    def sync(self) -> MirrorReport: ...


class Mirroring:
    """Syncs while its context lasts, and once more at its end."""

    def __init__(self, mirror: Mirror, seconds: float) -> None:
        self._mirror, self._seconds = mirror, seconds
        self._waiting: list[asyncio.Future[None]] = []
        self._wanted, self._ending = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Mirroring:
        self._task = asyncio.create_task(self._go())
        return self

    async def __aexit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        self._ending.set()
        self._wanted.set()
        with behind(cause):
            await to_its_end(self._end())

    async def settled(self) -> None:
        """Return when all that was stored before this call is in the object store. Raises `StoreError`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._wanted.set()
        await future

    async def _go(self) -> None:
        while not self._ending.is_set():
            await _within(self._seconds, self._wanted)
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            with suppress(StoreError):
                await self._sync(waiting)
            await _within(GATHER_SECONDS, self._ending)

    async def _end(self) -> None:
        await self._task
        await self._sync(self._waiting)

    async def _sync(self, waiting: list[asyncio.Future[None]]) -> None:
        try:
            with boundary("the run cannot be copied", StoreError):
                await asyncio.to_thread(self._mirror.sync)
        except StoreError as error:
            _tell(waiting, error)
            raise
        _tell(waiting, None)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _tell(waiting: list[asyncio.Future[None]], error: StoreError | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class ObjectCopy:
    """The copy of one run, as the run's owner sees it. All calls but `mirrored` block."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._salvaged = set[str]()

    def check(self, *, resume: bool) -> None:
        """Refuse a URL under which a new run would meet another one."""
        if not resume and holds_run(self.url):
            raise ConfigError(f"{self.url} holds a run already; choose another URL (--store)")

    def fetch(self) -> list[str]:
        """Bring the parts of workers that closed, or died before this run was opened, into the run's folder. Returns
        their names."""
        return fetch_parts(self.url, self._folder, lambda name: name not in self._salvaged)

    def recover(self, writer: RunWriter, worker: str) -> None:
        """Take over what a dead worker had mirrored. What it may send later is refused: its places are taken."""
        self._salvaged.add(worker)
        for left in reversed(range(SALVAGES)):
            fetch_parts(self.url, self._folder, worker.__eq__)
            writer.recover_part(worker)
            try:
                ObjectMirror(self._folder, self.url, part=worker).sync()
            except StoreError:
                if not left:
                    raise
            else:
                return

    @asynccontextmanager
    async def mirrored(self, *, parts: bool) -> AsyncGenerator[None]:
        """The folder, mirrored until its writer is closed. `parts`: False where workers mirror theirs."""
        await asyncio.to_thread(ObjectMirror(self._folder, self.url).sync)
        async with Mirroring(ObjectMirror(self._folder, self.url, parts=parts), OWNER_SECONDS):
            yield


def open_copy(url: str, folder: Path) -> ObjectCopy:
    """The copy at `url` of the run in `folder`."""
    return ObjectCopy(url, folder)


@asynccontextmanager
async def open_spool(
    url: str, run_id: str, name: str, manifest: Manifest, place: Path | None = None
) -> AsyncGenerator[tuple[RunWriter, Mirroring]]:
    """The writer of a worker's part on this machine, and what mirrors it. `place`: where spools lie; None: where the
    system has what is temporary (``TMPDIR``)."""
    folder = (place or Path(tempfile.gettempdir())) / f"rollbook-spool-{run_id}-{name}"
    await asyncio.to_thread(_sweep, folder.parent, run_id)
    await asyncio.to_thread(create_spool, folder, manifest)
    mirror = await asyncio.to_thread(lambda: ObjectMirror(folder, url, part=name))
    async with Mirroring(mirror, WORKER_SECONDS) as mirroring:
        with RunWriter.join(folder, name) as writer:
            yield writer, mirroring
    await asyncio.to_thread(shutil.rmtree, folder)


def _sweep(place: Path, run_id: str) -> None:
    """Clear away spools of this run whose worker is long dead."""
    for lock in place.glob(f"rollbook-spool-{run_id}-*/writers/*/lock"):
        try:
            if lock.stat().st_mtime < time.time() - SWEEP_SECONDS:
                RunLock(lock.parent).release()
                shutil.rmtree(lock.parents[2])
        except (OSError, RunLocked):
            continue  # its worker lives, or another one clears it away
