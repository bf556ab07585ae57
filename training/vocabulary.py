"""The small tokenizer of `tiny`: byte-level BPE with each digit a token of its own, and ChatML's marks as added tokens.

Only what stands between two marks is merged, so no token holds a part of a mark; the same text always gives the same
merges. The pre-tokenizer is the one that llama.cpp calls ``smollm``, so that a GGUF file can name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["CONTROL", "END", "MARKS", "PAD", "Vocabulary", "learn", "single_bytes"]

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL = (PAD, START, END)
"""Control tokens: the first ids."""
MARKS = ("<tool_call>", "</tool_call>")
"""Added tokens that are text too: the next ids."""
SIZE = 384
"""Tokens in all."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens by id, and the merges in their order."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]

    @property
    def end_id(self) -> int:
        """The token that ends an assistant's turn."""
        return self.tokens.index(END)

    @property
    def types(self) -> list[int]:
        """Each token's type as GGUF counts: 1 plain, 3 control, 4 added by the user."""
        return [3 if token in CONTROL else 4 if token in MARKS else 1 for token in self.tokens]


def single_bytes() -> Vocabulary:
    """Marks and bytes: enough to render with before anything was learnt. (A GGUF file must name one merge.)"""
    return Vocabulary((*CONTROL, *MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th"), ("t h",))


def learn(texts: Iterable[str], size: int = SIZE) -> Vocabulary:
    """Merges from whole chats, their marks spelled out."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    learner.decoder = decoders.ByteLevel()
    cut = re.compile("|".join(map(re.escape, (*CONTROL, *MARKS))))
    pieces = [piece for text in texts for piece in cut.split(text) if piece]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*CONTROL, *MARKS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(pieces, trainer)
    found: dict[str, Any] = json.loads(learner.to_str())["model"]
    tokens = sorted(found["vocab"], key=found["vocab"].__getitem__)
    return Vocabulary(tuple(tokens), tuple(" ".join(pair) for pair in found["merges"]))
