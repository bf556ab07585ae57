"""Replies of gpt-oss: channels, calls and their statuses, what stands in no channel, and any ids at all."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import openai_harmony as library
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.render.harmony import HarmonyEncoding, HarmonyRenderer
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from tests.render.harmony_reply_made import ADD, CALL, CHANNEL, CONSTRAIN, END, MESSAGE, NOW, RETURN, START, TEXT_END

TO_ADD = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
THINK = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
PREAMBLE = "<|channel|>commentary<|message|>"
DRAFT = 'I could write {"name": "add"} or to=functions.add.'
HIEROGLYPH = "\U00013080"
"""A character that takes several tokens."""


class Reader:
    """Replies spelled out, control tokens too."""

    def __init__(self, harmony: HarmonyRenderer, encoding: HarmonyEncoding) -> None:
        self.harmony = harmony
        self.encoding = encoding

    def ids(self, text: str) -> list[int]:
        return self.encoding.encode(text, allowed_special="all")

    def parse(self, reply: str | list[int], **more: Any) -> Message:
        return self.parsed(reply, **more)[0]

    def parsed(
        self, reply: str | list[int], *, cut: bool = False, inside_reasoning: bool = False
    ) -> tuple[Message, bool]:
        ids = np.array(self.ids(reply) if isinstance(reply, str) else reply, np.int32)
        found = self.harmony.parse(ids, [ADD, NOW], inside_reasoning=inside_reasoning, cut=cut, call_prefix="c")
        return found.message, found.closed

    def call(self, reply: str | list[int], **more: Any) -> ToolCall:
        message = self.parse(reply, **more)
        assert not message.content
        (call,) = message.tool_calls
        assert call.id == "c0"
        return call


@pytest.fixture(scope="session")
def read(harmony: HarmonyRenderer, harmony_encoding: HarmonyEncoding) -> Reader:
    return Reader(harmony, harmony_encoding)


@pytest.mark.parametrize(
    ("reply", "content", "reasoning"),
    [
        (FINAL + "Hi<|return|>", "Hi", None),
        (THINK + "Hm<|end|><|start|>assistant" + FINAL + "Hi<|return|>", "Hi", "Hm"),
        (THINK + "<|end|><|start|>assistant" + FINAL + "<|return|>", "", ""),
        (THINK + "A<|end|><|start|>assistant" + THINK + "B<|return|>", "", "AB"),
        (PREAMBLE + "First<|end|><|start|>assistant" + FINAL + " then<|return|>", "First then", None),
        ("<|message|>Bare<|return|>", "Bare", None),
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", "{}", None),
        (FINAL + "Cut", "Cut", None),
        (THINK + f"{DRAFT}<|end|>", "", DRAFT),
        (FINAL + "a<|channel|>b<|message|>c<|constrain|><|return|>", "a<|channel|>b<|message|>c<|constrain|>", None),
        (FINAL + "Hi<|endoftext|>", "Hi", None),
        (FINAL + "Hi<|call|>", "Hi", None),
        (FINAL + "\n Hi \n<|return|>", "\n Hi \n", None),
        ("", "", None),
        ("<|return|>", "", None),
        ("<|start|>assistant" + FINAL + "again<|return|>", "again", None),
    ],
)
def test_channels_are_reasoning_and_content(read: Reader, reply: str, content: str, reasoning: str | None) -> None:
    assert read.parse(reply) == Message(role=Role.ASSISTANT, content=content, reasoning=reasoning)


@pytest.mark.parametrize(
    ("end", "closed"),
    [("<|return|>", True), ("<|call|>", True), ("<|endoftext|>", True), ("<|end|>", False), ("", False)],
)
def test_only_the_stop_ids_close_a_turn(read: Reader, end: str, closed: bool) -> None:
    assert read.parsed(FINAL + "Hi" + end)[1] is closed


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.add <|constrain|>json",
        "<|channel|>commentary to=functions.add<|constrain|>json",
        "<|channel|>commentary to=functions.add <|constrain|> json",
        "<|channel|>commentary to=functions.add json",
        "<|channel|>commentary to=functions.add",
        " to=functions.add<|channel|>commentary <|constrain|>json",
        " to=functions.add<|channel|>commentary json",
        " to=functions.add<|channel|>commentary",
    ],
)
def test_the_recipient_stands_behind_the_role_or_behind_the_channel(read: Reader, header: str) -> None:
    expected = ToolCall(id="c0", name="add", arguments={"a": 1, "b": 2}, raw='{"a": 1, "b":2}')
    assert read.call(header + '<|message|>{"a": 1, "b":2}<|call|>') == expected
    second = THINK + "Hm<|end|><|start|>assistant" + header + '<|message|>{"a": 1, "b":2}<|call|>'
    message = read.parse(second)
    assert (message.reasoning, message.tool_calls) == ("Hm", (expected,))


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ('{"a": 1', ParseStatus.INVALID_JSON, "are not valid JSON"),
        ("", ParseStatus.INVALID_JSON, "are not valid JSON"),
        ('{"a": 1}, "b": 2', ParseStatus.INVALID_JSON, "Extra data"),
        ('{"a": 1, "a": 2}', ParseStatus.INVALID_JSON, "twice"),
        ('{"a": NaN}', ParseStatus.INVALID_JSON, "NaN"),
        ('{"a": "<|message|>"}', ParseStatus.BAD_ARGUMENTS, "integer"),
        ("[" * 70 + "]" * 70, ParseStatus.INVALID_JSON, "deeper"),
        ("[1]", ParseStatus.NOT_AN_OBJECT, "object"),
        ("null", ParseStatus.NOT_AN_OBJECT, "object"),
        ('{"a": "1"}', ParseStatus.BAD_ARGUMENTS, "integer"),
        ('{"b": 1}', ParseStatus.BAD_ARGUMENTS, "'a' is a required property"),
        ('{"a": 1, "c": 1}', ParseStatus.BAD_ARGUMENTS, "'c' was unexpected"),
        ('{"a": 1e999}', ParseStatus.BAD_ARGUMENTS, "too large"),
    ],
)
def test_arguments_are_read_strictly(read: Reader, body: str, status: ParseStatus, says: str) -> None:
    call = read.call(TO_ADD + body + "<|call|>")
    assert (call.name, call.raw, call.status) == ("add", body, status)
    assert says in (call.error or "")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("<|channel|>commentary to=functions.sub <|constrain|>json", "sub"),
        ("<|channel|>commentary to=functions. json", ""),
        ("<|channel|>commentary to=functions.Add json", "Add"),
        ("<|channel|>commentary to=add json", "add"),
        ("<|channel|>analysis to=python code", "python"),
        ("<|channel|>commentary to=browser.search", "browser.search"),
        ("<|channel|>commentary to=functions", "functions"),
        ("<|channel|>analysis to=functions.add json", "add"),
        ("<|channel|>final to=functions.add json", "add"),
        (" to=functions.add", "add"),
    ],
)
def test_a_call_to_what_was_not_offered_there_does_not_run(read: Reader, header: str, name: str) -> None:
    call = read.call(header + '<|message|>{"a": 1}<|call|>')
    assert (call.name, call.raw, call.status) == (name, '{"a": 1}', ParseStatus.UNKNOWN_TOOL)
    assert call.error


def test_an_error_says_what_is_offered_or_where_calls_go(read: Reader) -> None:
    assert read.call(TO_ADD.replace("add", "sub") + "{}<|call|>").error == "there is no tool 'sub'; tools: add, now"
    says = "calls go to functions.NAME in the channel commentary, not to 'functions.add' in the channel analysis"
    assert read.call("<|channel|>analysis to=functions.add<|message|>{}<|call|>").error == says
    assert (read.call(" to=functions.add<|message|>{}<|call|>").error or "").endswith("in no channel")


@pytest.mark.parametrize("end", ["<|end|>", "<|return|>", "<|endoftext|>", "<|start|>", ""])
@pytest.mark.parametrize("cut", [False, True])
def test_a_call_that_does_not_end_in_call_is_unclosed_or_cut(read: Reader, end: str, cut: bool) -> None:
    found = read.parse(TO_ADD + '{"a": 1}' + end, cut=cut)
    (call,) = found.tool_calls
    expected = ParseStatus.CUT if cut and not end else ParseStatus.UNCLOSED
    assert (call.name, call.arguments, call.raw, call.status) == ("add", None, '{"a": 1}', expected)
    assert found.content == ("<|start|>" if end == "<|start|>" else "")


def test_a_complete_call_of_a_cut_reply_keeps_its_status(read: Reader) -> None:
    message = read.parse(TO_ADD + '{"a": 1}<|call|><|start|>assistant' + TO_ADD + '{"a"', cut=True)
    assert [call.status for call in message.tool_calls] == [ParseStatus.OK, ParseStatus.CUT]


def test_what_stands_behind_a_call_is_read_on(read: Reader) -> None:
    second = "<|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    message = read.parse(TO_ADD + '{"a": 1}<|call|> and ' + second)
    assert message.content == " and "
    assert [(call.id, call.name, call.status) for call in message.tool_calls] == [
        ("c0", "add", ParseStatus.OK),
        ("c1", "now", ParseStatus.OK),
    ]


@pytest.mark.parametrize(
    "reply",
    [
        "Hello",
        "to=x",  # no blank behind the role that the prompt wrote
        "<|channel|>foo<|message|>bar",
        "<|channel|> final<|message|>bar",
        "<|channel|><|message|>bar",
        "<|channel|>finally<|message|>bar",
        "<|channel|>final a b<|message|>bar",
        "<|channel|>final functions.add<|message|>bar",
        "<|channel|>final <|constrain|>a b<|message|>bar",
        "<|channel|>final json<|constrain|>json<|message|>bar",
        "<|constrain|>json<|channel|>final<|message|>bar",
        "<|channel|>final<|channel|>final<|message|>bar",
        " json<|channel|>final<|message|>bar",
        "assistant<|channel|>final<|message|>bar",
        "<|channel|>final<|reserved_200009|><|message|>bar",
        "<|channel|>final",
        "<|start|>user<|message|>And now?",
        "<|start|>assistantx<|channel|>final<|message|>bar",
        "<|start|>functions.add to=assistant<|channel|>commentary<|message|>42",
        "<|start|>functions.add to=assistant<|channel|>commentary<|message|>42<|end|>",
        "<|start|>",
        "<|start|>assistant",
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_what_has_no_proper_header_is_content_as_it_stands(read: Reader, reply: str, cut: bool) -> None:
    message = read.parse(reply + "<|return|>", cut=cut)
    if reply == "to=x":
        assert [call.raw for call in message.tool_calls] == ["to=x"]
    else:
        assert message == Message(role=Role.ASSISTANT, content=reply)
    behind = read.parse(THINK + "Hm<|end|>" + (reply if reply.startswith("<|start|>") else f"<|start|>{reply}"))
    assert behind.reasoning == "Hm"


@pytest.mark.parametrize(
    "header",
    [
        " to=functions.add<|channel|>commentary to=functions.add",
        "<|channel|>commentary json to=functions.add",
        "<|channel|>commentary to= json",
        "<|channel|>comment to=functions.add",
        "<|channel|>commentary to=functions.add a b",
        "<|channel|>commentary functions.add json",
        "to=functions.add<|channel|>commentary json",
        "<|channel|>commentary",
        "",
    ],
)
def test_a_call_that_names_no_recipient_properly_has_no_name(read: Reader, header: str) -> None:
    call = read.call(header + '<|message|>{"a": 1}<|call|>')
    assert (call.name, call.arguments, call.status) == (None, None, ParseStatus.MISSING_NAME)
    assert call.error
    assert call.raw in {'{"a": 1}', header + '<|message|>{"a": 1}'}
    assert header in {"", "<|channel|>commentary"} or call.raw != '{"a": 1}'


@pytest.mark.parametrize(
    ("end", "cut", "status"),
    [
        ("", True, ParseStatus.CUT),
        ("", False, ParseStatus.UNCLOSED),
        ("<|return|>", True, ParseStatus.UNCLOSED),
        ("<|call|>", False, ParseStatus.MISSING_NAME),
    ],
)
def test_a_call_without_a_body_is_an_attempt(read: Reader, end: str, cut: bool, status: ParseStatus) -> None:
    header = "<|channel|>commentary to=functions.add"
    call = read.call(header + end, cut=cut)
    assert (call.raw, call.status) == (header, status)


@pytest.mark.parametrize("reply", ["", "Hello", "<|channel|>commentary", "<|channel|>final"])
def test_text_without_a_body_calls_nothing_whatever_ends_it(read: Reader, reply: str) -> None:
    for end in ("<|call|>", "<|return|>", "<|endoftext|>", "<|end|>", ""):
        assert read.parse(reply + end) == Message(role=Role.ASSISTANT, content=reply)


def test_markers_count_by_their_id_only(read: Reader, harmony: HarmonyRenderer) -> None:
    ids = [CHANNEL, *read.ids("final"), MESSAGE, *harmony.encode(f"<|end|>{TO_ADD}<|call|>").tolist(), RETURN]
    assert read.parse(ids) == Message(role=Role.ASSISTANT, content=f"<|end|>{TO_ADD}<|call|>")
    header = harmony.encode("<|channel|>commentary to=functions.add").tolist()
    found = read.call([*header, MESSAGE, *read.ids('{"a": 1}'), CALL])
    assert found.status is ParseStatus.MISSING_NAME
    spelled = harmony.encode(" <|constrain|>json").tolist()
    found = read.call([CHANNEL, *read.ids("commentary to=functions.add"), *spelled, MESSAGE, *read.ids("{}"), CALL])
    assert found.status is ParseStatus.MISSING_NAME


def test_a_reply_may_begin_inside_reasoning(read: Reader) -> None:
    message = read.parse("Hm<|end|><|start|>assistant" + FINAL + "Hi<|return|>", inside_reasoning=True)
    assert message == Message(role=Role.ASSISTANT, content="Hi", reasoning="Hm")


def test_bytes_that_are_no_text_are_kept(read: Reader, harmony: HarmonyRenderer) -> None:
    first = harmony.encode(HIEROGLYPH).tolist()[0]
    message = read.parse([CHANNEL, *read.ids("final"), MESSAGE, first])
    assert message.content == "\ufffd"
    assert message.raw is not None
    assert HIEROGLYPH.encode().startswith(message.raw)
    body = read.call([*read.ids(TO_ADD), first, CALL])
    assert (body.name, body.raw, body.status) == ("add", "\ufffd", ParseStatus.INVALID_JSON)
    recipient = [CHANNEL, *read.ids("commentary to=functions."), first, MESSAGE, *read.ids("{}"), CALL]
    assert read.call(recipient).status is ParseStatus.MISSING_NAME


texts = st.text(st.characters(codec="utf-8"), max_size=8)
bodies = texts | st.sampled_from(['{"a": 1}', '{"a": 1, "b": 2}', "{}", "to=functions.add", "<|call|>"])
thinks = bodies.map(lambda text: ("<|channel|>analysis", text, "<|end|>"))
preambles = bodies.map(lambda text: ("<|channel|>commentary", text, "<|end|>"))
finals = bodies.map(lambda text: ("<|channel|>final", text, "<|return|>"))
placed = st.sampled_from(
    [
        " to=functions.{}<|channel|>commentary <|constrain|>json",
        "<|channel|>commentary to=functions.{} <|constrain|>json",
        "<|channel|>commentary to=functions.{}",
    ]
)
names = st.sampled_from(["add", "now", "x"])
attempts = st.builds(lambda form, name, text: (form.format(name), text, "<|call|>"), placed, names, bodies)


@settings(max_examples=150, deadline=None)
@given(st.lists(thinks | preambles, max_size=3), finals | attempts)
def test_well_formed_replies_are_what_the_library_reads(
    read: Reader, first: list[tuple[str, str, str]], last: tuple[str, str, str]
) -> None:
    ids: list[int] = []
    for header, body, end in [*first, last]:
        ids += read.ids("<|start|>assistant") if ids else []
        ids += [*read.ids(header), MESSAGE, *read.encoding.encode(body, disallowed_special=()), *read.ids(end)]
    message = read.parse(ids)
    theirs = read.encoding.parse_messages_from_completion_tokens(ids, library.Role.ASSISTANT)
    said = [(one.channel, one.recipient, text_of(one)) for one in theirs]
    assert message.content == "".join(text for channel, to, text in said if to is None and channel != "analysis")
    assert (message.reasoning or "") == "".join(text for channel, _, text in said if channel == "analysis")
    calls = [(f"functions.{call.name}", call.raw) for call in message.tool_calls]
    assert calls == [(to, text) for _, to, text in said if to is not None]
    for call in message.tool_calls:
        if call.status is ParseStatus.OK:
            assert call.arguments == msgspec.json.decode(call.raw)


def text_of(message: library.Message) -> str:
    (content,) = message.content
    assert isinstance(content, library.TextContent)
    return content.text


MARKS = [TEXT_END, RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL]
WORDS = [
    "assistant",
    "analysis",
    "commentary",
    "final",
    " to=",
    "functions.",
    "add",
    "json",
    " ",
    '{"a": 1}',
    "\n",
    "Ω",
]
WHOLE = [TO_ADD, THINK, FINAL, "<|start|>assistant", " to=functions.now<|channel|>commentary<|message|>", "Ω<|end|>"]
NO_TEXT = [2**31 - 1, -1, 199_998, 200_018]
anything = st.one_of(
    st.sampled_from(MARKS),
    st.sampled_from(WORDS),
    st.sampled_from(WHOLE),
    st.integers(0, 201_100) | st.sampled_from(NO_TEXT),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(anything, max_size=40), st.booleans(), st.booleans())
def test_any_ids_are_read_and_no_text_is_lost(read: Reader, parts: list[int | str], cut: bool, inside: bool) -> None:
    ids = [token for part in parts for token in (read.ids(part) if isinstance(part, str) else [part])]
    message, closed = read.parsed(ids, cut=cut, inside_reasoning=inside)
    assert closed is (bool(ids) and ids[-1] in {RETURN, CALL, TEXT_END})
    calls = message.tool_calls
    kept = [message.content, message.reasoning or "", *(f"{call.name or ''} {call.raw}" for call in calls)]
    assert "".join(kept).count("Ω") == read.harmony.decode(np.array(ids, np.int32)).count("Ω")
    assert [call.id for call in calls] == [f"c{n}" for n in range(len(calls))]
    for call in calls:
        assert (call.status is ParseStatus.OK) == (call.arguments is not None and call.error is None)
        assert cut or call.status is not ParseStatus.CUT
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_reading_costs_a_microsecond_a_token(read: Reader) -> None:
    body = read.ids("Some words, and some more of them. " * 2_000)
    ids = np.array([CHANNEL, *read.ids("analysis"), MESSAGE, *body, END], np.int32)
    read.harmony.parse(ids, [ADD], inside_reasoning=False, cut=False, call_prefix="c")
    spent: list[float] = []
    for _ in range(5):
        began = time.process_time()
        read.harmony.parse(ids, [ADD], inside_reasoning=False, cut=False, call_prefix="c")
        spent.append(time.process_time() - began)
    assert min(spent) < 1e-4 + 1e-6 * len(ids)


@pytest.mark.parametrize("token", MARKS)
def test_many_markers_cost_no_more_than_their_number(read: Reader, token: int) -> None:
    spent: list[float] = []
    for count in (2_000, 20_000):
        ids = np.array([token] * count, np.int32)
        began = time.process_time()
        read.harmony.parse(ids, [ADD], inside_reasoning=False, cut=False, call_prefix="c")
        spent.append(time.process_time() - began)
    assert spent[1] < 30 * max(spent[0], 0.002), "quadratic would be 100 times"
