"""The worker: a result is told when its record is where it is to be, and not before, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from rollbook.envs import StepResult
from rollbook.errors import StoreError
from rollbook.rollout import LoadedPolicy, Resources, RolloutSettings
from rollbook.rollout.pool import LocalWorker, Order, salvaged
from rollbook.trace import EndingRules, Fate, MemorySink, Message, Reason, RolloutFailure, Task
from tests.rollout.made import NO_LIMITS, SMOLLM, Engine, Talk, play, says

ORDER = Order(group="g", task=Task(id="t", prompt="Go."), member=0)


async def at_worker(
    settled: Callable[[], Awaitable[None]], use: Callable[[LocalWorker, MemorySink], Awaitable[None]]
) -> None:
    sink = MemorySink()
    async with Resources() as resources:
        worker = LocalWorker(
            make_env=Talk,
            loaded=LoadedPolicy(Engine([says("x")]), SMOLLM.renderer),
            settings=RolloutSettings(cancelled_as=Reason.INTERRUPTED),
            sink=sink,
            resources=resources,
            settled=settled,
        )
        await use(worker, sink)
        await worker.close()


def test_a_result_waits_for_its_record_even_where_its_rollout_is_cancelled() -> None:
    async def main() -> None:
        gate, settling = asyncio.Event(), asyncio.Event()

        async def settled() -> None:
            settling.set()
            await gate.wait()

        async def use(worker: LocalWorker, sink: MemorySink) -> None:
            told = asyncio.create_task(worker.run(ORDER))
            await asyncio.wait_for(settling.wait(), 5)
            for _ in range(3):
                worker.cancel(ORDER.rollout)
                await asyncio.sleep(0)
            assert not told.done()
            gate.set()
            result = await told
            assert result.outcome is not None
            assert result.outcome.reason is Reason.FINAL_ANSWER

        await at_worker(settled, use)

    asyncio.run(main())


def test_a_stop_does_not_wait_and_nothing_is_told() -> None:
    async def main() -> None:
        settling, left = asyncio.Event(), asyncio.Event()

        async def settled() -> None:
            settling.set()
            try:
                await asyncio.sleep(1000)
            finally:
                left.set()

        async def use(worker: LocalWorker, sink: MemorySink) -> None:
            told = asyncio.create_task(worker.run(ORDER))
            await settling.wait()
            await worker.close()
            with pytest.raises(asyncio.CancelledError):
                await told
            assert list(sink.sealed) == [ORDER.rollout]
            await asyncio.wait_for(left.wait(), 5)

        await at_worker(settled, use)

    asyncio.run(main())


def test_what_cannot_be_kept_stops_the_run() -> None:
    async def main() -> None:
        async def settled() -> None:
            raise StoreError("the network")

        async def use(worker: LocalWorker, sink: MemorySink) -> None:
            with pytest.raises(StoreError, match="the network"):
                await worker.run(ORDER)

        await at_worker(settled, use)

    asyncio.run(main())


class Dies(Talk):
    """Ends as the record of a dead worker does."""

    async def step(self, reply: Message) -> StepResult | None:
        raise RolloutFailure(Reason.INTERRUPTED, "its process died")


@pytest.mark.parametrize(("before", "left"), [(3, 1), (2, 0), (1, 0)])
def test_what_a_dead_worker_left_has_spent_its_members_requests(before: int, left: int) -> None:
    """It runs again as any attempt does: knowing how the others ended, with what is left of their budget."""
    reset = RolloutFailure(Reason.ENGINE_UNREACHABLE, "reset")
    trace = play(Dies(), reset, reset, says("x"), limits=msgspec.structs.replace(NO_LIMITS, request_retries=2))
    order = msgspec.structs.replace(ORDER, attempt=1, earlier=(Reason.INTERRUPTED,), retries_left=before)
    result = salvaged(order, trace, EndingRules())
    assert (result.rollout, result.retries_left) == (order.rollout, left)
    assert result.outcome is not None
    assert (result.outcome.reason, result.outcome.disposition.fate) == (Reason.INTERRUPTED, Fate.RETRIED)
