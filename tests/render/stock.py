"""The families that users run: real tokenizers with their stock templates, each by name, with its stop tokens.

Two vocabularies come from packages under the names of an earlier version of the same model; the tokens that the later
version put in their reserved places get its names here (`_RENAMED`), as its own ``tokenizer.json`` has them. GLM's and
Kimi's tokenizers are in no package: their templates stand on a small byte-level tokenizer, trained here, that has
their control tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from rollbook.models import load_model
from rollbook.models.sentencepiece_file import sentencepiece_json
from rollbook.models.tekken import tekken_json
from rollbook.render import HERMES_EXAMPLES, NATIVE_TOOLS, ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder, shared_encoder
from rollbook.trace.message import Role
from tests.real_tokenizers import mistral_file, template, tokenizer
from tests.render.families import CACHE, small_tokenizer

NOW = datetime(2026, 1, 2, tzinfo=UTC)
"""What templates that ask for the date are told."""

_RENAMED = {
    "llama3_1": {128004: "<|finetune_right_pad_id|>", 128008: "<|eom_id|>", 128010: "<|python_tag|>"},
    "deepseek_v3": {128798: "<think>", 128799: "</think>"},
}
_GLM = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>"]
_GLM += ["<|observation|>", "/nothink", "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"]
_GLM += ["<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"]
_KIMI = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"]
_KIMI += ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"]
_KIMI += ["<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|media_start|>", "<|media_content|>", "<|media_end|>"]
_KIMI += ["<|media_pad|>", "[EOT]"]


@dataclass(frozen=True)
class Stock:
    """A tokenizer, a template, and what a renderer over both needs to know."""

    name: str
    tokenizer: Callable[[], bytes]
    source: Callable[[], str]
    """Gives the template."""
    stops: tuple[str, ...]
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thought: tuple[str, str] = ("", "")
    """How a reasoning block begins and ends in an assistant's turn; empty for a family without."""
    opens: str = ""
    """What the generation prompt writes of a reasoning block."""
    kept: str = ""
    """What history shows in place of `opens` and the reasoning."""
    results: tuple[str, str] = ("", "")
    """How the first results of a conversation begin, and how later ones do, where that differs."""
    ends: Mapping[Role, str] = field(default_factory=dict[Role, str])
    """What ends a turn, by the role that follows, where no token of its own does."""
    loses_system: bool = False
    """True where no system message stands in a rendering whose last message is not a user's."""
    blanks: bool = False
    """True where the tokenizer puts a blank behind each control token."""
    disguised_results: bool = False
    """True where a user's message that is spelled as a tool result is no question."""
    arguments_as_text: bool = False
    """True where the template wants the arguments of a call as JSON text."""

    @cached_property
    def tokenizer_json(self) -> bytes:
        return self.tokenizer()

    @cached_property
    def template(self) -> str:
        return self.source()

    @cached_property
    def added(self) -> dict[str, int]:
        return {entry["content"]: entry["id"] for entry in json.loads(self.tokenizer_json)["added_tokens"]}

    def without_blanks(self, text: str) -> str:
        """Decoded `text` without the blanks that the tokenizer put behind control tokens."""
        if not self.blanks:
            return text
        spelled = "|".join(map(re.escape, sorted(self.added, key=len, reverse=True)))
        return re.sub(f"({spelled}) ", r"\1", text)

    @property
    def config(self) -> RendererConfig:
        return RendererConfig(
            name=self.name,
            stop_ids=frozenset(self.added[stop] for stop in self.stops),
            special_tokens=self.special_tokens,
            variables=self.variables,
            tool_prompt=None if "tools" in self.template else HERMES_EXAMPLES,
            native_tool_prompt=NATIVE_TOOLS,
            now=NOW,
        )

    @cached_property
    def encoder(self) -> Encoder:
        return shared_encoder(self.tokenizer_json)

    @cached_property
    def renderer(self) -> ChatRenderer:
        """Raises `ModelError` where the core refuses the pair."""
        return ChatRenderer.build(self.tokenizer_json, self.template, self.config)


@cache
def _npm(name: str) -> bytes:
    parts = json.loads(tokenizer(name).tokenizer_json)
    renamed = _RENAMED.get(name, {})
    before = {entry["id"]: entry["content"] for entry in parts["added_tokens"] if entry["id"] in renamed}
    for entry in parts["added_tokens"]:
        entry["content"] = renamed.get(entry["id"], entry["content"])
    vocab = parts["model"]["vocab"]
    for token, text in before.items():
        if text in vocab:
            vocab[renamed[token]] = vocab.pop(text)
    return json.dumps(parts, ensure_ascii=False).encode()


def _own(name: str) -> str:
    return json.loads(tokenizer(name).config_json)["chat_template"]


def _qwen(name: str, source: str, **more: Any) -> Stock:
    return Stock(name, lambda: _npm("qwen3"), lambda: template(source), ("<|im_end|>", "<|endoftext|>"), **more)


def _llama(name: str, source: str) -> Stock:
    stops = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    return Stock(name, lambda: _npm("llama3_1"), lambda: template(source), stops, {"bos_token": "<|begin_of_text|>"})


_DEEPSEEK = {
    "bos_token": "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "eos_token": "<\uff5cend\u2581of\u2581sentence\uff5c>",
}


_OUTPUTS = "<\uff5ctool\u2581outputs\u2581begin\uff5c>"
_OUTPUT = "<\uff5ctool\u2581output\u2581begin\uff5c>"


def _deepseek(name: str, source: Callable[[], str], **more: Any) -> Stock:
    return Stock(
        name, lambda: _npm("deepseek_v3"), source, ("<\uff5cend\u2581of\u2581sentence\uff5c>",), _DEEPSEEK, **more
    )


def _mistral(name: str, file: str, convert: Callable[[bytes, str], bytes], **more: Any) -> Stock:
    return Stock(
        name,
        lambda: convert(mistral_file(file), file),
        lambda: template("mistralai-Mistral-Nemo-Instruct-2407"),
        ("</s>",),
        {"bos_token": "<s>", "eos_token": "</s>"},
        loses_system=True,
        **more,
    )


def _smollm2() -> Stock:
    files = load_model("smollm2-135m", CACHE)
    return Stock("smollm2", lambda: files.tokenizer_json, lambda: files.template or "", ("<|im_end|>", "<|endoftext|>"))


_ALL = (
    _qwen("qwen2.5", "Qwen-Qwen2.5-7B-Instruct"),
    _qwen("qwen3", "Qwen-Qwen3-0.6B", thought=("<think>\n", "\n</think>\n\n"), disguised_results=True),
    _qwen("qwen3-2507", "trl/qwen3_instruct_2507"),
    _qwen("qwen3-coder", "Qwen3-Coder"),
    _llama("llama3.1", "meta-llama-Llama-3.1-8B-Instruct"),
    _llama("llama3.2", "meta-llama-Llama-3.2-3B-Instruct"),
    _deepseek("deepseek-v3", lambda: _own("deepseek_v3"), results=(_OUTPUTS + _OUTPUT, "\n" + _OUTPUT)),
    _deepseek(
        "deepseek-v3-trl",
        lambda: template("trl/deepseekv3"),
        thought=("<think>\n", "\n</think>\n\n"),
        opens="<think>\n",
        arguments_as_text=True,
    ),
    _deepseek("deepseek-v3.1", lambda: template("deepseek-ai-DeepSeek-V3.1")),
    _deepseek(
        "deepseek-v3.1-thinking",
        lambda: template("deepseek-ai-DeepSeek-V3.1"),
        variables={"thinking": True},
        thought=("<think>", "</think>"),
        opens="<think>",
        kept="<think></think>",
    ),
    _deepseek(
        "deepseek-r1",
        lambda: template("llama-cpp-deepseek-r1"),
        thought=("<think>\n", "\n</think>\n\n"),
        opens="<think>\n",
        results=(f"{_OUTPUTS}\n{_OUTPUT}", f"\n{_OUTPUT}"),
    ),
    Stock(
        "gemma3",
        lambda: _npm("gemma3"),
        lambda: _own("gemma3"),
        ("<end_of_turn>", "<eos>"),
        {"bos_token": "<bos>", "eos_token": "<eos>"},
    ),
    _mistral("mistral-nemo", "tekken_240718.json", tekken_json),
    _mistral("mistral-v3", "mistral_instruct_tokenizer_240323.model.v3", sentencepiece_json, blanks=True),
    Stock(
        "glm-4.6",
        lambda: small_tokenizer(tuple(_GLM)),
        lambda: template("GLM-4.6"),
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
        thought=("\n<think>", "</think>"),
        kept="\n<think></think>",
        ends={Role.USER: "<|user|>", Role.TOOL: "<|observation|>"},
    ),
    Stock("kimi-k2", lambda: small_tokenizer(tuple(_KIMI)), lambda: template("moonshotai-Kimi-K2"), ("<|im_end|>",)),
)
STOCK = {each.name: each for each in _ALL}


@cache
def stock(name: str) -> Stock:
    """A family by its name."""
    return _smollm2() if name == "smollm2" else STOCK[name]


NAMES = [*STOCK, "smollm2"]
