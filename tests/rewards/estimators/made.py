"""Votes for the tests of this package."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from rollbook.rewards.estimators import TurnVote, Vote

__all__ = ["GROUP", "REWARD", "TURNED", "by_turns", "group", "turned"]

REWARD = st.floats(-1e6, 1e6)


def group(*rewards: float, sampled: Sequence[int] = ()) -> list[Vote]:
    """Members a, b, c ... with these rewards, and so many sampled tokens (by default 1)."""
    tokens = sampled or [1] * len(rewards)
    return [
        Vote(rollout=chr(ord("a") + place), reward=reward, sampled=count)
        for place, (reward, count) in enumerate(zip(rewards, tokens, strict=True))
    ]


def turned(rollout: str, *given: float | None, outcome: float = 0.0, states: str = "") -> Vote:
    """A member with these turn rewards, and `outcome` on top at its end; `states`: one letter for each turn."""
    shown = [*states] or [None] * len(given)
    return Vote(
        rollout=rollout,
        reward=sum(each for each in given if each is not None) + outcome,
        turns=tuple(TurnVote(reward=each, state=state) for each, state in zip(given, shown, strict=True)),
        sampled=len(given),
    )


def by_turns(rows: Sequence[tuple[int, float]]) -> list[float]:
    """The advantages alone, in the order of the turns."""
    assert [turn for turn, _ in rows] == list(range(len(rows)))
    return [value for _, value in rows]


GROUP = st.lists(st.tuples(REWARD, st.integers(0, 500)), max_size=8).map(
    lambda rows: group(*(reward for reward, _ in rows), sampled=[count for _, count in rows])
)
"""Whole rewards and lengths."""

_GIVEN = st.sampled_from([None, None, 0.0, 0.25, 0.5, 1.0, -1.0])
TURNED = st.lists(
    st.tuples(st.lists(st.tuples(_GIVEN, st.sampled_from("xyz")), min_size=1, max_size=5), st.sampled_from([0.0, 1.0])),
    max_size=6,
).map(
    lambda rows: [
        turned(f"r{place}", *(each for each, _ in turns), outcome=outcome, states="".join(state for _, state in turns))
        for place, (turns, outcome) in enumerate(rows)
    ]
)
"""Rewards by turn, before few states."""
