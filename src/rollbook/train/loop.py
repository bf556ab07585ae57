"""The loop: rollouts, gradient, weights back. Whoever wants to see how the parts fit begins here.

Rules. A batch is learned from once. What was learned is told before the new weights go out. While the learner works the
engine stands still, so what is sampled next comes from the new weights alone; tokens of a rollout that outlived an
update still carry their own versions, and the loss weighs them by their ratio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rollbook.trace.sample import Sample
from rollbook.train.learner import Learned, Learner

__all__ = ["Rollouts", "train"]


class Rollouts(Protocol):
    """Where samples come from and weights go."""

    @property
    def version(self) -> int:
        """Of the weights that the engine holds."""
        ...

    async def take(self) -> Sequence[Sample] | None:
        """The next batch; nothing is sampled from then on, until `publish`. None: there are no more."""
        ...

    async def publish(self, version: int) -> None:
        """Give the engine the learner's weights as `version`, and let it sample."""
        ...


async def train(rollouts: Rollouts, learner: Learner, told: Callable[[int, Learned], None]) -> int:
    """Learn from each batch as it comes; returns how many there were.

    `told`: gets the step, counted from 0, and what was learned in it. Raises what the parts raise.
    """
    step = 0
    while samples := await rollouts.take():
        learned = await asyncio.to_thread(learner.step, samples, version=rollouts.version)
        told(step, learned)
        await rollouts.publish(rollouts.version + 1)
        step += 1
    return step
