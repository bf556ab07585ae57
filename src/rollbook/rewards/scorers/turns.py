"""Rewards of single turns, each bound to its turn.

Rules: a turn's reward names the turn's own node, so it goes wherever the turn goes and nowhere else; a turn that is
judged with None has none. Step rewards that tools and `step` gave stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from rollbook.envs.protocol import Rewards
from rollbook.rewards.scorers.scorer import ScoringFailed
from rollbook.trace.message import Message
from rollbook.trace.record import TurnReward
from rollbook.trace.trace import Trace

__all__ = ["EachTurn", "each_turn"]

EachTurn = Callable[[Message], float | None]
"""Judges one reply of the policy; None: it has no reward."""


def each_turn(judge: EachTurn, *, total: bool = True) -> Callable[[Trace], Awaitable[Rewards]]:
    """A scorer that judges every turn by itself.

    `total`: True: the rollout's reward is the sum over its turns; False: it has none of this scorer, only its turns
    have. Raises `ScoringFailed` where a turn's reward is not finite.
    """

    async def score(trace: Trace, /) -> Rewards:
        found: list[TurnReward] = []
        for node, turn in zip(trace.policy_nodes.tolist(), trace.turns(), strict=True):
            value = judge(turn.message)
            if value is None:
                continue
            if not math.isfinite(value):
                raise ScoringFailed(f"the reward of the turn at node {node} is not finite: {value}")
            found.append(TurnReward(int(node), float(value)))
        return Rewards(math.fsum(each.value for each in found) if total else None, turns=tuple(found))

    return score
