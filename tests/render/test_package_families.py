"""Other renderers of the package, over a small tokenizer with the control tokens that each asks for: content stays
content, and a call runs only where our schema check takes it too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from rollbook.errors import ModelError
from rollbook.render.package_reply import BodyKind
from rollbook.render.renderers_package import PackageRenderer
from rollbook.trace.message import Message, ParseStatus, Role
from rollbook.trace.tools import ToolSpec
from tests.render.families import tokenizer_json
from tests.render.test_renderers_package import check_content, said

READ = ToolSpec(
    name="read",
    description="Reads.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        "required": ["path", "line"],
    },
)


@dataclass(frozen=True)
class Package:
    """One renderer of the package, and how it writes a call."""

    tokens: str
    """Its control tokens beside those of Qwen."""
    body: BodyKind
    call: str


GLM = (
    "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n"
    "<arg_key>line</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
)
XML = (
    "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n"
    "<parameter=line>\n{}\n</parameter>\n</function>\n</tool_call>"
)
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{{"path": "a", "line": {}}}<|tool_call_end|><|tool_calls_section_end|>'
)
PACKAGES = {
    "glm-4.5": Package(
        "</arg_key> </arg_value> <arg_key> <arg_value> <sop> <|assistant|> <|observation|> <|system|> <|user|> [gMASK]",
        BodyKind.OTHER,
        GLM,
    ),
    "qwen3.5": Package("<|image_pad|> <|video_pad|> <|vision_end|> <|vision_start|>", BodyKind.OTHER, XML),
    "kimi-k2": Package(
        "<|im_assistant|> <|im_middle|> <|im_system|> <|im_user|> <|tool_call_argument_begin|> <|tool_call_begin|> "
        "<|tool_call_end|> <|tool_calls_section_begin|> <|tool_calls_section_end|>",
        BodyKind.OTHER,
        KIMI,
    ),
    "llama-3": Package(
        "<|begin_of_text|> <|end_header_id|> <|end_of_text|> <|eom_id|> <|eot_id|> <|start_header_id|>",
        BodyKind.OTHER,
        '{{"name": "read", "parameters": {{"path": "a", "line": {}}}}}',
    ),
}


@cache
def renderer(name: str) -> PackageRenderer:
    parts = json.loads(tokenizer_json(marked=True))
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for token in PACKAGES[name].tokens.split():
        number = max(entry["id"] for entry in parts["added_tokens"]) + 1
        parts["added_tokens"].append({"id": number, "content": token, **flags})
    return PackageRenderer.build(json.dumps(parts).encode(), name, name=name)


@pytest.mark.parametrize("name", PACKAGES)
def test_content_that_spells_every_control_token_stays_content(name):
    made = renderer(name)
    hostile = " ".join(made._encoder.added)
    opening = made.open([said(Role.SYSTEM, hostile), said(Role.USER, hostile)], [READ])
    check_content(opening, made)
    plain = made.open([said(Role.SYSTEM, "be good"), said(Role.USER, "hi")], [READ])
    assert control(opening, made) == control(plain, made)
    results = [Message(role=Role.TOOL, content=hostile, call_id="functions.read:0", name="read")]
    for last in made.info.stop_ids:
        added = made.extend(last, results, [READ])
        check_content(added, made)
        assert hostile in made.decode(added.messages[0].token_ids)


def control(rendering, made):
    ids = np.concatenate([message.token_ids for message in rendering.messages])
    return [token for token in ids.tolist() if token in made._encoder.control]


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize(("line", "runs"), [("7", True), ('"7 to 9"', False), ("[7]", False)])
def test_a_call_runs_where_our_check_takes_it(name, line, runs):
    made = renderer(name)
    assert made._reply._form.body is PACKAGES[name].body
    text = PACKAGES[name].call.format(line)
    inside = made.open([said(Role.USER, "hi")], []).inside_reasoning
    text = f"so</think>{text}" if inside else f"<think>so</think>{text}" if name == "glm-4.5" else text
    ids = made._tokenizer.encode(text)
    message = made.parse(np.array(ids, np.int32), [READ], inside_reasoning=inside, cut=False, call_prefix="0-").message
    (call,) = message.tool_calls
    assert (call.status is ParseStatus.OK) == runs, call
    if runs:
        assert (call.name, call.arguments) == ("read", {"path": "a", "line": 7})
    assert call.id == ("functions.read:0" if name == "kimi-k2" else "0-0")


def test_a_renderer_that_leaves_tools_out_is_refused_when_tools_are_given():
    tools = ("calls begin", "calls end", "call begin", "call end", "sep")
    results = ("outputs begin", "outputs end", "output begin", "output end")
    names = ["begin of sentence", "end of sentence", "User", "Assistant", *(f"tool {name}" for name in tools + results)]
    tokens = " ".join("<\uff5c" + name.replace(" ", "\u2581") + "\uff5c>" for name in names)
    PACKAGES["deepseek-v3"] = Package(tokens, BodyKind.OTHER, "")
    with pytest.raises(ModelError, match="leaves out the tool 'read'"):
        renderer("deepseek-v3").open([said(Role.USER, "hi")], [READ])
