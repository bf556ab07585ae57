"""Text and token ids that look like those of agents: the standard library's source, in the ids of a real tokenizer.

Random ids would make every compressor and every token table look worse than it is; one page of text over and over
would make them look better.
"""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rollbook.render import ChatRenderer

__all__ = ["Corpus"]


class Corpus:
    """A long stream of token ids, cut at random places."""

    def __init__(self, renderer: ChatRenderer, characters: int) -> None:
        """Encodes about `characters` of source."""
        self._renderer = renderer
        self.ids = renderer.encode(_source(characters))

    def cut(self, rng: np.random.Generator, tokens: int) -> tuple[npt.NDArray[np.int32], str]:
        """`tokens` ids from a random place, and their text."""
        start = int(rng.integers(len(self.ids) - tokens))
        ids = self.ids[start : start + tokens]
        return ids, self._renderer.decode(ids)


def _source(characters: int) -> str:
    """Whole files of the standard library, its tests included, in an order that is random and always the same."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    random.Random(0).shuffle(files)
    found: list[str] = []
    size = 0
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found.append(text)
        size += len(text)
        if size > characters:
            break
    return "\n".join(found)[:characters]
