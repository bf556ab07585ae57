"""Routed experts as vLLM sends them: base64 of a ``.npy`` file over all positions but the last, read without pickle.

Rule: the header is believed only where the bytes bear it out, so nothing larger than the reply is ever made.
"""

from __future__ import annotations

import binascii
import io
import tokenize
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["experts_of"]

_KINDS = ("|u1", "<u2", "<i4")
_LARGEST = 2**16 - 1
_UNREADABLE = (ValueError, EOFError, TypeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError)
"""What numpy's reader raises at headers that are none; it reads them as Python's literals."""


def experts_of(text: str, tokens: int, prompt_tokens: int) -> npt.NDArray[np.uint16]:
    """uint16, shape (tokens, layers, k): the experts of the passes that sampled `tokens` tokens, the last rows.

    The engine may begin with the prompt's first position or with its last. Raises `RolloutFailure` (`engine_contract`).
    """
    try:
        routed = _array(binascii.a2b_base64(text, strict_mode=True))
    except _UNREADABLE as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"unreadable routed experts: {error}") from error
    if len(routed) not in (tokens, tokens + prompt_tokens - 1):
        detail = f"routed experts of {len(routed)} positions for {tokens} tokens behind {prompt_tokens}"
        raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
    rows = routed[len(routed) - tokens :]
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) <= _LARGEST:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"an expert is not in 0 to {_LARGEST}")
    return rows.astype(np.uint16)


def _array(data: bytes) -> npt.NDArray[Any]:
    file = io.BytesIO(data)
    if npy.read_magic(file) != (1, 0):  # type: ignore[no-untyped-call]
        raise ValueError("another version of .npy than 1.0")
    shape, by_column, kind = cast("tuple[tuple[int, ...], bool, np.dtype[Any]]", npy.read_array_header_1_0(file))  # type: ignore[no-untyped-call]
    body = data[file.tell() :]
    if kind.str not in _KINDS or by_column or len(shape) != 3 or prod(shape) * kind.itemsize != len(body):
        raise ValueError(f"{len(body)} bytes for {kind} of shape {shape}")
    return np.frombuffer(body, kind).reshape(shape)
