"""Routed experts as engines send them, in base64.

vLLM sends a ``.npy`` file over all positions but the last, which is read without pickle: its header is believed only
where the bytes bear it out, so nothing larger than the reply is ever made. SGLang sends the numbers alone (int32), over
the positions that were asked for, and leaves their shape out.
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

__all__ = ["experts_in_npy", "experts_of_shape"]

_KINDS = ("|u1", "<u2", "<i4")
_LARGEST = 2**16 - 1
_UNREADABLE = (ValueError, EOFError, TypeError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError)
"""What numpy's reader raises at headers that are none; it reads them as Python's literals."""


def experts_in_npy(text: str, tokens: int, prompt_tokens: int) -> npt.NDArray[np.uint16]:
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
    return _checked(routed[len(routed) - tokens :])


def experts_of_shape(text: str, tokens: int, shape: tuple[int, int]) -> npt.NDArray[np.uint16]:
    """uint16, shape (tokens, layers, k), out of numbers without a header. `shape`: layers and k.

    Raises `RolloutFailure` (`engine_contract`).
    """
    try:
        flat = np.frombuffer(binascii.a2b_base64(text, strict_mode=True), np.int32)
    except ValueError as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"unreadable routed experts: {error}") from error
    layers, k = shape
    if len(flat) != tokens * layers * k:
        detail = f"{len(flat)} routed experts, not {tokens} tokens of {layers} layers with {k}"
        raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
    return _checked(flat.reshape(tokens, layers, k))


def _checked(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
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
