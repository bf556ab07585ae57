"""A Llama of a few hundred weights as a GGUF file, written by the reference library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.models.gguf_samples import MERGES, TOKENS, TYPES

SHAPES = {
    "token_embd.weight": (11, 8),
    "output_norm.weight": (8,),
    "blk.0.attn_norm.weight": (8,),
    "blk.0.attn_q.weight": (8, 8),
    "blk.0.attn_k.weight": (4, 8),
    "blk.0.attn_v.weight": (4, 8),
    "blk.0.attn_output.weight": (8, 8),
    "blk.0.ffn_norm.weight": (8,),
    "blk.0.ffn_gate.weight": (3, 8),
    "blk.0.ffn_up.weight": (3, 8),
    "blk.0.ffn_down.weight": (8, 3),
}
"""As numpy counts: 2 heads of 4, one of them for keys and values."""
EPSILON, ROPE_BASE = 0.01, 30.0
"""Far from what anyone takes by default, so that a number that is not read shows."""


def write_llama(path: Path, *, seed: int, replaced: Mapping[str, tuple[Any, Any]] | None = None) -> Path:
    """Random weights; `replaced`: packed data and its type instead, by tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(3)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(len(TOKENS))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    rng = np.random.default_rng(seed)
    for name, shape in SHAPES.items():
        array = rng.normal(size=shape).astype(np.float32)
        if replaced and name in replaced:
            packed, kind = replaced[name]
            writer.add_tensor(name, packed, raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
