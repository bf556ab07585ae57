"""One model in the forms that engines read, made of the GGUF file that Rollbook fetches: dequantised once.

- ``hf``: a folder for vLLM and torch, float32 weights, with the tokenizer and the template of the GGUF file;
- ``hf-changed``: the same with the last norm's weights scaled, so that its logprobs are clearly others;
- ``f32.gguf``: for llama.cpp, the same numbers without rounding.

So every engine computes the same function, up to the number format that it computes in.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from rollbook.models import ModelFiles

__all__ = ["EngineModels", "make_models"]

CHANGED = 0.6
"""The factor of the changed copy's last norm: a flatter distribution."""
DONE = "done.json"

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
_WHOLE = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EngineModels:
    """Where the forms lie."""

    folder: Path

    @property
    def hf(self) -> Path:
        return self.folder / "hf"

    @property
    def changed(self) -> Path:
        return self.folder / "hf-changed"

    @property
    def gguf(self) -> Path:
        return self.folder / "f32.gguf"


def make_models(files: ModelFiles, folder: Path) -> EngineModels:
    """All forms of `files`, made where they are not there yet."""
    made = EngineModels(folder)
    done = folder / DONE
    if done.is_file() and json.loads(done.read_text()) == {"weights": files.weights_hash}:
        return made
    shutil.rmtree(folder, ignore_errors=True)
    reader = gguf.GGUFReader(files.weights)
    tensors = {tensor.name: _numbers(tensor) for tensor in reader.tensors}
    _write_gguf(reader, tensors, made.gguf)
    heads = {"attn_q": _field(reader, "attention.head_count"), "attn_k": _field(reader, "attention.head_count_kv")}
    named = {_name(name): _unpermuted(name, array, heads) for name, array in tensors.items()}
    for place, factor in ((made.hf, 1.0), (made.changed, CHANGED)):
        changed = {**named, _WHOLE["output_norm"]: named[_WHOLE["output_norm"]] * np.float32(factor)}
        _write_hf(files, reader, changed, place)
    done.write_text(json.dumps({"weights": files.weights_hash}))
    return made


def _numbers(tensor: Any) -> Array:
    return np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)


def _field(reader: Any, key: str) -> Any:
    """A value of the model's architecture, or of the file where `key` names one."""
    arch = reader.fields["general.architecture"].contents()
    return reader.fields[key if key in reader.fields else f"{arch}.{key}"].contents()


def _name(name: str) -> str:
    head, _, rest = name.partition(".")
    if head in _WHOLE:
        return _WHOLE[head]
    number, part, _ = rest.split(".")
    return f"model.layers.{number}.{_PARTS[part]}.weight"


def _unpermuted(name: str, array: Array, heads: dict[str, int]) -> Array:
    """GGUF keeps the rows of queries and keys in the order of its own rotary embedding."""
    count = next((heads[part] for part in heads if f".{part}." in name), None)
    if count is None:
        return array
    rows = array.shape[0] // count // 2
    return np.ascontiguousarray(array.reshape(count, rows, 2, -1).swapaxes(1, 2).reshape(array.shape))


def _write_hf(files: ModelFiles, reader: Any, tensors: dict[str, Array], folder: Path) -> None:
    folder.mkdir(parents=True)
    field: Callable[[str], Any] = lambda key: _field(reader, key)  # noqa: E731 (one word instead of two arguments)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": field("embedding_length"),
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": field("rope.freq_base"),
        "max_position_embeddings": field("context_length"),
        "vocab_size": field("vocab_size"),
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": files.eos_id,
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": files.template, **files.special_tokens}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": sorted(files.stop_ids)}))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer.json").write_bytes(files.tokenizer_json)
    _write_safetensors(tensors, folder / "model.safetensors")


def _write_safetensors(tensors: dict[str, Array], path: Path) -> None:
    """The format's own description: the head's length, the head as JSON, the arrays one behind the other."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        head[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, np.dtype("<f4")).tobytes())


def _write_gguf(reader: Any, tensors: dict[str, Array], path: Path) -> None:
    path.parent.mkdir(parents=True)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(
            key, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        )
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
