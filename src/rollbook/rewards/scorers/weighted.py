"""A reward made of parts.

Rules: the total is the sum of each part times its weight; each part is kept under its name as it was scored, without
its weight. Parts are scored one after the other, in the order in which they are given, so put the cheap ones first. A
part that fails fails the whole, and a part that says nothing leaves no total: what is missing is never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rollbook.envs.protocol import Rewards
from rollbook.errors import ConfigError
from rollbook.rewards.scorers.scorer import Scorer
from rollbook.trace.record import TurnReward
from rollbook.trace.trace import Trace

__all__ = ["weighted"]


def weighted(parts: Mapping[str, tuple[Scorer, float]]) -> Scorer:
    """A scorer of several named parts, each with its weight. Raises `ConfigError` without a part, or for a weight that
    is not finite.

    A part's own parts and metrics are kept behind its name and a dot; its turn rewards count as they are.
    """
    if not parts:
        raise ConfigError("weighted: name at least one part")
    for name, (_, weight) in parts.items():
        if not math.isfinite(weight):
            raise ConfigError(f"weighted: the weight of {name!r} is {weight}; it must be finite")
    rows = tuple((name, scorer, weight) for name, (scorer, weight) in parts.items())

    async def score(trace: Trace, /) -> Rewards:
        totals: list[float | None] = []
        kept: dict[str, float] = {}
        metrics: dict[str, float] = {}
        turns: tuple[TurnReward, ...] = ()
        for name, scorer, weight in rows:
            given = await scorer(trace)
            one = given if isinstance(given, Rewards) else Rewards(given)
            totals.append(None if one.total is None else weight * float(one.total))
            if one.total is not None:
                kept[name] = float(one.total)
            kept |= {f"{name}.{inner}": value for inner, value in one.parts.items()}
            metrics |= {f"{name}.{inner}": value for inner, value in one.metrics.items()}
            turns += one.turns
        known = [each for each in totals if each is not None]
        total = math.fsum(known) if len(known) == len(totals) else None
        return Rewards(total, parts=kept, metrics=metrics, turns=turns)

    return score
