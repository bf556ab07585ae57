"""Where orders are carried out: one process, one event loop, many rollouts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from rollbook.envs.protocol import Environment
from rollbook.errors import ConfigError, RollbookError, UsageError, boundary
from rollbook.rewards import Outcome, decide, outcome_of
from rollbook.rollout.limits import RequestRetries
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.pool.orders import EnvFactory, Order
from rollbook.rollout.resources import Resources
from rollbook.rollout.rollout import RolloutSettings, head_for, run_rollout
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import Annotation, EndingRules, Reason, Sink, Trace

__all__ = [
    "DiedLoading",
    "KeepingSink",
    "LocalWorker",
    "NotTaken",
    "Result",
    "Worker",
    "WorkerLost",
    "new_env",
    "salvaged",
]


class WorkerLost(RollbookError):
    """The worker that ran an order is gone."""


class NotTaken(WorkerLost):
    """The worker was gone before it was asked: nothing of the order has begun."""


class DiedLoading(UsageError):
    """A worker died before it took orders."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order."""

    rollout: str
    outcome: Outcome | None
    """None: it was cancelled before anything of it was recorded."""
    retries_left: int = 0
    """Of the member's budget of request retries."""


class Worker(Protocol):
    """Carries out orders, many at once."""

    @property
    def name(self) -> str: ...

    @property
    def in_flight(self) -> int:
        """Orders that run."""
        ...

    async def run(self, order: Order) -> Result:
        """Run one attempt to its end. Raises `WorkerLost` (`NotTaken` where it was gone already), and what stops a
        whole run (`StoreError`, `UsageError`). Cancelling it cancels the rollout, which ends as the settings say."""
        ...

    def cancel(self, rollout: str) -> None:
        """End a rollout as ``cancelled``, which is never retried; its result still comes. One that does not run is no
        matter."""
        ...

    def snapshot(self) -> Snapshot:
        """How things stand, as far as it is known."""
        ...

    async def close(self) -> None:
        """Interrupt what runs, keep it, and free everything. Calling it twice does nothing."""
        ...


class KeepingSink(Sink):
    """Passes on to another sink, and keeps the sealed traces at hand."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.sealed: list[Trace] = []

    def begin(self, trace: Trace) -> None:
        self._sink.begin(trace)

    def turn(self, trace: Trace) -> None:
        self._sink.turn(trace)

    def seal(self, trace: Trace) -> None:
        self._sink.seal(trace)
        self.sealed.append(trace)

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        self._sink.annotate(annotations)

    def get(self, rollout: str) -> Trace:
        """The sealed trace of a rollout."""
        return next(each for each in self.sealed if each.id == rollout)


@dataclass(slots=True, kw_only=True)
class LocalWorker:
    """The worker that is this very process."""

    make_env: EnvFactory
    loaded: LoadedPolicy
    settings: RolloutSettings
    sink: Sink
    resources: Resources
    run_id: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    """Resolved configuration, for the record."""
    name: str = "here"
    settled: Callable[[], Awaitable[None]] | None = None
    """Returns when everything that the sink was given before is where it is to be; awaited before a result is told.
    None: it is there at once."""
    _running: dict[str, asyncio.Task[Result]] = field(default_factory=dict[str, asyncio.Task[Result]], init=False)
    _cancelled: set[str] = field(default_factory=set[str], init=False)

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def run(self, order: Order) -> Result:
        task = asyncio.create_task(self._attempt(order))
        self._running[order.rollout] = task
        task.add_done_callback(lambda _: self._running.pop(order.rollout, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and order.rollout in self._cancelled and not _cancelling():
                # it was cancelled before its first step, so nothing of it is recorded
                return Result(rollout=order.rollout, outcome=None, retries_left=order.retries_left)
            task.cancel()
            await asyncio.wait((task,))
            raise
        finally:
            self._cancelled.discard(order.rollout)

    def cancel(self, rollout: str) -> None:
        if rollout in self._running:
            self._cancelled.add(rollout)
            self._running[rollout].cancel(Reason.CANCELLED)

    def snapshot(self) -> Snapshot:
        return self.resources.snapshot()

    async def close(self) -> None:
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _attempt(self, order: Order) -> Result:
        kept, retries = KeepingSink(self.sink), RequestRetries(order.retries_left)
        try:
            await self.resources.turnstile.turn()
            env = new_env(self.make_env)
            head = head_for(
                env,
                order.task,
                self.loaded,
                group=order.group,
                member=order.member,
                attempt=order.attempt,
                run=self.run_id,
                config=self.config,
            )
            await run_rollout(
                env,
                head,
                self.loaded,
                self.settings,
                seed=order.seed(self.settings.sampling.seed or 0),
                sink=kept,
                resources=self.resources,
                retries=retries,
            )
        except asyncio.CancelledError as error:
            if error.args != (Reason.CANCELLED,):
                raise
        await self._settle()
        return self._result(order, next(iter(kept.sealed), None), retries)

    async def _settle(self) -> None:
        """Being cancelled as a rollout changes nothing here: it has ended."""
        if self.settled is None:
            return
        settling = asyncio.ensure_future(self.settled())
        while not settling.done():
            try:
                await asyncio.wait((settling,))
            except asyncio.CancelledError as error:
                if error.args != (Reason.CANCELLED,):
                    settling.cancel()
                    raise
        settling.result()

    def _result(self, order: Order, trace: Trace | None, retries: RequestRetries) -> Result:
        if trace is None:
            return Result(rollout=order.rollout, outcome=None, retries_left=retries.left)
        return _result_of(order, trace, self.settings.rules, retries.left)


def salvaged(order: Order, trace: Trace, rules: EndingRules) -> Result:
    """The result of an order whose worker died, from the record alone. Each request that failed counts as one that was
    made again, for the attempts of a member share one budget, whoever ran them."""
    failed = sum(call.error is not None for call in trace.calls)
    return _result_of(order, trace, rules, max(order.retries_left - failed, 0))


def _result_of(order: Order, trace: Trace, rules: EndingRules, retries_left: int) -> Result:
    outcome = outcome_of(trace, rules, decide(trace, rules, earlier=order.earlier))
    return Result(rollout=order.rollout, outcome=outcome, retries_left=retries_left)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def new_env(make_env: EnvFactory) -> Environment:
    """An environment of the user's making; raises `ConfigError` where it cannot be made."""
    with boundary("the environment cannot be made", ConfigError):
        return make_env()
