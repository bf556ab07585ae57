"""Which form each family writes. A new family is one more file with a `Form`, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from rollbook.render.formats.deepseek import DeepSeekV3, DeepSeekV31
from rollbook.render.formats.form import Form
from rollbook.render.formats.glm import Glm
from rollbook.render.formats.hermes import Hermes
from rollbook.render.formats.kimi import Kimi
from rollbook.render.formats.llama_json import LlamaJson
from rollbook.render.formats.llama_pythonic import LlamaPythonic
from rollbook.render.formats.mistral import Mistral, MistralArgs
from rollbook.render.formats.qwen_xml import QwenXml

__all__ = ["FORMS", "REASONING", "CallFormat", "call_id", "opens_reasoning"]


class CallFormat(StrEnum):
    """How a family spells tool calls."""

    HERMES = "hermes"
    """JSON between markers: Hermes, Qwen2.5, Qwen3, SmolLM3."""
    QWEN_XML = "qwen_xml"
    """Blocks of raw text between markers: Qwen3-Coder, Qwen3.5."""
    LLAMA_JSON = "llama_json"
    """The reply is JSON: Llama 3.1 to 3.3."""
    LLAMA_PYTHONIC = "llama_pythonic"
    """The reply is a list of Python calls: Llama 3.2, Llama 4."""
    MISTRAL = "mistral"
    """A JSON list behind a marker: Mistral up to tokenizer v7."""
    MISTRAL_ARGS = "mistral_args"
    """Name and JSON behind a marker each: Mistral since tokenizer v11."""
    DEEPSEEK_V3 = "deepseek_v3"
    """A section of fenced JSON blocks: DeepSeek V3, R1."""
    DEEPSEEK_V31 = "deepseek_v31"
    """A section of names and JSON: DeepSeek V3.1."""
    GLM = "glm"
    """Pairs of raw text between markers: GLM 4.5 to 4.7."""
    KIMI = "kimi"
    """A section of ids and JSON: Kimi K2."""


FORMS: Mapping[CallFormat, Form] = MappingProxyType(
    {
        CallFormat.HERMES: Hermes(),
        CallFormat.QWEN_XML: QwenXml(),
        CallFormat.LLAMA_JSON: LlamaJson(),
        CallFormat.LLAMA_PYTHONIC: LlamaPythonic(),
        CallFormat.MISTRAL: Mistral(),
        CallFormat.MISTRAL_ARGS: MistralArgs(),
        CallFormat.DEEPSEEK_V3: DeepSeekV3(),
        CallFormat.DEEPSEEK_V31: DeepSeekV31(),
        CallFormat.GLM: Glm(),
        CallFormat.KIMI: Kimi(),
    }
)
"""The form of each format."""

REASONING: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""All pairs of reasoning markers that are known, of whatever family."""


def opens_reasoning(text: str) -> bool:
    """True where `text` ends inside a reasoning block."""
    return any(text.rfind(opens) > text.rfind(closes) for opens, closes in REASONING)


def call_id(format: CallFormat, prefix: str, n: int) -> str:  # noqa: A002 (no other word says it)
    """The id of the nth call of a reply, for families whose calls carry none, or where the policy left it out."""
    return FORMS[format].call_id(prefix, n)
