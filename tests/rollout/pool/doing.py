"""A worker process for tests: ``python -m tests.rollout.pool.doing FD``. Its spec says how it misbehaves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rollbook.errors import StoreError, UsageError
from rollbook.rollout import LoadedPolicy, Resources, RolloutSettings
from rollbook.rollout.pool import LocalWorker, serve
from rollbook.rollout.pool.serving import ORPHAN_SECONDS
from rollbook.trace import MemorySink, Message, Reason, Task, Trace
from tests.rollout.made import SMOLLM, Engine, Talk, says


class Does(Talk):
    """Does what the task's prompt says."""

    async def setup(self, task: Task) -> Sequence[Message]:
        sys.stderr.write(f"setting up {task.prompt}\n")
        match task.prompt:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fork":
                fork(own_group=False)
            case "fork and die":
                fork(own_group=False)
                os.kill(os.getpid(), signal.SIGKILL)
            case "daemon and die":
                fork(own_group=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "real-time signal":
                os.kill(os.getpid(), signal.SIGRTMIN + 3)
            case "thread":
                threading.Thread(target=time.sleep, args=(60,)).start()
            case "babble":
                os.write(int(sys.argv[1]), b"\x00\x00\x00\x03no!")
            case "hang":
                await asyncio.sleep(60)
            case "block":
                time.sleep(60)  # noqa: ASYNC251 (that is what it is to do)
            case _:
                pass
        return await super().setup(task)


def fork(*, own_group: bool) -> None:
    """A child that holds all that the worker holds, and its id for whoever reads the worker's log."""
    child = os.fork()
    if child == 0:
        if own_group:
            os.setsid()
        time.sleep(60)
        os._exit(0)
    sys.stderr.write(f"child {child}\n")


class FullDisk(MemorySink):
    def begin(self, trace: Trace) -> None:
        raise StoreError("no space left")


@asynccontextmanager
async def open_worker(spec: dict[str, Any]) -> AsyncGenerator[LocalWorker]:
    match spec.get("start"):
        case "usage":
            raise UsageError("no such model: try another")
        case "import":
            sys.stderr.write("about to import what is not there\n")
            raise ImportError("no module named nothing")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass
    async with Resources() as resources:
        yield LocalWorker(
            make_env=Does,
            loaded=LoadedPolicy(Engine([says("x")]), SMOLLM.renderer),
            settings=RolloutSettings(cancelled_as=Reason.INTERRUPTED),
            sink=FullDisk() if spec.get("disk") == "full" else MemorySink(),
            resources=resources,
        )


if __name__ == "__main__":
    patience = float(os.environ.get("ORPHAN_SECONDS", ORPHAN_SECONDS))
    with socket.socket(fileno=int(sys.argv[1])) as link:
        sys.exit(asyncio.run(serve(link, open_worker, orphan_seconds=patience)))
