"""``python -m rollbook.policy.testing --dialect vllm``: a fake engine in a process of its own.

It prints one line, its URL, and serves until SIGTERM, SIGINT or the end of its input, where that is a pipe.
``GET /_fake/log`` gives the log (``?from=N`` leaves the first N out), ``GET /_fake/state`` tells what runs, and
``POST /_fake/reset`` begins anew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from rollbook.errors import UsageError
from rollbook.policy.testing.faults import Dialect, FaultPlan
from rollbook.policy.testing.latency import Latency
from rollbook.policy.testing.script import Script
from rollbook.policy.testing.server import FakeEngine, Wrap, serve
from rollbook.policy.testing.shape import EngineShape
from rollbook.trace.call import LogprobKind

__all__ = ["main", "parser", "read_json", "serve_command"]

_Type = TypeVar("_Type")
_READ = 1 << 16


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return serve_command(parser(), arguments)


def serve_command(
    line: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    wrap_for: Callable[[argparse.Namespace], Wrap | None] = lambda _: None,
) -> int:
    """Serve what the `arguments` of `line` ask for. `wrap_for`: what stands before the fake; may raise `UsageError`."""
    asked = line.parse_args(arguments)
    try:
        _run(asked, wrap_for(asked))
    except UsageError as error:
        line.error(str(error))
    except (OSError, OverflowError) as error:
        line.error(f"port {asked.port} cannot be listened on: {error}")
    return 0


def _run(asked: argparse.Namespace, wrap: Wrap | None) -> None:
    dialect = Dialect(asked.dialect)
    shape = EngineShape(
        model=asked.model,
        context_length=asked.context_length,
        vocabulary=asked.vocabulary,
        stop_ids=tuple(asked.stop_id or EngineShape().stop_ids),
        seed=asked.seed,
        logprob_kind=None if asked.logprob_kind is None else LogprobKind(asked.logprob_kind),
    )
    script: Script | None = None if asked.script is None else read_json(asked.script, dict[str, list[list[int]]])
    engine = FakeEngine(
        dialect,
        script=script,
        faults=None if asked.faults is None else read_json(asked.faults, FaultPlan),
        latency=None if asked.latency is None else read_json(asked.latency, Latency),
        shape=shape,
    )
    asyncio.run(_serve(engine, asked.port, wrap))


async def _serve(engine: FakeEngine, port: int, wrap: Wrap | None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with serve(engine.front, port, wrap) as server:
        print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 - this line is what the program is asked for
        with suppress(PermissionError):  # a file or /dev/null, which has no end to wait for
            loop.add_reader(sys.stdin.fileno(), _look, ended)
        await ended.wait()
        loop.remove_reader(sys.stdin.fileno())


def _look(ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), _READ):
        ended.set()


def read_json(text: str, kind: type[_Type]) -> _Type:
    """JSON, or the path of a file with it. Raises `UsageError`."""
    try:
        data = text.encode() if text.lstrip().startswith("{") else Path(text).read_bytes()
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise UsageError(f"{text[:200]!r} is neither JSON nor a file that can be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{text[:200]!r} holds no {kind.__name__}: {error}") from error


def parser() -> argparse.ArgumentParser:
    """The options of the fake engine."""
    known = argparse.ArgumentParser(prog="python -m rollbook.policy.testing", description=__doc__)
    known.add_argument("--dialect", required=True, choices=[each.value for each in Dialect])
    known.add_argument("--port", type=int, default=0, help="0: any that is free")
    known.add_argument("--faults", help="a FaultPlan as JSON, or a file with it")
    known.add_argument("--latency", help="a Latency as JSON, or a file with it")
    known.add_argument("--script", help="ids by session as JSON, or a file with it; left out: a model of hashes")
    known.add_argument("--model", default="fake", help="the served name")
    known.add_argument("--context-length", type=int, default=4096)
    known.add_argument("--vocabulary", type=int, default=64, help="ids that the model of hashes samples")
    known.add_argument("--stop-id", type=int, action="append", help="ends a turn; may be given several times")
    known.add_argument("--seed", type=int, default=0)
    known.add_argument("--logprob-kind", choices=["raw", "temperature", "processed"])
    return known


if __name__ == "__main__":
    sys.exit(main())
