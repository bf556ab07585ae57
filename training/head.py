"""What stands before the weights in the GGUF file of `tiny`: the network's shape, tokenizer, template, licence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFWriter

from training.vocabulary import END, PAD, Vocabulary

__all__ = ["SHAPE", "Shape", "write_head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama's shape."""

    layers: int
    hidden: int
    inner: int
    """Width inside the feed-forward blocks."""
    heads: int
    key_heads: int
    """Heads of keys and values."""
    context: int
    epsilon: float = 1e-5
    rope_base: float = 10_000.0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


SHAPE = Shape(layers=4, hidden=128, inner=480, heads=4, key_heads=2, context=1024)
"""About a million weights; a head of 32 is the least that GPU engines serve."""


def write_head(path: Path, vocabulary: Vocabulary, template: str, shape: Shape = SHAPE) -> None:
    """A GGUF file without tensors."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.tokens.index(PAD))
    writer.add_eos_token_id(vocabulary.tokens.index(END))
    writer.add_pad_token_id(vocabulary.tokens.index(PAD))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
