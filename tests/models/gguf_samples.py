"""Small GGUF files, written by the reference library."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

TOKENS = ["<unk>", "<|im_start|>", "<|im_end|>", "<think>", "a", "b", "1", "2", "ab", "Ġ", "Ċ"]
TYPES = [2, 3, 3, 4, 1, 1, 1, 1, 1, 1, 1]
MERGES = ["a b"]


def write(path: Path, *, tensors: bool = True, **changes: Any) -> Path:
    """A model of 11 tokens; `changes` override or (None) leave out values by short name."""
    given = {
        "model": "gpt2", "pre": "smollm", "tokens": TOKENS, "types": TYPES, "merges": MERGES,
        "template": "{{ messages }}", "bos": 1, "eos": 2, "context": 64, "scores": None, "prefix": None,
    } | changes  # fmt: skip
    writer = gguf.GGUFWriter(path, "llama")
    setters = {
        "model": writer.add_tokenizer_model, "pre": writer.add_tokenizer_pre, "tokens": writer.add_token_list,
        "types": writer.add_token_types, "merges": writer.add_token_merges, "template": writer.add_chat_template,
        "bos": writer.add_bos_token_id, "eos": writer.add_eos_token_id, "context": writer.add_context_length,
        "scores": writer.add_token_scores, "prefix": writer.add_add_space_prefix,
    }  # fmt: skip
    for key, setter in setters.items():
        if given[key] is not None:
            setter(given[key])
    writer.add_license("mit")
    if tensors:
        writer.add_tensor("weight", np.arange(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
