"""Each stock template's spelling is read back by exactly one format. The texts are written by hand."""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

from typing import Any

import pytest

from rollbook.render.formats import CallFormat, reads_back
from tests.render.formats.writing import spec

FIND = spec(
    "find",
    properties={
        "n": {"type": "integer"},
        "text": {"type": "string"},
        "deep": {"type": "object"},
        "on": {"type": "boolean"},
        "none": {"type": ["null", "string"]},
    },
)
ARGUMENTS = {"n": 1, "text": 'x "y"\né', "deep": {"k": [1, None, True]}, "on": False, "none": None}
JSON = '{"n": 1, "text": "x \\"y\\"\\né", "deep": {"k": [1, null, true]}, "on": false, "none": null}'
HERMES = f'<tool_call>\n{{"name": "find", "arguments": {JSON}}}\n</tool_call>'
XML = (
    '<tool_call>\n<function=find>\n<parameter=n>\n1\n</parameter>\n<parameter=text>\nx "y"\né\n</parameter>\n'
    '<parameter=deep>\n{"k": [1, null, true]}\n</parameter>\n<parameter=on>\nFalse\n</parameter>\n'
    "<parameter=none>\nNone\n</parameter>\n</function>\n</tool_call>"
)
GLM = (
    "<tool_call>find\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>text</arg_key>\n"
    '<arg_value>x "y"\né</arg_value>\n<arg_key>deep</arg_key>\n<arg_value>{"k": [1, null, true]}</arg_value>\n'
    "<arg_key>on</arg_key>\n<arg_value>false</arg_value>\n<arg_key>none</arg_key>\n<arg_value>null</arg_value>\n</tool_call>"
)
V3 = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n{JSON}\n```<｜tool▁call▁end｜>"
V31 = f"<｜tool▁call▁begin｜>find<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>"
DEEPSEEK = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
MISTRAL = f'{{"name": "find", "arguments": {JSON}, "id": "abcdefgh0"}}'
ARGS = f"[TOOL_CALLS]find[CALL_ID]abcdefgh0[ARGS]{JSON}"


def kimi(n: int) -> str:
    return f"<|tool_call_begin|>functions.find:{n}<|tool_call_argument_begin|>{JSON}<|tool_call_end|>"


SECTION = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
STOCK: dict[str, tuple[CallFormat, int, str]] = {
    "Qwen2.5": (CallFormat.HERMES, 2, f"Looking.\n{HERMES}\n{HERMES}"),
    "Qwen3": (CallFormat.HERMES, 2, f"<think>\nhm\n</think>\n\nLooking.\n{HERMES}\n{HERMES}"),
    "Hermes 3": (CallFormat.HERMES, 1, HERMES),
    "Qwen3-Coder": (CallFormat.QWEN_XML, 2, f"Looking.\n\n{XML}\n{XML}"),
    "Qwen3.5": (CallFormat.QWEN_XML, 1, f"<think>\nhm\n</think>\n\n{XML}"),
    "Llama 3.1": (CallFormat.LLAMA_JSON, 1, f'{{"name": "find", "parameters": {JSON}}}'),
    "Llama 4": (
        CallFormat.LLAMA_PYTHONIC,
        1,
        f"[find({', '.join(f'{key}={value!r}' for key, value in ARGUMENTS.items())})]",
    ),
    "Mistral Nemo": (CallFormat.MISTRAL, 2, f"[TOOL_CALLS][{MISTRAL}, {MISTRAL.replace('h0', 'h1')}]"),
    "Mistral Small 3.2": (CallFormat.MISTRAL_ARGS, 2, f"{ARGS}{ARGS.replace('h0', 'h1')}"),
    "Devstral": (CallFormat.MISTRAL_ARGS, 1, f"Looking.[TOOL_CALLS]find[ARGS]{JSON}"),
    "DeepSeek V3, R1": (CallFormat.DEEPSEEK_V3, 2, f"{DEEPSEEK[0]}{V3}\n{V3}{DEEPSEEK[1]}"),
    "DeepSeek V3.1": (CallFormat.DEEPSEEK_V31, 2, f"<think></think>Looking.{DEEPSEEK[0]}{V31}{V31}{DEEPSEEK[1]}"),
    "GLM 4.6": (CallFormat.GLM, 2, f"\n<think>hm</think>\nLooking.\n{GLM}\n{GLM}"),
    "GLM 4.7": (CallFormat.GLM, 1, "<think>hm</think>" + GLM.replace(">\n<", "><").replace("find\n", "find")),
    "Kimi K2": (CallFormat.KIMI, 2, f"Looking.{SECTION[0]}{kimi(0)}{kimi(1)}{SECTION[1]}"),
}


@pytest.mark.parametrize("name", STOCK)
def test_exactly_one_format_reads_a_template_back(name: str) -> None:
    kind, count, text = STOCK[name]
    calls = [("find", ARGUMENTS)] * count
    assert [one for one in CallFormat if reads_back(one, text, calls, [FIND])] == [kind]


def test_other_calls_are_not_read_back() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    tools = [spec("f"), spec("g")]

    def back(*calls: tuple[str, dict[str, Any]]) -> bool:
        return reads_back(CallFormat.HERMES, text, calls, tools)

    assert back(("f", {"a": 1}))
    assert not back(("g", {"a": 1}))
    assert not back(("f", {"a": 1.0}))
    assert not back(("f", {"a": True}))
    assert not back(("f", {"a": 1}), ("f", {"a": 1}))
    assert not back()
    assert not reads_back(CallFormat.HERMES, text + "<tool_call>", [("f", {"a": 1})], tools)
    assert not reads_back(CallFormat.HERMES, text, [("f", {"a": 1})], [])
