"""What must come to its end does, whoever is cancelled."""

import asyncio

import pytest

from rollbook.envs.finishing import to_its_end


def test_a_cancellation_waits_for_what_must_be_finished() -> None:
    async def work() -> list[str]:
        done: list[str] = []

        async def must() -> None:
            await asyncio.sleep(0.05)
            done.append("finished")

        task = asyncio.create_task(to_its_end(must()))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return done

    assert asyncio.run(work()) == ["finished"]


def test_what_fails_at_the_end_fails() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(to_its_end(fails()))
