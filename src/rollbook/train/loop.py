"""The loop: rollouts, gradient, weights back. Whoever wants to see how the parts fit begins here.

Rules. A batch is learned from once. What was learned is kept before the new weights go out. While the learner works the
engine stands still, so what is sampled next comes from the new weights alone (tokens of a batch that overlapped an
update still carry their own versions, and the loss weighs them by their ratio).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from rollbook.trace.sample import Sample
from rollbook.train.learner import Learned, Learner

__all__ = ["Engine", "train"]


class Engine(Protocol):
    """Where the samples come from, and where the weights go."""

    @property
    def version(self) -> int:
        """The version of the weights that it holds."""
        ...

    async def hold(self) -> None:
        """Let nothing be sampled until the next `publish`."""
        ...

    async def publish(self, version: int) -> None:
        """Take the learner's weights as `version`, and sample on."""
        ...


async def train(
    batches: AsyncIterator[Sequence[Sample]],
    learner: Learner,
    engine: Engine,
    told: Callable[[int, Learned], None],
) -> int:
    """Learn from each batch as it comes; returns how many there were.

    `told`: gets the step, from 0, and what was learned, before the new weights go out. A batch without a sample makes
    no step and no new version. Raises what the parts raise.
    """
    step = 0
    async for samples in batches:
        if not samples:
            continue
        await engine.hold()
        learned = await asyncio.to_thread(learner.step, samples, version=engine.version)
        told(step, learned)
        await engine.publish(engine.version + 1)
        step += 1
    return step
