"""The message graph: identity is what a message says; ids are what was sampled."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.render import ChatRenderer
from rollbook.trace import Message, Role, ToolCall, Trace, message_key
from tests.cases.case import Script, Talk, add_turn, add_user, byte_ids, calls, head, reply, report, run_one, says

QWEN_CALL, QWEN_CALL_END, QWEN_STOP = 151657, 151658, 151645


def called(arguments: dict[str, Any], **fields: Any) -> Message:
    call = ToolCall(id=fields.pop("id", "c"), name="run", arguments=arguments, raw=fields.pop("raw", ""))
    return Message(role=Role.ASSISTANT, tool_calls=(call,), **fields)


@report("F07")
def test_arguments_in_another_order_are_the_same_message_with_the_sampled_ids(
    given: dict[str, Any], qwen: ChatRenderer
) -> None:
    sampled, replayed = (qwen.encode(given[key]).tolist() for key in ("sampled", "replayed"))
    place = next(place for place, (a, b) in enumerate(zip(sampled, replayed, strict=False)) if a != b)
    assert place == given["first_different_position"]

    ids = [QWEN_CALL, *sampled, QWEN_CALL_END, QWEN_STOP]
    script = Script([reply(ids), reply([*byte_ids("ok"), QWEN_STOP])])
    trace = run_one(Talk, script, renderer=qwen)
    turn, result = trace.turns()[0], trace.graph.messages[2]
    assert turn.message.tool_calls[0].raw == given["sampled"]
    again = called(json.loads(given["replayed"])["arguments"], id="invented", raw=given["replayed"])
    assert message_key(again) == message_key(turn.message)
    assert trace.graph.locate([trace.graph.messages[0], again, result]) == (2, 3)
    assert trace.graph.path_ids(turn.index)[-len(ids) :].tolist() == ids
    assert script.prompts[1][: len(trace.graph.path_ids(turn.index))][-len(ids) :].tolist() == ids


def shuffled(value: Any, rng: random.Random) -> Any:
    match value:
        case dict():
            items = [(key, shuffled(item, rng)) for key, item in value.items()]
            rng.shuffle(items)
            return dict(items)
        case list():
            return [shuffled(item, rng) for item in value]
        case _:
            return value


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3) | st.sampled_from(["\ud835", "\0"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@examples(ARGUMENTS, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_of_keys_never_matters_at_any_depth(arguments: dict[str, Any], rng: random.Random) -> None:
    assert message_key(called(arguments)) == message_key(called(shuffled(arguments, rng)))


@examples(ARGUMENTS, ARGUMENTS)
@settings(max_examples=50, deadline=None)
def test_other_values_are_another_message(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (message_key(called(one)) == message_key(called(other))) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"a": "\ud835"}, {"a": "\\ud835"}),
    ],
)
def test_what_differs_in_value_is_another_message(one: dict[str, Any], other: dict[str, Any]) -> None:
    trace = Trace(head())
    add_user(trace, "?", [1])
    add_turn(trace, called(one), [2])
    user = trace.graph.messages[0]
    assert trace.graph.locate([user, called(one)]) == (1, 2)
    assert trace.graph.locate([user, called(other)]) == (0, 1)


@pytest.mark.parametrize("spelled", ['{"b": 1, "a": "x"}', '{"a":"x","b":1}', '{ "a": "x",\n "b": 1 }'])
def test_the_next_prompt_holds_the_spelling_that_was_sampled(spelled: str) -> None:
    sampled = calls("run", spelled)
    script = Script([sampled, says("ok")])
    trace = run_one(Talk, script)
    (call,) = trace.turns()[0].message.tool_calls
    assert call.arguments == {"a": "x", "b": 1}
    ids = list(sampled.token_ids)
    end = len(trace.graph.path_ids(1))
    assert script.prompts[1][end - len(ids) : end].tolist() == ids
