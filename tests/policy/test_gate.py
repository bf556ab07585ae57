"""The gate before an engine whose weights change: each mode of a pause, and one version for each piece."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.policy.gate import Aborted, WeightGate
from rollbook.policy.weights import PauseMode


class Sampled:
    """A generation of three pieces; `reached` says how far it came."""

    def __init__(self, gate: WeightGate) -> None:
        self.gate, self.versions, self.aborted = gate, list[int](), False
        self.turn = asyncio.Event()
        self.inside = asyncio.Event()

    async def run(self) -> list[int]:
        async with self.gate.generation():
            for _ in range(3):
                try:
                    async with self.gate.piece() as version:
                        self.inside.set()
                        await self.turn.wait()
                        self.turn.clear()
                        self.versions.append(version)
                except Aborted:
                    self.aborted = True
                    break
        return self.versions

    async def step(self) -> None:
        """Let the piece that is inside end."""
        await self.inside.wait()
        self.inside.clear()
        self.turn.set()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("mode", "versions", "aborted"),
    [(PauseMode.KEEP, [0, 1, 1], False), (PauseMode.ABORT, [0], True), (PauseMode.WAIT, [0, 0, 0], False)],
)
def test_a_generation_that_meets_a_shut_gate(mode: PauseMode, versions: list[int], aborted: bool) -> None:
    async def go() -> None:
        gate = WeightGate()
        early, late = Sampled(gate), Sampled(gate)
        async with asyncio.timeout(5):
            running = asyncio.create_task(early.run())
            await early.inside.wait()
            shut = asyncio.create_task(gate.shut(mode))
            await settled()
            assert not shut.done(), "a piece is inside"
            after = asyncio.create_task(late.run())
            await early.step()
            if mode is PauseMode.WAIT:
                await settled()
                assert not shut.done(), "a generation is inside"
                await early.step()
                await early.step()
            await shut
            await settled()
            assert gate.paused
            assert late.versions == []
            gate.version = 1
            await gate.open()
            if mode is PauseMode.KEEP:
                await early.step()
                await early.step()
            assert await running == versions
            assert early.aborted is aborted
            for _ in range(3):
                await late.step()
            assert await after == [1, 1, 1], "what began meanwhile has the new weights alone"

    asyncio.run(go())


def test_a_generation_that_is_cancelled_leaves_the_gate_free() -> None:
    async def go() -> None:
        gate = WeightGate()
        sampled = Sampled(gate)
        running = asyncio.create_task(sampled.run())
        await sampled.inside.wait()
        running.cancel()
        await asyncio.wait((running,))
        async with asyncio.timeout(5):
            await gate.shut(PauseMode.WAIT)

    asyncio.run(go())
