"""Tensor data of a GGUF file as float32: plain numbers, and the simple block types of ggml.

A block of 32 weights holds a float16 scale ``d`` (and a least value ``m``) and one small integer ``q`` a weight:
``q8_0`` = d * q; ``q4_0`` = d * (q - 8); ``q4_1`` = d * q + m. The low halves of 16 bytes are the block's first 16
weights, the high halves the rest. Source: ``ggml-quants.c`` of the ggml project. Other types are refused, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import ModelError

__all__ = ["Float32", "as_float32", "byte_count"]

Float32 = npt.NDArray[np.float32]
_Bytes = npt.NDArray[np.uint8]

_WIDTH = 32
"""Weights in a block."""


def _halves(blocks: _Bytes, at: int) -> Float32:
    """The float16 that begins at byte `at` of each block: shape (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: _Bytes) -> Float32:
    return np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32)


def _q8_0(blocks: _Bytes) -> Float32:
    return _halves(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def _q4_0(blocks: _Bytes) -> Float32:
    return _halves(blocks, 0) * np.subtract(_nibbles(blocks[:, 2:]), 8, dtype=np.float32)


def _q4_1(blocks: _Bytes) -> Float32:
    return _halves(blocks, 0) * _nibbles(blocks[:, 4:]) + _halves(blocks, 2)


def _bf16(data: _Bytes) -> Float32:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


_PLAIN: dict[int, tuple[int, Callable[[_Bytes], Any]]] = {
    0: (4, lambda data: data.view("<f4")),
    1: (2, lambda data: data.view("<f2")),
    30: (2, _bf16),
}
"""Type -> bytes of a weight, and how they are read."""
_BLOCKED: dict[int, tuple[int, Callable[[_Bytes], Float32]]] = {2: (18, _q4_0), 3: (20, _q4_1), 8: (34, _q8_0)}
"""Type -> bytes of a block, and how blocks are read."""


def byte_count(kind: int, weights: int, name: str) -> int:
    """Bytes of a tensor's data. Raises `ModelError` for a type that cannot be read."""
    if kind in _PLAIN:
        return _PLAIN[kind][0] * weights
    if kind not in _BLOCKED or weights % _WIDTH:
        raise ModelError(
            f"tensor {name} is of ggml type {kind}, which cannot be read; supported are F32, F16, BF16, Q4_0, Q4_1 and "
            "Q8_0: convert the model to one of them"
        )
    return weights // _WIDTH * _BLOCKED[kind][0]


def as_float32(kind: int, data: bytes) -> Float32:
    """The weights in `data`, float32, shape (weights,), in memory of its own; `kind` went through `byte_count`."""
    raw = np.frombuffer(data, np.uint8)
    if kind in _PLAIN:
        return np.array(_PLAIN[kind][1](raw), np.float32)
    size, read = _BLOCKED[kind]
    return read(raw.reshape(-1, size)).reshape(-1)
