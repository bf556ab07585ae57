"""Small tokenizers of every SentencePiece-style form, trained here."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from rollbook.render.encode import Encoder
from tests.render.families import SENTENCES

CONTROL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [
    *SENTENCES,
    "0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ \\x \\u \\U <0x41> [INST] (.;'{}|!?_) don't",
]
BLANK = "\u2581"
RUNS = ["\n\n", "\t\t", 2 * BLANK, 3 * BLANK, 4 * BLANK]
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
LEGACY = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK}, REPLACE]}

_FORMS: dict[str, dict[str, Any]] = {
    "legacy": {"normalizer": LEGACY, "pre_tokenizer": None},
    "always": {"pre_tokenizer": {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}},
    "first": {"pre_tokenizer": {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": False}},
    "never": {"pre_tokenizer": {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "never", "split": False}},
    "gemma": {
        "normalizer": REPLACE,
        "pre_tokenizer": {
            "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False,
        },
    },
    "nfc": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, *LEGACY["normalizers"]]}},
}  # fmt: skip
FORMS = [f"{model}-{form}" for form in _FORMS for model in ("bpe", "unigram")]
"""Every form with byte fallback."""


@cache
def _trained(model: str) -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE() if model == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("(?=[<\\[])|(?<=[>\\]])"), "isolated"), pre_tokenizers.Metaspace()]
    )
    if model == "bpe":
        trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False)
    else:
        trainer = trainers.UnigramTrainer(vocab_size=300, show_progress=False)
    tokenizer.train_from_iterator(3 * WORDS, trainer)
    return json.loads(tokenizer.to_str())["model"]


@cache
def kind_json(name: str, *, fallback: bool = True) -> bytes:
    """A ``tokenizer.json`` of one of `FORMS`; without `fallback` it has an unknown token only."""
    model, form = name.split("-")
    words = [*CONTROL, *(BYTES if fallback else [])]
    trained = _trained(model)
    runs = RUNS if form == "gemma" else []
    made: dict[str, Any] = {"type": trained["type"], "byte_fallback": fallback}
    if model == "bpe":
        vocab = [*words, *(word for word in [*runs, *trained["vocab"]] if word not in words)]
        merges = (
            [["\n", "\n"], ["\t", "\t"], [BLANK, BLANK], [2 * BLANK, 2 * BLANK], [2 * BLANK, BLANK]] if runs else []
        )
        vocab += [one for one in ("\n", "\t", BLANK) if one not in vocab]
        made |= {"vocab": {word: at for at, word in enumerate(dict.fromkeys(vocab))}, "unk_token": "<unk>"}
        made |= {"merges": [*merges, *trained["merges"]], "fuse_unk": True}
    else:
        scored = [[word, score] for word, score in trained["vocab"] if word not in words]
        made |= {"vocab": [*([word, 0.0] for word in words), *([run, -3.0] for run in runs), *scored], "unk_id": 0}
    listed = list(made["vocab"]) if model == "bpe" else [word for word, _ in made["vocab"]]
    added = [
        {"id": listed.index(name), "content": name, "special": name in CONTROL, **FLAGS} for name in [*CONTROL, *runs]
    ]
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", **nothing, **_FORMS[form], "added_tokens": added, "model": made}).encode()


@cache
def kind(name: str, *, fallback: bool = True) -> Encoder:
    return Encoder(kind_json(name, fallback=fallback))
