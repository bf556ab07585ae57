"""Small real tokenizers (byte-level BPE, trained here), stock templates, and the renderers that they make."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from rollbook.render import HERMES_EXAMPLES, ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder
from rollbook.render.template import ChatTemplate
from rollbook.trace.tools import ToolSpec

CACHE = Path(__file__).parent.parent.parent / ".cache" / "rollbook"
"""Where the real model lies."""
TEMPLATES = Path(__file__).parent / "templates"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
SENTENCES = [
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n",
    "<|im_start|>user\nWhat is the sum of two and three?<|im_end|>\n",
    '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>\n<tool_response>\n5\n</tool_response>\n',
    "<think>\nThe user wants the sum.\n</think>\n\nThe answer is five. Übung macht den Meister; 数学が好きです。 🙂🙃",
]


def tokenizer_json(*, marked: bool) -> bytes:
    """A byte-level BPE tokenizer; `marked`: tool-call and reasoning markers are added tokens, not flagged special."""
    return small_tokenizer((*CONTROL, *(MARKERS if marked else [])))


@cache
def small_tokenizer(added: tuple[str, ...]) -> bytes:
    """A byte-level BPE tokenizer, trained here, with `added` as added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    parts = json.loads(tokenizer.to_str())
    size = len(parts["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    parts["added_tokens"] = [
        {"id": size + place, "content": name, "special": name not in MARKERS, **flags}
        for place, name in enumerate(added)
    ]
    return json.dumps(parts).encode()


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


@cache
def encoder(*, marked: bool) -> Encoder:
    return Encoder(tokenizer_json(marked=marked))


@dataclass(frozen=True)
class Family:
    """A template with a tokenizer, and the renderer over both."""

    template: str
    encoder: Encoder
    renderer: ChatRenderer

    @property
    def stop(self) -> int:
        return self.encoder.added["<|im_end|>"]

    @property
    def compiled(self) -> ChatTemplate:
        return ChatTemplate(self.template)


def build(name: str, tokenizer: bytes, text: str) -> Family:
    added = {entry["content"]: entry["id"] for entry in json.loads(tokenizer)["added_tokens"]}
    prompt = HERMES_EXAMPLES if "tools" not in text else None
    stops = frozenset(added[stop] for stop in ("<|im_end|>", "<|endoftext|>"))
    config = RendererConfig(name=name, stop_ids=stops, tool_prompt=prompt)
    return Family(text, Encoder(tokenizer), ChatRenderer.build(tokenizer, text, config))


def _real_folders() -> list[Path]:
    """Folders with a ``tokenizer.json`` and a ``chat_template.jinja``, below the one that ROLLBOOK_TOKENIZERS names."""
    root = os.environ.get("ROLLBOOK_TOKENIZERS")
    return sorted(path.parent for path in Path(root).glob("*/tokenizer.json")) if root else []


SMALL = [f"{name}-{kind}" for name in ("smollm2", "qwen3") for kind in ("marked", "text")]
REAL = {f"real-{folder.name}": folder for folder in _real_folders()}
FAMILIES = [*SMALL, *REAL]


@cache
def family(name: str) -> Family:
    if name in REAL:
        folder = REAL[name]
        return build(name, (folder / "tokenizer.json").read_bytes(), (folder / "chat_template.jinja").read_text())
    which, kind = name.split("-")
    return build(name, tokenizer_json(marked=kind == "marked"), template(which))


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
