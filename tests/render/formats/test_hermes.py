"""Replies in the Hermes form: markers by id or by text, every attempt kept, nothing repaired."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.render.encode import Encoder
from rollbook.render.formats import CallFormat, ReplyReader, opens_reasoning
from rollbook.render.tracked import scaffold
from rollbook.trace.message import Message, ParseStatus
from tests.render.families import ADD, MARKERS, encoder

OK = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
ENCODERS = {"marked": encoder(marked=True), "text": encoder(marked=False)}
PARSERS = {kind: ReplyReader(CallFormat.HERMES, made.vocabulary, made.added) for kind, made in ENCODERS.items()}
both = pytest.mark.parametrize("kind", ENCODERS)


def ids(made: Encoder, text: str) -> list[int]:
    """`text` with markers as the tokenizer has them."""
    return made.encode(scaffold(text), ())[0].token_ids.tolist()


def parse(kind: str, text: str, *, thinking: bool = False, cut: bool = False) -> Message:
    return PARSERS[kind].parse(ids(ENCODERS[kind], text), [ADD], inside_reasoning=thinking, cut=cut, call_prefix="t4.")


def statuses(message: Message) -> list[ParseStatus]:
    return [call.status for call in message.tool_calls]


@both
def test_reasoning_text_and_calls(kind: str) -> None:
    said = parse(
        kind,
        f"<think>\nadd them\n</think>\n\nI add. <tool_call>\n{OK}\n</tool_call>\n<tool_call>{OK}</tool_call> Done.",
    )
    assert said.reasoning == "\nadd them\n"
    assert said.content == "\n\nI add. \n Done."
    assert statuses(said) == [ParseStatus.OK, ParseStatus.OK]
    assert [call.id for call in said.tool_calls] == ["t4.0", "t4.1"]
    assert [call.raw for call in said.tool_calls] == [f"\n{OK}\n", OK]
    assert said.raw is None


@both
def test_plain_text_is_kept_exactly(kind: str) -> None:
    said = parse(kind, "  \n<b>Five</b> \u2028 é🙂\0\n\n ")
    assert (said.content, said.reasoning, said.tool_calls) == ("  \n<b>Five</b> \u2028 é🙂\0\n\n ", None, ())


@both
def test_an_empty_reply(kind: str) -> None:
    assert parse(kind, "") == Message(role=said_role(), content="")
    assert parse(kind, "", thinking=True).reasoning == ""


def said_role():
    return parse("text", "x").role


@both
def test_bad_calls_stand_beside_good_ones_in_order(kind: str) -> None:
    said = parse(kind, f"<tool_call>{{</tool_call><tool_call>{OK}</tool_call><tool_call>[]</tool_call>")
    assert statuses(said) == [ParseStatus.INVALID_JSON, ParseStatus.OK, ParseStatus.NOT_AN_OBJECT]
    assert said.content == ""


@both
def test_an_open_call_is_unclosed_or_cut(kind: str) -> None:
    text = f"<tool_call>{OK}</tool_call><tool_call>{OK}"
    assert statuses(parse(kind, text)) == [ParseStatus.OK, ParseStatus.UNCLOSED]
    assert statuses(parse(kind, text, cut=True)) == [ParseStatus.OK, ParseStatus.CUT]
    last = parse(kind, text).tool_calls[1]
    assert (last.name, last.arguments, last.raw) == (None, None, OK)
    assert "never closed" in (last.error or "")


@both
def test_a_second_opening_leaves_the_first_unclosed(kind: str) -> None:
    said = parse(kind, f"<tool_call>{OK}\n<tool_call>{OK}</tool_call>")
    assert statuses(said) == [ParseStatus.UNCLOSED, ParseStatus.OK]


@both
def test_calls_inside_reasoning_only_count(kind: str) -> None:
    text = f"I could <tool_call>{OK}</tool_call> or <tool_call>{OK}"
    for given_text, thinking in ((f"<think>{text}</think>Five.", False), (f"{text}</think>Five.", True)):
        said = parse(kind, given_text, thinking=thinking)
        assert statuses(said) == [ParseStatus.INSIDE_REASONING] * 2
        assert (said.reasoning, said.content) == (text, "Five.")
        assert said.tool_calls[0].raw == OK
    assert statuses(parse(kind, text, thinking=True, cut=True)) == [ParseStatus.INSIDE_REASONING] * 2


@both
def test_reasoning_that_never_ends(kind: str) -> None:
    said = parse(kind, "<think>hm, 5?", cut=True)
    assert (said.reasoning, said.content) == ("hm, 5?", "")


@both
def test_markers_that_close_nothing_are_text(kind: str) -> None:
    said = parse(kind, "a</think>b</tool_call>c")
    assert (said.content, said.reasoning, said.tool_calls) == ("a</think>b</tool_call>c", None, ())
    assert parse(kind, "<think>a<think>b</think>c").reasoning == "a<think>b"


@both
def test_reasoning_markers_inside_a_call_are_text(kind: str) -> None:
    said = parse(kind, '<tool_call>{"name": "add", "arguments": {"a": "<think></think>"}}</tool_call>')
    assert said.tool_calls[0].arguments == {"a": "<think></think>"}
    assert said.reasoning is None


@both
def test_several_blocks_of_reasoning(kind: str) -> None:
    said = parse(kind, "<think>a</think>b<think>c</think>d")
    assert (said.reasoning, said.content) == ("ac", "bd")


def test_where_markers_are_tokens_their_spelling_is_text() -> None:
    made = ENCODERS["marked"]
    text = f"<think>no</think><tool_call>{OK}</tool_call>"
    said = PARSERS["marked"].parse(
        made.encode_content(text).tolist(), [ADD], inside_reasoning=False, cut=False, call_prefix="t"
    )
    assert (said.content, said.reasoning, said.tool_calls) == (text, None, ())
    quoted = OK.replace("1", '"</tool_call>"')
    opened, closed = made.added["<tool_call>"], made.added["</tool_call>"]
    spelled = [opened, *made.encode_content(quoted).tolist(), closed]
    said = PARSERS["marked"].parse(spelled, [ADD], inside_reasoning=False, cut=False, call_prefix="t")
    assert said.tool_calls[0].arguments == {"a": "</tool_call>", "b": 2}


def test_where_markers_are_text_they_always_win() -> None:
    said = parse("text", '<tool_call>{"name": "add", "arguments": {"a": "</tool_call>"}}</tool_call>')
    assert statuses(said) == [ParseStatus.INVALID_JSON]
    assert said.content == '"}}</tool_call>'


@both
def test_half_a_marker_is_text(kind: str) -> None:
    said = parse(kind, f"<tool_cal>{OK}</tool_call", cut=True)
    assert (said.content, said.tool_calls) == (f"<tool_cal>{OK}</tool_call", ())


@both
def test_bytes_that_are_not_utf8_are_kept(kind: str) -> None:
    byte = {ENCODERS[kind].vocabulary[token]: token for token in range(256)}
    cut_short = [*ids(ENCODERS[kind], "ok "), *(byte[bytes([part])] for part in "🙂".encode()[:3])]
    said = PARSERS[kind].parse(cut_short, [ADD], inside_reasoning=False, cut=True, call_prefix="t")
    assert said.content == "ok \ufffd"
    assert said.raw == b"ok " + "🙂".encode()[:3]
    assert parse(kind, "a \ufffd b").raw is None


@both
def test_a_call_with_half_a_character_is_not_json(kind: str) -> None:
    byte = {ENCODERS[kind].vocabulary[token]: token for token in range(256)}
    body = OK.replace("1", '"@"')
    before, after = body.split("@")
    made = ENCODERS[kind]
    tokens = [*ids(made, "<tool_call>" + before), byte[b"\xf0"], *ids(made, after + "</tool_call>")]
    said = PARSERS[kind].parse(tokens, [ADD], inside_reasoning=False, cut=False, call_prefix="t")
    assert statuses(said) == [ParseStatus.INVALID_JSON]
    assert said.tool_calls[0].raw == body.replace("@", "\ufffd")


parts = st.sampled_from([*MARKERS, OK, "x", "\n", "{", "é"])


@both
@settings(max_examples=150, deadline=None)
@given(st.lists(parts, max_size=10).map("".join), st.booleans(), st.booleans())
def test_every_attempt_is_kept_and_nothing_is_lost(kind: str, text: str, thinking: bool, cut: bool) -> None:
    said = parse(kind, text, thinking=thinking, cut=cut)
    assert len(said.tool_calls) == text.count("<tool_call>")
    kept = said.content + (said.reasoning or "") + "".join(call.raw for call in said.tool_calls)
    assert all(kept.count(piece) >= text.count(piece) for piece in (OK, "x", "é"))
    ok = [call for call in said.tool_calls if call.status is ParseStatus.OK]
    assert all(call.raw.strip() == OK for call in ok)
    assert cut or ParseStatus.CUT not in statuses(said)


@both
@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_any_ids_parse(kind: str, data: st.DataObject, thinking: bool, cut: bool) -> None:
    made = ENCODERS[kind]
    sampled = data.draw(st.lists(st.integers(0, made.vocab_size + 5), max_size=40))
    said = PARSERS[kind].parse(sampled, [ADD], inside_reasoning=thinking, cut=cut, call_prefix="t")
    assert all(call.status is not ParseStatus.OK or call.raw for call in said.tool_calls)


@both
def test_many_calls_cost_what_they_are_long(kind: str) -> None:
    text = f"<tool_call>{OK}</tool_call>" * 500 + "<tool_call>" * 2000
    tokens = ids(ENCODERS[kind], text)
    started = time.process_time()
    said = PARSERS[kind].parse(tokens, [ADD], inside_reasoning=False, cut=False, call_prefix="t")
    assert len(said.tool_calls) == 2500
    assert time.process_time() - started < 2.0


def test_the_last_marker_tells_whether_reasoning_is_open() -> None:
    opens = {"": False, "<think>\n": True, "<think>\n\n</think>\n": False, "</think><think>": True, "</think>": False}
    assert {text: opens_reasoning(text) for text in opens} == opens
