"""A worker process of a run: ``python -m rollbook.run.worker FD`` with a socket to its parent.

It makes the environment once, so that one that it cannot make is told at once; loads the policy by its name; takes its
own part of the run; and serves orders until the parent stops it or is gone.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from rollbook.errors import UsageError
from rollbook.rollout import Resources
from rollbook.rollout.pool import LocalWorker, serve
from rollbook.run.copies import Settled, open_spool
from rollbook.run.executors import WorkerSpec, settings_of
from rollbook.run.policies import judge_loader, policy_of
from rollbook.store import RunWriter, read_manifest
from rollbook.worlds import make

__all__ = ["open_worker"]


@asynccontextmanager
async def open_worker(plain: dict[str, Any]) -> AsyncGenerator[LocalWorker]:
    """The worker of this process, from a `WorkerSpec` as plain data."""
    spec = WorkerSpec.read(plain)
    sys.path[:] = [*spec.path, *(each for each in sys.path if each not in spec.path)]
    config = spec.config
    make_env = functools.partial(make, config.environment, **config.options)
    try:
        make_env()
    except UsageError as error:
        raise UsageError(f"{error} (workers know what they can import: name it 'package.module:Class')") from error
    loaded = await asyncio.to_thread(policy_of, config, spec.access)
    shared = Resources(config.resources, load_judge=judge_loader(spec.access))
    async with _part(spec) as (writer, settled), loaded, shared as resources:
        yield LocalWorker(
            make_env=make_env,
            loaded=loaded,
            settings=settings_of(config),
            sink=writer,
            resources=resources,
            run_id=spec.run_id,
            config=config.plain(),
            name=spec.name,
            settled=settled,
        )


@asynccontextmanager
async def _part(spec: WorkerSpec) -> AsyncGenerator[tuple[RunWriter, Settled | None]]:
    """This worker's part of the run: in the run's folder, or in a spool that is mirrored."""
    if spec.store is not None:
        async with open_spool(spec.store, spec.run_id, spec.name, spec.manifest) as (writer, spool):
            yield writer, spool.settled
        return
    with _join(spec) as writer:
        yield writer, None


def _join(spec: WorkerSpec) -> RunWriter:
    folder = spec.folder
    if not folder.is_dir() or read_manifest(folder).created != spec.manifest.created:
        raise UsageError(
            f"the run's folder {folder} is not on the machine of this worker ({socket.gethostname()}): put it where "
            "all machines share it, or name an object store (--store URL)"
        )
    return RunWriter.join(folder, spec.name)


def _main(descriptor: int) -> int:
    with socket.socket(fileno=descriptor) as link:
        return asyncio.run(serve(link, open_worker))


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
