"""Who watches a run: the bar, and where a port is asked for, Prometheus too."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast

from rollbook.cli.progress import RunBar
from rollbook.errors import optional
from rollbook.rewards import Outcome
from rollbook.rollout.pool import Closed
from rollbook.rollout.snapshot import Snapshot
from rollbook.run import Progress
from rollbook.trace import Trace

__all__ = ["watched"]


class _Live(Protocol):
    """`rollbook.run.metrics.LiveMetrics`, inside of its context."""

    @property
    def port(self) -> int: ...

    def snapshot(self, snapshot: Snapshot) -> None: ...


class _Metrics(Protocol):
    """`rollbook.run.metrics`, which needs the extra ``metrics``."""

    def LiveMetrics(self, port: int, *, policy: str) -> AbstractContextManager[_Live]: ...  # noqa: N802


@contextmanager
def watched(bar: RunBar, port: int | None, policy: str) -> Generator[Progress]:
    """The progress of a run, told to the bar and served on `port`; None: to the bar alone."""
    if port is None:
        yield bar
        return
    with _metrics().LiveMetrics(port, policy=policy) as live:
        bar.out.print(f"live numbers on http://127.0.0.1:{live.port}/metrics")
        yield _Both(bar, live)


def _metrics() -> _Metrics:
    says = "--metrics-port needs the package prometheus-client: run pip install '.[metrics]' in Rollbook's checkout"
    return cast("_Metrics", optional("rollbook.run.metrics", "prometheus_client", says=lambda error: says))


class _Both:
    """The bar, and the port beside it."""

    def __init__(self, bar: RunBar, live: _Live) -> None:
        self._bar, self._live = bar, live

    def planned(self, members: int, done: int) -> None:
        self._bar.planned(members, done)

    def turn(self, trace: Trace) -> None:
        self._bar.turn(trace)

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self._bar.ended(outcome, late=late)

    def closed(self, closed: Closed) -> None:
        self._bar.closed(closed)

    def snapshot(self, snapshot: Snapshot) -> None:
        self._live.snapshot(snapshot)
        self._bar.snapshot(snapshot)
