"""The weights of a Llama in a GGUF file: read under the names that ``transformers`` uses, and written back.

Rules. Weights are float32 in memory and in the files that are written. A file is written beside another one, whose
key-value pairs it takes over byte for byte (but for those that tell how weights are packed), so tokenizer and template
cannot change. It appears under its name once it is whole. ggml rotates neighbouring components of queries and keys
where ``transformers`` rotates halves, so the rows of those two matrices stand in another order in a GGUF file.
Architectures other than ``llama`` are refused.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rollbook.errors import ModelError
from rollbook.models.gguf_blocks import Float32, as_float32, byte_count
from rollbook.models.gguf_file import F32, GgufHead, GgufValue, read_head

__all__ = ["LLAMA", "hf_name", "integer", "read_tensors", "write_gguf"]

LLAMA = "llama"
_VERSION = 3
_PACKING = frozenset({"general.file_type", "general.quantization_version", "general.alignment"})
_ALIGNMENT = 32
_UINT32 = 4

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_GGUF_WHOLE = {hf: name for name, hf in _WHOLE.items()}
_GGUF_PARTS = {hf: name for name, hf in _PARTS.items()}


def read_tensors(path: Path) -> dict[str, Float32]:
    """Every weight of the Llama at `path` by its name in ``transformers``: float32, in the shapes of torch (rows are
    outputs). Raises `ModelError`."""
    head = read_head(path)
    found: dict[str, Float32] = {}
    try:
        with path.open("rb") as file:
            for row in head.tensors:
                name = hf_name(row.name)
                size = byte_count(row.kind, row.weights, row.name)
                file.seek(head.data_start + row.offset)
                data = file.read(size)
                if len(data) < size:
                    raise ModelError(f"{path} is cut short or damaged: fetch or copy it again")
                array = as_float32(row.kind, data).reshape(row.shape)
                found[name] = _halves_first(array, _heads(head.metadata, name))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    return found


def write_gguf(path: Path, source: Path, tensors: Mapping[str, Float32]) -> None:
    """Write the GGUF file `path`: the head of `source` over `tensors` (names as `read_tensors` gives them), float32.

    Where `source` holds tensors, these must be as many, of the same names and shapes. Raises `ModelError`.
    """
    head = read_head(source)
    named = {_gguf_name(name): _neighbours_first(array, _heads(head.metadata, name)) for name, array in tensors.items()}
    shapes = {row.name: row.shape for row in head.tensors}
    given = {name: array.shape for name, array in named.items()}
    if shapes and shapes != given:
        odd = sorted({name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name)})
        raise ModelError(f"these are not the weights of {source.name}: {', '.join(odd[:3])} differ in name or shape")
    order = [row.name for row in head.tensors] or list(named)
    try:
        _write_whole(path, _head_bytes(head, {name: named[name] for name in order}), [named[name] for name in order])
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror}") from error


def hf_name(name: str) -> str:
    """The name in ``transformers`` of a tensor of a GGUF file. Raises `ModelError` for one that no Llama has."""
    if name in _WHOLE:
        return _WHOLE[name]
    match name.split("."):
        case ["blk", number, part, "weight"] if number.isdecimal() and part in _PARTS:
            return f"model.layers.{number}.{_PARTS[part]}.weight"
        case _:
            raise ModelError(f"tensor {name} belongs to no Llama; weights of other architectures cannot be read")


def integer(metadata: Mapping[str, GgufValue], key: str) -> int:
    """A whole number of the architecture, e.g. ``embedding_length``. Raises `ModelError`."""
    architecture = metadata.get("general.architecture")
    value = metadata.get(f"{architecture}.{key}")
    if architecture != LLAMA or not isinstance(value, int) or value < 1:
        raise ModelError(f"the GGUF file describes no Llama with {key}: architecture {architecture!r}, {value!r}")
    return value


def _gguf_name(name: str) -> str:
    if name in _GGUF_WHOLE:
        return _GGUF_WHOLE[name]
    match name.split("."):
        case ["model", "layers", number, *part, "weight"] if number.isdecimal() and ".".join(part) in _GGUF_PARTS:
            return f"blk.{number}.{_GGUF_PARTS['.'.join(part)]}.weight"
        case _:
            raise ModelError(f"tensor {name} has no place in a Llama's GGUF file")


def _heads(metadata: Mapping[str, GgufValue], name: str) -> int | None:
    """The heads whose rows are reordered; None: this tensor stays as it is."""
    if name.endswith("q_proj.weight"):
        return integer(metadata, "attention.head_count")
    if name.endswith("k_proj.weight"):
        return integer(metadata, "attention.head_count_kv")
    return None


def _halves_first(array: Float32, heads: int | None) -> Float32:
    if heads is None:
        return array
    rows = array.shape[0] // heads // 2
    return np.ascontiguousarray(array.reshape(heads, rows, 2, -1).swapaxes(1, 2).reshape(array.shape))


def _neighbours_first(array: Float32, heads: int | None) -> Float32:
    plain = np.asarray(array, np.float32)
    if heads is None:
        return np.ascontiguousarray(plain)
    rows = plain.shape[0] // heads // 2
    return np.ascontiguousarray(plain.reshape(heads, 2, rows, -1).swapaxes(1, 2).reshape(plain.shape))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _head_bytes(head: GgufHead, tensors: Mapping[str, Float32]) -> bytes:
    pairs = [raw for key, raw in head.pairs.items() if key not in _PACKING]
    pairs.append(_string("general.file_type") + struct.pack("<II", _UINT32, F32))
    rows: list[bytes] = []
    offset = 0
    for name, array in tensors.items():
        shape = struct.pack(f"<I{array.ndim}Q", array.ndim, *array.shape[::-1])
        rows.append(_string(name) + shape + struct.pack("<IQ", F32, offset))
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return b"GGUF" + struct.pack("<IQQ", _VERSION, len(rows), len(pairs)) + b"".join((*pairs, *rows))


def _write_whole(path: Path, head: bytes, arrays: list[Float32]) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(head)
            for array in arrays:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(array.astype("<f4", copy=False).tobytes())
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
