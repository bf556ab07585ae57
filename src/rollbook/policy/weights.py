"""What a trainer may do to the weights of a running engine, whichever engine it is; `rollbook.policy.control` does it
over HTTP."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

__all__ = ["PauseMode", "WeightControl", "swap_weights"]


class PauseMode(StrEnum):
    """What becomes of the requests that are running."""

    ABORT = "abort"
    """They end as aborted, with the tokens so far."""
    WAIT = "wait"
    """They finish first."""
    KEEP = "keep"
    """They stand still, and go on after the resume with the weights of then."""


class WeightControl(Protocol):
    """The weights of one engine. Every method raises `RolloutFailure` or `UsageError`."""

    async def open(self) -> None:
        """Make the client; nothing is sent. Calling it twice does nothing."""
        ...

    async def close(self) -> None:
        """Close it. Calling it twice does nothing."""
        ...

    async def pause(self, mode: PauseMode) -> None:
        """Let nothing be sampled from here on."""
        ...

    async def resume(self) -> None:
        """Let the engine sample again."""
        ...

    async def update(self, weights: Path, version: int) -> None:
        """Load `weights`, a folder that the engine sees, label them and drop the prefix cache. The engine is paused."""
        ...

    async def version(self) -> int | None:
        """The version of the weights; None where their label names none."""
        ...


async def swap_weights(
    control: WeightControl, weights: Path, version: int, *, mode: PauseMode = PauseMode.KEEP
) -> None:
    """The whole handshake. If it fails behind the pause, the engine stays paused."""
    await control.pause(mode)
    await control.update(weights, version)
    await control.resume()
