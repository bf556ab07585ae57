"""Tools for templates that have no place for them: in the template's own form of calls where it has one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rollbook.errors import ConfigError
from rollbook.render import HERMES_EXAMPLES, NATIVE_TOOLS, ChatRenderer, Rendering, ToolPrompt
from rollbook.render.formats import CallFormat
from rollbook.trace.message import Message, ParseStatus, Role
from tests.render.families import ADD
from tests.render.stock import stock

ASKED = [Message(role=Role.USER, content="2 + 3?")]
RESULT = Message(role=Role.TOOL, content="5", call_id="call_0", name="add")


def text(renderer: ChatRenderer, made: Rendering) -> str:
    return renderer.decode(np.concatenate([*(each.token_ids for each in made.messages), made.prompt_ids]))


@pytest.mark.parametrize(
    ("name", "form", "said"),
    [
        ("deepseek-v3.1", CallFormat.DEEPSEEK_V31, '<CALLS><CALL>add<SEP>{"a": 2, "b": 3}<END><ENDS>'),
        (
            "deepseek-v3-trl",
            CallFormat.DEEPSEEK_V3,
            '<CALLS><CALL>function<SEP>add\n```json\n{"a": 2, "b": 3}\n```<END><ENDS>',
        ),
    ],
)
def test_replies_are_read_in_the_form_that_the_template_writes(name: str, form: CallFormat, said: str) -> None:
    """A DeepSeek model calls in its own form whatever a prompt says; read as another, each call would be lost."""
    chosen = stock(name)
    renderer = chosen.renderer
    assert (renderer.call_format, renderer.info.tool_prompt) == (form, NATIVE_TOOLS.label)
    opened = renderer.open(ASKED, [ADD])
    assert '"name": "add"' in text(renderer, opened)
    assert [each.added for each in opened.messages] == [True, False]
    marks = {"CALLS": "tool\u2581calls\u2581begin", "CALL": "tool\u2581call\u2581begin", "SEP": "tool\u2581sep"}
    marks |= {"END": "tool\u2581call\u2581end", "ENDS": "tool\u2581calls\u2581end"}
    ids: list[int] = []
    for part in said.replace(">", "<").split("<"):
        mark = f"<\uff5c{marks[part]}\uff5c>" if part in marks else None
        ids += renderer.encode(part).tolist() if mark is None else [chosen.added[mark]]
    ids.append(min(renderer.info.stop_ids))
    parsed = renderer.parse(np.array(ids, np.int32), [ADD], inside_reasoning=False, cut=False, call_prefix="call_")
    (call,) = parsed.message.tool_calls
    assert (call.name, call.arguments, call.status) == ("add", {"a": 2, "b": 3}, ParseStatus.OK)
    assert "output" in text(renderer, renderer.extend(ids[-1], [RESULT], [ADD]))


def test_results_go_as_the_users_where_no_other_role_is_taken() -> None:
    gemma = stock("gemma3").renderer
    assert gemma.info.tool_prompt is not None
    assert gemma.info.tool_prompt.startswith("hermes-examples-as-user@")
    more = text(gemma, gemma.extend(min(gemma.info.stop_ids), [RESULT], [ADD]))
    assert more == "\n<start_of_turn>user\n5<end_of_turn>\n<start_of_turn>model\n"


def test_a_prompt_that_was_asked_for_is_used() -> None:
    """Without a native prompt the given one stands, and its form is read."""
    chosen = stock("deepseek-v3.1")
    config = dataclasses.replace(chosen.config, tool_prompt=HERMES_EXAMPLES, native_tool_prompt=None)
    renderer = ChatRenderer.build(chosen.tokenizer_json, chosen.template, config)
    assert (renderer.call_format, renderer.info.tool_prompt) == (CallFormat.HERMES, HERMES_EXAMPLES.label)


def test_a_native_prompt_spells_no_results() -> None:
    with pytest.raises(ConfigError, match="leaves results to the template"):
        ToolPrompt(name="n", text="{tools}", native=True, result_open="<r>")
