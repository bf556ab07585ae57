"""A simulated prefix cache: how many tokens of a prompt were computed before.

Rule: a prompt shares with what was served before its longest common prefix, rounded down to whole blocks, and never
the whole prompt, for the last token is always computed. Looked at are the session's own latest sequence and the latest
ones that begin alike.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

__all__ = ["PrefixCache"]

_HEAD = 16
_ALIKE = 8
_MOST = 50_000
"""Sessions that are kept."""

Ids = npt.NDArray[np.int32]


class PrefixCache:
    """What was served, as far as a later prompt may share it."""

    def __init__(self, block: int) -> None:
        """`block`: tokens of one block."""
        self._block = block
        self._own: dict[str, Ids] = {}
        self._alike: dict[bytes, deque[Ids]] = {}

    def shared(self, session: str, prompt: Ids) -> int:
        """Tokens of `prompt` out of the cache."""
        heads = self._alike.get(prompt[:_HEAD].tobytes(), ())
        own = self._own.get(session)
        longest = max((_common(each, prompt) for each in (*heads, *(() if own is None else (own,)))), default=0)
        return min(longest, len(prompt) - 1) // self._block * self._block

    def keep(self, session: str, ids: Ids) -> None:
        """`ids`: a prompt and what was sampled behind it."""
        if len(self._own) >= _MOST:
            self.clear()
        self._own[session] = ids
        self._alike.setdefault(ids[:_HEAD].tobytes(), deque(maxlen=_ALIKE)).append(ids)

    def clear(self) -> None:
        """Forget everything."""
        self._own.clear()
        self._alike.clear()


def _common(left: Ids, right: Ids) -> int:
    size = min(len(left), len(right))
    differ = np.flatnonzero(left[:size] != right[:size])
    return int(differ[0]) if len(differ) else size
