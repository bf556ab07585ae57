"""Calls as each family's template spells them, written by hand, and tokenizers that have the family's markers."""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from rollbook.render.encode import Encoder
from rollbook.render.formats import CallFormat, ReplyReader
from rollbook.render.formats.families import FORMS
from rollbook.render.formats.form import Form
from rollbook.render.tracked import scaffold
from rollbook.trace.message import Message, ParseStatus
from rollbook.trace.tools import ToolSpec
from tests.render.families import ADD, tokenizer_json

Call = tuple[str, dict[str, Any]]


def spec(name: str, **schema: Any) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object", **schema})


SAY = spec("say", properties={"text": {"type": "string"}}, required=["text"], additionalProperties=False)
DO = spec("do")
TOOLS = [ADD, SAY, DO]
SUM: Call = ("add", {"a": 1, "b": -2})
WORDS: Call = ("say", {"text": 'a "b"\n  é\\ {x} 007'})
NOTHING: Call = ("do", {})


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def xml(value: Any) -> str:
    """A value as Qwen's templates print it."""
    return value if isinstance(value, str) else dumps(value) if isinstance(value, dict | list) else str(value)


def hermes(name: str, arguments: dict[str, Any], _: int) -> str:
    return f"<tool_call>\n{dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def qwen(name: str, arguments: dict[str, Any], _: int) -> str:
    blocks = "".join(f"<parameter={key}>\n{xml(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{blocks}</function>\n</tool_call>"


def llama(name: str, arguments: dict[str, Any], _: int) -> str:
    return dumps({"name": name, "parameters": arguments})


def pythonic(name: str, arguments: dict[str, Any], _: int) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def mistral(name: str, arguments: dict[str, Any], n: int) -> str:
    return dumps({"name": name, "arguments": arguments, "id": native(CallFormat.MISTRAL, name, n)})


def mistral_args(name: str, arguments: dict[str, Any], n: int) -> str:
    return f"[TOOL_CALLS]{name}[CALL_ID]{native(CallFormat.MISTRAL_ARGS, name, n)}[ARGS]{dumps(arguments)}"


def deepseek_v3(name: str, arguments: dict[str, Any], _: int) -> str:
    fenced = f"{name}\n```json\n{dumps(arguments)}\n```"
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{fenced}<｜tool▁call▁end｜>"


def deepseek_v31(name: str, arguments: dict[str, Any], _: int) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(arguments)}<｜tool▁call▁end｜>"


def glm(name: str, arguments: dict[str, Any], _: int) -> str:
    shown = {key: value if isinstance(value, str) else dumps(value) for key, value in arguments.items()}
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in shown.items())
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def kimi(name: str, arguments: dict[str, Any], n: int) -> str:
    own = native(CallFormat.KIMI, name, n)
    return f"<|tool_call_begin|>{own}<|tool_call_argument_begin|>{dumps(arguments)}<|tool_call_end|>"


def native(kind: CallFormat, name: str, n: int) -> str:
    return f"functions.{name}:{n}" if kind is CallFormat.KIMI else f"Call0000{n}"


NATIVE = {CallFormat.KIMI, CallFormat.MISTRAL, CallFormat.MISTRAL_ARGS}
"""Families whose templates write an id in the call."""
WRITERS = {
    CallFormat.HERMES: (hermes, "", "\n", ""),
    CallFormat.QWEN_XML: (qwen, "", "\n", ""),
    CallFormat.LLAMA_JSON: (llama, "", "; ", ""),
    CallFormat.LLAMA_PYTHONIC: (pythonic, "[", ", ", "]"),
    CallFormat.MISTRAL: (mistral, "[TOOL_CALLS][", ", ", "]"),
    CallFormat.MISTRAL_ARGS: (mistral_args, "", "", ""),
    CallFormat.DEEPSEEK_V3: (deepseek_v3, "<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
    CallFormat.DEEPSEEK_V31: (deepseek_v31, "<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"),
    CallFormat.GLM: (glm, "", "\n", ""),
    CallFormat.KIMI: (kimi, "<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>"),
}


def spell(kind: CallFormat, *calls: Call) -> str:
    """The calls of one turn."""
    one, start, between, end = WRITERS[kind]
    return start + between.join(one(name, arguments, n) for n, (name, arguments) in enumerate(calls)) + end


def wrap(kind: CallFormat, body: str) -> str:
    """A hand-written body where one call's body goes."""
    form = FORMS[kind]
    start, end = form.section or ("", "")
    opens = "" if kind in {CallFormat.LLAMA_JSON, CallFormat.LLAMA_PYTHONIC} else form.opens
    return f"{start}{opens}{body}{form.closes if opens and form.closes else ''}{end}"


def think(kind: CallFormat) -> tuple[str, str]:
    opens, closes = FORMS[kind].reasoning[0]
    return opens, closes


def markers_of(form: Form) -> list[str]:
    """All markers that a family's replies are cut at."""
    found = [
        form.opens,
        form.closes,
        *form.inner,
        *(form.section or ()),
        *(text for pair in form.reasoning for text in pair),
    ]
    return list(dict.fromkeys(marker for marker in found if marker))


@cache
def encoder(kind: CallFormat, *, marked: bool) -> Encoder:
    parts = json.loads(tokenizer_json(marked=False))
    size = len(parts["model"]["vocab"]) + len(parts["added_tokens"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    names = markers_of(FORMS[kind]) if marked else []
    parts["added_tokens"] += [{"id": size + n, "content": name, **flags} for n, name in enumerate(names)]
    return Encoder(json.dumps(parts).encode())


@cache
def reader(kind: CallFormat, *, marked: bool) -> ReplyReader:
    made = encoder(kind, marked=marked)
    return ReplyReader(kind, made.vocabulary, made.added)


def ids(kind: CallFormat, text: str, *, marked: bool = True) -> list[int]:
    """`text` with markers as the tokenizer has them."""
    return encoder(kind, marked=marked).encode(scaffold(text), ())[0].token_ids.tolist()


def plain_ids(kind: CallFormat, text: str) -> list[int]:
    """`text` in ordinary tokens, where the markers are tokens."""
    return encoder(kind, marked=True).encode_content(text).tolist()


def read(
    kind: CallFormat,
    text: str | list[int],
    tools: Sequence[ToolSpec] = TOOLS,
    *,
    thinking: bool = False,
    cut: bool = False,
    marked: bool = True,
) -> Message:
    sampled = ids(kind, text, marked=marked) if isinstance(text, str) else text
    made = reader(kind, marked=marked)
    return made.parse(sampled, tools, inside_reasoning=thinking, cut=cut, call_prefix="t4.")


def statuses(message: Message) -> list[ParseStatus]:
    return [call.status for call in message.tool_calls]


def said_calls(message: Message) -> list[tuple[str | None, dict[str, Any] | None]]:
    return [(call.name, call.arguments) for call in message.tool_calls]
