"""How long to wait before a further try: doubling, capped, and spread, so that many do not return at once."""

from __future__ import annotations

__all__ = ["FIRST", "LONGEST", "jittered"]

FIRST = 0.2
"""Seconds before the first try again, at most."""
LONGEST = 30.0
"""Seconds before any try, at most."""


def jittered(tries: int, chance: float) -> float:
    """Seconds before the next try behind `tries` earlier ones; `chance` in [0, 1) picks a moment in the upper half of
    the wait (equal jitter, as in Brooker, "Exponential Backoff and Jitter", AWS 2015)."""
    longest = min(FIRST * 2.0 ** min(tries, 16), LONGEST)
    return longest * (1.0 + chance) / 2
