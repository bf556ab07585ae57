"""Keeping memory warm: what an export frees, it takes again for the next samples."""

from __future__ import annotations

from functools import cache

import numpy as np

__all__ = ["keep_freed"]


@cache
def keep_freed() -> None:
    """Let the C library keep freed arrays for later ones instead of giving them back to the system.

    glibc gives large blocks back when they are freed, and each page of a new one is then a fault and 4 KiB of zeros,
    which costs as much as what is computed in it. It stops that for blocks of a size once it has seen one of that size
    freed, up to 32 MiB (mallopt(3), "dynamic mmap threshold"). Other C libraries are not concerned.
    """
    np.empty(_BLOCK, np.uint8)  # never touched, so it costs nothing


_BLOCK = 31 << 20
