"""Replies that another package reads: the same message as ours, and what of its reading is not taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers import ParsedToolCall, ToolCallParseStatus

from rollbook.errors import ModelError
from rollbook.trace.message import ParseStatus
from tests.render.families import ADD, MARKERS
from tests.render.package_fakes import broken, faulty_renderer, reads
from tests.render.test_renderers_package import OURS, SMALL, STOP, sampled

GOOD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
CALL = f"<tool_call>\n{GOOD}\n</tool_call>"
BODIES = [
    GOOD,
    "{",
    "[1]",
    "{}",
    '{"name": "add"}',
    '{"name": "sub", "arguments": {}}',
    '{"name": "add", "arguments": {"a": "1", "b": 2}}',
    '{"name": "add", "arguments": {"a": NaN, "b": 2}}',
    '{"name": "add", "name": "add", "arguments": {"a": 1, "b": 2}}',
    '{"name": "add", "arguments": "{}"}',
    '{"name": 1, "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": "add", "arguments": {"a": 1, "b": 2}, "id": 3}',
]


def both(text: str | np.ndarray, *, inside: bool = False, cut: bool = False, package=SMALL):
    ids = sampled(text) if isinstance(text, str) else text
    found = [
        renderer.parse(ids, [ADD], inside_reasoning=inside, cut=cut, call_prefix="t-") for renderer in (package, OURS)
    ]
    assert found[0].closed == found[1].closed
    return found[0].message, found[1].message


def told(message):
    """A message without the reasons of its calls, which may be worded otherwise."""
    calls = [(call.id, call.name, call.arguments, call.raw, call.status) for call in message.tool_calls]
    return message.content, message.reasoning, message.raw, calls


@pytest.mark.parametrize("body", BODIES)
def test_a_body_has_the_status_that_we_give_it(body):
    message, ours = both(f"so\n<tool_call>\n{body}\n</tool_call><|im_end|>")
    assert message.tool_calls[0].status == ours.tool_calls[0].status
    assert message.tool_calls[0].raw == ours.tool_calls[0].raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        " plain \n",
        f"<think>\nhm\n</think>\n\n so \n{CALL} and {CALL} end ",
        f"<think>{CALL}</think>{CALL}",
        f"<think> never closed {CALL}",
        f"<think>a</think>b<think>{CALL}",
        f"no </think> {CALL}",
        f"{CALL[:-12]}",
        f'<tool_call>{{"name": "add", "arguments": {{"a": 1, "b": 2, "c": "<think>"}}}}</tool_call>{CALL}',
    ],
)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_a_reply_is_the_message_that_we_read(text, inside, cut):
    message, ours = both(text if cut else f"{text}<|im_end|>", inside=inside, cut=cut)
    assert told(message) == told(ours)


PARTS = st.lists(st.sampled_from([*MARKERS, CALL, GOOD, "so", " ", "\n", "<|endoftext|>", "ü"]), max_size=9)


@settings(max_examples=300, deadline=None)
@given(PARTS.map("".join), st.booleans(), st.booleans())
def test_no_call_runs_that_ours_would_not_run(text, inside, cut):
    message, ours = both(text, inside=inside, cut=cut)
    runs, allowed = ([call.raw for call in m.tool_calls if call.status is ParseStatus.OK] for m in (message, ours))
    assert all(runs.count(raw) <= allowed.count(raw) for raw in runs)
    assert len(message.tool_calls) == sum(token == sampled("<tool_call>")[0] for token in sampled(text))
    assert (message.content, message.reasoning) == (ours.content, ours.reasoning)


def test_bytes_that_are_no_text_are_kept():
    half = sampled("ü")
    assert len(half) == 2, "the small tokenizer spells this letter as two bytes"
    message, ours = both(np.concatenate((sampled("so "), half[:1], [STOP])).astype(np.int32))
    assert message == ours
    assert message.raw == b"so \xc3"


def test_where_the_package_takes_a_call_and_we_do_not_the_error_says_so():
    message, ours = both('<tool_call>{"name": "add", "arguments": {"a": NaN, "b": 2}}</tool_call><|im_end|>')
    assert ours.tool_calls[0].error in message.tool_calls[0].error
    assert message.tool_calls[0].error.endswith("(the renderers package took it)")


@pytest.mark.parametrize(
    ("body", "status"),
    [("{'name': 'add', 'arguments': {'a': 1, 'b': 2}}", "invalid_json"), (GOOD.replace("1", "7"), "bad_arguments")],
)
def test_a_repaired_call_does_not_run(body, status):
    package, fake = faulty_renderer()
    fake.on_parse = reads(ParsedToolCall(raw=GOOD, name="add", arguments={"a": 1, "b": 2}, token_span=None))
    ids = sampled(f"<tool_call>{body}</tool_call>")
    for span in (None, (0, len(ids))):
        fake.on_parse = reads(ParsedToolCall(raw=GOOD, name="add", arguments={"a": 1, "b": 2}, token_span=span))
        message, _ = both(ids, package=package)
        assert not any(call.status is ParseStatus.OK for call in message.tool_calls)
    assert message.tool_calls[0].status == status
    assert message.tool_calls[0].raw == body


@pytest.mark.parametrize("status", [status for status in ToolCallParseStatus if status != "ok"])
def test_what_the_package_does_not_take_does_not_run(status):
    package, fake = faulty_renderer()
    ids = sampled(CALL)
    fake.on_parse = reads(
        ParsedToolCall(raw=GOOD, name="add", arguments={"a": 1, "b": 2}, token_span=(0, len(ids)), status=status)
    )
    (call,) = both(ids, package=package)[0].tool_calls
    assert call.status is not ParseStatus.OK
    assert call.error


def test_a_reply_that_the_package_fails_at_is_one_typed_error():
    package, fake = faulty_renderer()
    fake.on_parse = broken
    with pytest.raises(ModelError, match="cannot read the reply"):
        both("x", package=package)
