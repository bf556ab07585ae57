"""What a running rollout is doing, for people who watch: the part of its time that it is in right now."""

from __future__ import annotations

from enum import StrEnum

from rollbook.rollout.stopwatch import Part

__all__ = ["Phase", "phase_of"]


class Phase(StrEnum):
    """What a rollout that is in flight is doing."""

    SETUP = "setup"
    """Its environment gets ready."""
    WAITING = "waiting"
    """It waits for a limiter."""
    SAMPLING = "sampling"
    """The engine has its request."""
    TOOLS = "tools"
    """Its tools run, or its environment answers."""
    SCORING = "scoring"
    """It is being scored."""
    CLEANUP = "cleanup"
    """Its environment is being freed, and its record written."""
    AGENT = "agent"
    """Rendering, parsing, recording, and the agent's own work."""


_PHASES = {
    Part.SANDBOX: Phase.SETUP,
    Part.LIMITER: Phase.WAITING,
    Part.ENGINE: Phase.SAMPLING,
    Part.TOOL: Phase.TOOLS,
    Part.SCORING: Phase.SCORING,
    Part.CLEANUP: Phase.CLEANUP,
    Part.CPU: Phase.AGENT,
    Part.OTHER: Phase.AGENT,
}


def phase_of(part: Part) -> Phase:
    """The phase of a rollout whose time goes to `part`."""
    return _PHASES[part]
