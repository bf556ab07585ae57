"""Small real tokenizers (byte-level BPE, trained here), stock templates, and the renderers that they make."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from rollbook.render import HERMES_EXAMPLES, ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder
from rollbook.trace.tools import ToolSpec

TEMPLATES = Path(__file__).parent / "templates"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
SENTENCES = [
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhat is the sum of two and three?<|im_end|>\n",
    '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>\n<tool_response>\n5\n</tool_response>\n',
    "<think>\nThe user wants the sum.\n</think>\n\nThe answer is five. Übung macht den Meister; 数学が好きです。 🙂🙃",
]


@cache
def tokenizer_json(*, marked: bool) -> bytes:
    """A byte-level BPE tokenizer; `marked`: tool-call and reasoning markers are added tokens, not flagged special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    parts = json.loads(tokenizer.to_str())
    size = len(parts["model"]["vocab"])
    names = [*CONTROL, *(MARKERS if marked else [])]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    parts["added_tokens"] = [
        {"id": size + place, "content": name, "special": name in CONTROL, **flags} for place, name in enumerate(names)
    ]
    return json.dumps(parts).encode()


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


@cache
def encoder(*, marked: bool) -> Encoder:
    return Encoder(tokenizer_json(marked=marked))


@cache
def small(name: str, *, marked: bool) -> ChatRenderer:
    """A renderer over a small tokenizer and a stock template."""
    return build(name, tokenizer_json(marked=marked), template(name))


def build(name: str, tokenizer: bytes, text: str) -> ChatRenderer:
    added = {entry["content"]: entry["id"] for entry in json.loads(tokenizer)["added_tokens"]}
    prompt = HERMES_EXAMPLES if "tools" not in text else None
    stops = frozenset(added[stop] for stop in ("<|im_end|>", "<|endoftext|>"))
    return ChatRenderer.build(tokenizer, text, RendererConfig(name=name, stop_ids=stops, tool_prompt=prompt))


SMALL = {f"{name}-{kind}": (name, kind == "marked") for name in ("smollm2", "qwen3") for kind in ("marked", "text")}


def real_folders() -> list[Path]:
    """Folders with a ``tokenizer.json`` and a ``chat_template.jinja``, below the one that ROLLBOOK_TOKENIZERS names."""
    root = os.environ.get("ROLLBOOK_TOKENIZERS")
    return sorted(path.parent for path in Path(root).glob("*/tokenizer.json")) if root else []


@cache
def real(folder: Path) -> ChatRenderer:
    return build(folder.name, (folder / "tokenizer.json").read_bytes(), (folder / "chat_template.jinja").read_text())


ADD = ToolSpec(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
