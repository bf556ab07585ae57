"""Vocabularies of other libraries: real ones out of mistral-common, small ones trained here."""

from __future__ import annotations

import base64
import io
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import sentencepiece
from hypothesis import strategies as st

MISTRAL = ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3")
WORDS = [
    "a",
    "B",
    "hi",
    "Hello",
    "don't",
    "user",
    "The answer",
    "數",
    "数学",
    "é",
    "e\u0301",
    "🙂",
    "\u0939\u093f",
    "x1234567",
]
SPACES = [
    " ",
    "  ",
    "     ",
    "\n",
    "\n\n\n",
    "\r\n",
    "\t\t",
    "\u00a0",
    "\u2028",
    "\0",
    "<0x41>",
    "\u2581",
    "def f(x):\n    return",
]
texts = st.lists(st.text(max_size=4) | st.sampled_from(WORDS) | st.sampled_from(SPACES), max_size=8).map("".join)
SENTENCES = [
    "The answer is 42; don't panic, user!",
    "Übung macht den Meister.",
    "数学が好きです。",
    "    return x  # hello",
    "<tool> a <tool> b",
]


def mistral_file(name: str) -> Path:
    """A vocabulary file of mistral-common (Apache-2.0)."""
    found = find_spec("mistral_common")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "data" / name


@cache
def tekken_file(size: int) -> bytes:
    """The head of a real one: the order of ranks makes it a vocabulary of its own, of `size` tokens."""
    file = json.loads(mistral_file("tekken_240911.json").read_bytes())
    file["config"]["default_vocab_size"] = size
    del file["vocab"][size:]  # 1000 more than are used, as in the whole
    return json.dumps(file).encode()


@cache
def sentencepiece_model(kind: str, *, fallback: bool = True, defined: bool = False, **options: object) -> bytes:
    """A small model that SentencePiece trained here."""
    written = io.BytesIO()
    given: dict[str, object] = {
        "vocab_size": 420 if fallback else 160,
        "character_coverage": 1.0,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "control_symbols": ["[INST]", "[/INST]"],
        "user_defined_symbols": ["<tool>", "\n\n", "\u2581\u2581"] if defined else [],
    }
    if kind == "unigram":
        given |= {"hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, "abcdefghijklmnopqrstuvwxyz \\xuU 0123456789"] * 3),
        model_writer=written,
        model_type=kind,
        byte_fallback=fallback,
        minloglevel=4,
        **{**given, **options},
    )
    return written.getvalue()


@cache
def rank_file() -> bytes:
    """Ranks of all bytes and of the joints that turn up first in `SENTENCES`."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    for sentence in SENTENCES:
        parts = [bytes([byte]) for byte in sentence.encode()]
        while len(parts) > 3:
            parts = [b"".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
            for part in parts:
                ranks.setdefault(part, len(ranks))
    for word in (*WORDS, "unmerged", " whole"):  # tokens that no merging reaches
        ranks.setdefault(word.encode(), len(ranks))
    return b"\n".join(base64.b64encode(token) + b" %d" % rank for token, rank in ranks.items())
