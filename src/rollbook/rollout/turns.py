"""Turns of either kind: over token ids, or over messages where the policy is a text-only endpoint."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.rollout import text_turn, turn
from rollbook.rollout.state import RolloutState
from rollbook.trace import Message

__all__ = ["observe", "take_turn"]


async def take_turn(state: RolloutState, observation: Sequence[Message]) -> Message:
    """One request and its reply, recorded. Raises `Stopped` at a limit and `RolloutFailure` where the engine
    failed."""
    text = state.loaded.text
    if text is None:
        return await turn.take_turn(state, observation)
    return await text_turn.take_turn(state, text, observation)


async def observe(state: RolloutState, observation: Sequence[Message]) -> None:
    """Record messages that nothing is sampled behind."""
    if state.loaded.text is None:
        await turn.observe(state, observation)
    else:
        await text_turn.observe(state, observation)
