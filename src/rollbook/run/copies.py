"""What a run and its workers need of an object store, found when a URL is given: the extra ``objects`` is not needed
without one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, cast

from rollbook.errors import optional
from rollbook.store import Manifest, RunWriter

__all__ = ["Copy", "Settled", "Spool", "open_copy", "open_spool", "writing"]

Settled = Callable[[], Awaitable[None]]
"""Returns when all that was stored before the call is where it is to be."""


class Spool(Protocol):
    """What mirrors a worker's part."""

    async def settled(self) -> None: ...


class Copy(Protocol):
    """`rollbook.run.mirroring.ObjectCopy`."""

    url: str

    def check(self, *, resume: bool) -> None: ...

    def fetch(self) -> list[str]: ...

    def recover(self, writer: RunWriter, worker: str) -> None: ...

    def mirrored(self, *, parts: bool) -> AbstractAsyncContextManager[None]: ...


class _Mirroring(Protocol):
    """`rollbook.run.mirroring`."""

    def open_copy(self, url: str, folder: Path) -> Copy: ...

    def open_spool(
        self, url: str, run_id: str, name: str, manifest: Manifest
    ) -> AbstractAsyncContextManager[tuple[RunWriter, Spool]]: ...


def open_copy(url: str, folder: Path) -> Copy:
    """The copy at `url` of the run in `folder`. Raises `UsageError` where the extra is missing."""
    return _module(url).open_copy(url, folder)


def open_spool(
    url: str, run_id: str, name: str, manifest: Manifest
) -> AbstractAsyncContextManager[tuple[RunWriter, Spool]]:
    """The writer of a worker's part on a machine of its own, and what mirrors it. Raises `UsageError` likewise."""
    return _module(url).open_spool(url, run_id, name, manifest)


@asynccontextmanager
async def writing(writer: RunWriter, copy: Copy | None, *, parts: bool) -> AsyncGenerator[None]:
    """The run's writer, closed at the end, and all of it mirrored behind that."""
    if copy is None:
        with writer:
            yield
        return
    with ExitStack() as closing:
        closing.enter_context(writer)
        async with copy.mirrored(parts=parts):
            with closing.pop_all():
                yield


def _module(url: str) -> _Mirroring:
    module = optional("rollbook.run.mirroring", "obstore", says=lambda error: f"{url}: {error}")
    return cast("_Mirroring", module)
