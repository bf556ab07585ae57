"""New weights for the embedded engine: its gate is shut, another GGUF file takes the place of the old one, and it goes
on. The handshake is the one of every engine (`rollbook.policy.weights`)."""

from __future__ import annotations

from pathlib import Path

from rollbook.errors import UsageError
from rollbook.policy.local import LocalPolicy
from rollbook.policy.weights import PauseMode

__all__ = ["LocalControl"]


class LocalControl:
    """The weights of one `LocalPolicy`. The policy is started and closed by its own user."""

    def __init__(self, policy: LocalPolicy) -> None:
        self._policy = policy

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        """Nothing of its own is open; a gate that an error left shut opens, for the engine starts anew."""
        await self._policy.gate.open()

    async def pause(self, mode: PauseMode) -> None:
        await self._policy.gate.shut(mode)

    async def resume(self) -> None:
        await self._policy.gate.open()

    async def update(self, weights: Path, version: int) -> None:
        """`weights`: a GGUF file, or a folder with one. The server's cache goes with the server."""
        if not self._policy.gate.paused:
            raise UsageError("the engine still samples: pause it before its weights change")
        await self._policy.load(_file(weights), version)

    async def version(self) -> int | None:
        return self._policy.gate.version


def _file(weights: Path) -> Path:
    if not weights.is_dir():
        return weights
    found = sorted(weights.glob("*.gguf"))
    if len(found) != 1:
        raise UsageError(f"{weights} holds {len(found)} GGUF files: name the one that is meant")
    return found[0]
