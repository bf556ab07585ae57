"""A Llama as a folder that ``transformers`` and vLLM load: configuration, weights, tokenizer, chat template.

The shape comes out of the GGUF file that the model was read from, the weights are given, and the tokenizer is the one
that our renderer uses, byte for byte. Weights are float32, in one ``model.safetensors``: the head's length (8 bytes,
little-endian), the head as JSON, then the arrays one behind the other. The folder appears once it is whole.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.models.bundle import ModelFiles
from rollbook.models.gguf_blocks import Float32
from rollbook.models.gguf_file import GgufValue, read_gguf
from rollbook.models.gguf_tensors import integer

__all__ = ["hf_config", "write_hf_folder"]

_HEAD = "lm_head.weight"
_SCALED = "rope.scaling.type"


def write_hf_folder(files: ModelFiles, tensors: Mapping[str, Float32], out: Path) -> None:
    """Write the folder `out`, which must not be there yet. `files`: of a GGUF file of a Llama. `tensors`: its weights,
    names as `read_tensors` gives them. Raises `ModelError`."""
    if out.exists():
        raise ModelError(f"{out} is there already: give the path of a new folder")
    config = hf_config(files, tied=_HEAD not in tensors)
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    texts = {
        "config.json": _json(config),
        "generation_config.json": _json({"eos_token_id": sorted(files.stop_ids)}),
        "tokenizer.json": files.tokenizer_json,
        "tokenizer_config.json": _json({**tokenizer, **files.special_tokens}),
    }
    if files.template is not None:
        texts["chat_template.jinja"] = files.template.encode()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            for name, data in texts.items():
                (scratch / name).write_bytes(data)
            _write_safetensors(scratch / "model.safetensors", tensors)
            scratch.chmod(0o755)
            scratch.rename(out)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise ModelError(f"cannot write {out}: {error.strerror}") from error


def hf_config(files: ModelFiles, *, tied: bool) -> dict[str, Any]:
    """What ``config.json`` holds. `files`: of a GGUF file of a Llama. `tied`: the embedding is the head, too. Raises
    `ModelError`."""
    if files.weights is None:
        raise ModelError(f"{files.name} has no GGUF file that tells the network's shape")
    metadata = read_gguf(files.weights)
    if metadata.get(f"llama.{_SCALED}") not in (None, "none"):
        raise ModelError(f"{files.name} scales its rotary embedding, which is not written to a folder")
    hidden, heads = integer(metadata, "embedding_length"), integer(metadata, "attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": integer(metadata, "feed_forward_length"),
        "num_hidden_layers": integer(metadata, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": integer(metadata, "attention.head_count_kv"),
        "head_dim": hidden // heads,
        "rms_norm_eps": _number(metadata, "attention.layer_norm_rms_epsilon"),
        "rope_theta": _number(metadata, "rope.freq_base"),
        "max_position_embeddings": integer(metadata, "context_length"),
        "vocab_size": integer(metadata, "vocab_size"),
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": files.eos_id,
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }


def _number(metadata: Mapping[str, GgufValue], key: str) -> float:
    value = metadata.get(f"llama.{key}")
    if not isinstance(value, float):
        raise ModelError(f"the GGUF file does not say {key}")
    return float(f"{value:.7g}")  # stored as float32: 1e-05 and not 9.99999974e-06


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _write_safetensors(path: Path, tensors: Mapping[str, Float32]) -> None:
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        head[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
    text = msgspec.json.encode(head)
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(array.astype("<f4", copy=False).tobytes())
