"""How long a parent waits for its workers, whatever they run in, and how often a worker gives a sign of life."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BEAT_SECONDS", "PATIENCE", "Patience"]

BEAT_SECONDS = 0.5
"""Between two signs of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a worker may take."""

    start: float = 600.0
    """To be placed and to load its policy."""
    silent: float = 120.0
    """Without a sign of life: longer, and it is taken for dead, its loop blocked or its machine cut off."""
    stop: float = 60.0
    """To interrupt and keep what runs."""
    exit: float = 5.0
    """For its process to be gone once it is done: threads that somebody left behind hold it up."""


PATIENCE = Patience()
"""What is waited if nobody says otherwise."""
