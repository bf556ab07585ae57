"""What holds for every family: order, reasoning, cuts, ids, nothing lost, nothing repaired."""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.render.formats import CallFormat, ReplyReader
from rollbook.render.formats.families import FORMS
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import (
    ADD,
    NATIVE,
    NOTHING,
    SUM,
    TOOLS,
    WORDS,
    Call,
    encoder,
    ids,
    markers_of,
    native,
    plain_ids,
    read,
    reader,
    said_calls,
    spell,
    statuses,
    think,
    wrap,
)

every = pytest.mark.parametrize("kind", list(CallFormat))
both = pytest.mark.parametrize("marked", [True, False], ids=["tokens", "text"])
MARKERLESS = {CallFormat.LLAMA_JSON, CallFormat.LLAMA_PYTHONIC}
CLOSING = [kind for kind in CallFormat if FORMS[kind].closes and kind not in MARKERLESS]
OPENING = [kind for kind in CallFormat if kind not in MARKERLESS]
SECTIONED = [kind for kind in CallFormat if FORMS[kind].section]


@every
@both
def test_parallel_calls_keep_their_order(kind: CallFormat, marked: bool) -> None:
    said = read(kind, spell(kind, SUM, WORDS, NOTHING), marked=marked)
    assert statuses(said) == [ParseStatus.OK] * 3
    assert said_calls(said) == [SUM, WORDS, NOTHING]
    assert said.content.strip() == ""
    assert said.reasoning is None


@every
@both
def test_reasoning_is_split_off_before_calls_are_read(kind: CallFormat, marked: bool) -> None:
    opens, closes = think(kind)
    draft = spell(kind, ("do", {"draft": 1}))
    for text, thinking in ((f"{opens}\nI try {draft}\n{closes}", False), (f"\nI try {draft}\n{closes}", True)):
        said = read(kind, f"{text}\n\n{spell(kind, NOTHING)}", thinking=thinking, marked=marked)
        ran = [call for call in said.tool_calls if call.status is ParseStatus.OK]
        assert [(call.name, call.arguments) for call in ran] == [NOTHING]
        assert said.reasoning == f"\nI try {draft}\n"
        drafts = [call for call in said.tool_calls if call.status is not ParseStatus.OK]
        assert [call.status for call in drafts] == [ParseStatus.INSIDE_REASONING] * (kind not in MARKERLESS)


@every
@both
@pytest.mark.parametrize("cut", [True, False])
def test_nothing_runs_out_of_reasoning_that_is_left_open(kind: CallFormat, marked: bool, cut: bool) -> None:
    text = f"I should look\n{spell(kind, SUM, NOTHING)}"
    for given_text, thinking in ((think(kind)[0] + text, False), (text, True)):
        said = read(kind, given_text, thinking=thinking, cut=cut, marked=marked)
        assert set(statuses(said)) <= {ParseStatus.INSIDE_REASONING}
        assert bool(said.tool_calls) == (kind not in MARKERLESS)
        assert (said.reasoning, said.content) == (text, "")


@every
def test_a_prompt_that_opens_reasoning_needs_only_the_closing_marker(kind: CallFormat) -> None:
    closes = think(kind)[1]
    said = read(kind, f"reason\n{closes}\n\nA1", thinking=True)
    assert (said.reasoning, said.content, said.tool_calls) == ("reason\n", "\n\nA1", ())
    assert read(kind, f"reason\n{closes}\n\nA1").content == f"reason\n{closes}\n\nA1"


@pytest.mark.parametrize("kind", OPENING)
@both
def test_text_around_calls_is_content_as_it_was_sampled(kind: CallFormat, marked: bool) -> None:
    said = read(kind, f"  \nLooking é.\n\n{spell(kind, SUM)}", marked=marked)
    assert (said.content, said_calls(said)) == ("  \nLooking é.\n\n", [SUM])


@pytest.mark.parametrize("kind", CLOSING)
def test_text_behind_calls_is_content(kind: CallFormat) -> None:
    assert read(kind, f"{spell(kind, SUM)}\nDone. ").content == "\nDone. "


@every
def test_a_reply_without_calls(kind: CallFormat) -> None:
    for text in ("", " \n", "Five.", '{"answer": 5}', "[1, 2]", "f(x)"):
        said = read(kind, text)
        assert (said.content, said.tool_calls, said.raw) == (text, (), None)


@every
@both
def test_a_call_that_is_cut_never_runs(kind: CallFormat, marked: bool) -> None:
    """At every place: a cut in the last call leaves the calls before it as they are, and that one `cut`."""
    tokens = ids(kind, spell(kind, SUM, WORDS), marked=marked)
    closed = reader(kind, marked=marked)
    for end in range(len(tokens)):
        said = closed.parse(tokens[:end], TOOLS, inside_reasoning=False, cut=True, call_prefix="t")
        assert statuses(said).count(ParseStatus.OK) <= 1 or FORMS[kind].section is not None
        done = [call for call in said.tool_calls if call.status is ParseStatus.OK]
        assert all(call.name == name for call, name in zip(done, ("add", "say"), strict=False))
        assert ParseStatus.CUT not in statuses(said)[:-1]
        assert ParseStatus.UNCLOSED not in statuses(said)
        assert not said.tool_calls or statuses(said)[-1] in {ParseStatus.CUT, ParseStatus.OK}


@every
def test_a_cut_inside_the_last_value_is_cut_and_not_malformed(kind: CallFormat) -> None:
    text = spell(kind, ("say", {"text": "a long line of text"}))
    said = read(kind, text[: text.index("line")], cut=True)
    assert statuses(said) == [ParseStatus.CUT]
    assert "limit cut" in (said.tool_calls[0].error or "")
    assert said.tool_calls[0].arguments is None


@every
def test_the_same_end_without_a_limit(kind: CallFormat) -> None:
    text = spell(kind, ("say", {"text": "a long line of text"}))
    said = read(kind, text[: text.index("line")])
    expected = ParseStatus.UNCLOSED if kind in CLOSING else ParseStatus.INVALID_JSON
    assert statuses(said) == [expected]


@pytest.mark.parametrize("kind", CLOSING)
@both
def test_a_second_opening_leaves_the_first_unclosed(kind: CallFormat, marked: bool) -> None:
    form = FORMS[kind]
    start, end = form.section or ("", "")
    one = spell(kind, NOTHING).removeprefix(start).removesuffix(end)
    said = read(kind, f"{start}{one.removesuffix(form.closes or '')}{one}{end}", marked=marked)
    assert statuses(said) == [ParseStatus.UNCLOSED, ParseStatus.OK]
    assert form.closes is not None
    assert form.closes in (said.tool_calls[0].error or "")


@pytest.mark.parametrize("kind", SECTIONED)
@both
def test_calls_stand_in_their_section(kind: CallFormat, marked: bool) -> None:
    start, end = FORMS[kind].section or ("", "")
    one = spell(kind, NOTHING).removeprefix(start).removesuffix(end)
    outside = read(kind, f"{one} {start}{one}{end}", marked=marked)
    assert statuses(outside) == [ParseStatus.INVALID_JSON, ParseStatus.OK]
    assert "outside" in (outside.tool_calls[0].error or "")
    spaced = read(kind, f"x{start}\n{one} \n{one}\n{end}", marked=marked)
    assert (spaced.content, len(spaced.tool_calls)) == ("x", 2)
    told = read(kind, f"{start}{one} then {one}{end}", marked=marked)
    assert told.content == " then "
    left = read(kind, f"{start}{one.removesuffix(FORMS[kind].closes or '')}{end}", marked=marked)
    assert (statuses(left), left.content) == ([ParseStatus.UNCLOSED], "")
    assert statuses(read(kind, f"{start}{one}", marked=marked)) == [ParseStatus.OK]
    assert read(kind, f"a{end}b", marked=marked).content == f"a{end}b"
    assert read(kind, f"{start}{start}{end}", marked=marked).content == start


@every
def test_markers_that_do_not_belong_are_text(kind: CallFormat) -> None:
    form = FORMS[kind]
    for marker in (form.closes, *form.inner, think(kind)[1]):
        if marker is not None:
            assert read(kind, f"a{marker}b").content == f"a{marker}b"


@pytest.mark.parametrize("kind", OPENING)
def test_where_markers_are_tokens_their_spelling_is_text(kind: CallFormat) -> None:
    opens, closes = think(kind)
    text = f"{opens}no{closes}{spell(kind, SUM)}"
    said = read(kind, plain_ids(kind, text))
    assert (said.content, said.reasoning, said.tool_calls) == (text, None, ())


@pytest.mark.parametrize("kind", OPENING)
def test_a_value_may_spell_any_marker_in_ordinary_tokens(kind: CallFormat) -> None:
    value = " and ".join(markers_of(FORMS[kind]))
    before, behind = spell(kind, ("say", {"text": "@"})).split("@")
    said = read(kind, [*ids(kind, before), *plain_ids(kind, value), *ids(kind, behind)])
    assert statuses(said) == [ParseStatus.OK]
    assert said.tool_calls[0].arguments == {"text": value}


@pytest.mark.parametrize("kind", OPENING)
def test_calls_quoted_in_a_value_never_run_where_markers_are_text(kind: CallFormat) -> None:
    quoted = spell(kind, NOTHING, NOTHING)
    said = read(kind, spell(kind, ("say", {"text": f"{quoted}\nand {quoted}"})), marked=False)
    assert "do" not in [call.name for call in said.tool_calls if call.status is ParseStatus.OK]


@pytest.mark.parametrize("kind", [CallFormat.KIMI, CallFormat.DEEPSEEK_V31, CallFormat.MISTRAL_ARGS])
def test_a_string_may_quote_calls_that_need_no_quotes(kind: CallFormat) -> None:
    call = ("say", {"text": f'{spell(kind, NOTHING, NOTHING)} \\ " {spell(kind, NOTHING)}'})
    said = read(kind, f"{spell(kind, call)}", marked=False)
    assert said_calls(said) == [call]
    broken = read(kind, spell(kind, NOTHING, NOTHING).replace("{}", '{"a": b"}', 1), marked=False)
    assert statuses(broken)[0] is not ParseStatus.OK


@every
def test_unknown_tools_and_arguments_that_do_not_fit(kind: CallFormat) -> None:
    said = read(kind, spell(kind, ("add", {"a": 1}), ("sub", {"a": 1}), SUM))
    assert statuses(said) == [ParseStatus.BAD_ARGUMENTS, ParseStatus.UNKNOWN_TOOL, ParseStatus.OK]
    assert [call.name for call in said.tool_calls] == ["add", "sub", "add"]


@every
def test_the_policys_own_ids_are_kept(kind: CallFormat) -> None:
    said = read(kind, spell(kind, SUM, NOTHING))
    own = [call.id for call in said.tool_calls]
    if kind in NATIVE:
        assert own == [native(kind, "add", 0), native(kind, "do", 1)]
    else:
        assert own == ["t4.0", "t4.1"]


@pytest.mark.parametrize("kind", sorted(NATIVE))
def test_an_id_that_stands_twice(kind: CallFormat) -> None:
    text = spell(kind, NOTHING, NOTHING, ("sub", {}))
    said = read(
        kind,
        text.replace(native(kind, "do", 1), native(kind, "do", 0)).replace(
            native(kind, "sub", 2), native(kind, "do", 0)
        ),
    )
    assert statuses(said)[:2] == [ParseStatus.OK, ParseStatus.INVALID_JSON]
    assert said.tool_calls[0].id == native(kind, "do", 0)
    assert len({call.id for call in said.tool_calls}) == 3
    assert "twice" in (said.tool_calls[1].error or "")
    assert said.tool_calls[2].status is not ParseStatus.OK


JSON_BODIES = {
    CallFormat.HERMES: ('{"name": "say", "arguments": ', "}"),
    CallFormat.LLAMA_JSON: ('{"name": "say", "parameters": ', "}"),
    CallFormat.MISTRAL: ('[{"name": "say", "arguments": ', "}]"),
    CallFormat.MISTRAL_ARGS: ("say[ARGS]", ""),
    CallFormat.DEEPSEEK_V3: ("function<｜tool▁sep｜>say\n```json\n", "\n```"),
    CallFormat.DEEPSEEK_V31: ("say<｜tool▁sep｜>", ""),
    CallFormat.KIMI: ("functions.say:0<|tool_call_argument_begin|>", ""),
}


@pytest.mark.parametrize("kind", JSON_BODIES)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ('{"text": "rm -rf build",}', ParseStatus.INVALID_JSON),
        ('```json\n{"text": "a"}\n```', ParseStatus.INVALID_JSON),
        ('{"text": "a"} trailing words', ParseStatus.INVALID_JSON),
        ("{'text': 'a'}", ParseStatus.INVALID_JSON),
        ('{"text":"a"}}', ParseStatus.INVALID_JSON),
        ('{"text": listt_windows"}', ParseStatus.INVALID_JSON),
        ('{"text": "a", "text": "b"}', ParseStatus.INVALID_JSON),
        ('{"text": NaN}', ParseStatus.INVALID_JSON),
        ("", ParseStatus.INVALID_JSON),
        ("[" * 70 + "]" * 70, ParseStatus.INVALID_JSON),
        ('"{}"', ParseStatus.NOT_AN_OBJECT),
        ("null", ParseStatus.NOT_AN_OBJECT),
        ('{"text": 1e999}', ParseStatus.BAD_ARGUMENTS),
        ('{"text": 1}', ParseStatus.BAD_ARGUMENTS),
        (' \n{"text": "a"} ', ParseStatus.OK),
    ],
)
def test_json_is_read_exactly_and_never_repaired(kind: CallFormat, arguments: str, status: ParseStatus) -> None:
    before, behind = JSON_BODIES[kind]
    body = f"{before}{arguments}{behind}"
    said = read(kind, wrap(kind, body))
    assert statuses(said) == [status]
    assert arguments.strip() in said.tool_calls[0].raw
    assert said.content == ""


def test_bytes_that_are_not_utf8_are_kept() -> None:
    for kind in CallFormat:
        made = encoder(kind, marked=True)
        byte = {made.vocabulary[token]: token for token in range(256)}
        half = [byte[bytes([part])] for part in "🙂".encode()[:3]]
        said = read(kind, [*ids(kind, "ok "), *half])
        assert (said.content, said.raw) == ("ok \ufffd", b"ok " + "🙂".encode()[:3])
        before, behind = spell(kind, ("say", {"text": "@"})).split("@")
        broken = read(kind, [*ids(kind, before), *half, *ids(kind, behind)])
        assert statuses(broken) == [ParseStatus.INVALID_JSON]
        assert "\ufffd" in broken.tool_calls[0].raw


def test_ids_need_a_vocabulary() -> None:
    with pytest.raises(ConfigError, match="vocabulary"):
        ReplyReader(CallFormat.HERMES, None, {}).parse([1], [], inside_reasoning=False, cut=False, call_prefix="")


def test_reasoning_of_another_family_counts_by_id_only() -> None:
    made = encoder(CallFormat.MISTRAL, marked=True)
    hermes = ReplyReader(CallFormat.HERMES, made.vocabulary, made.added)
    sampled = ids(CallFormat.MISTRAL, "[THINK]hm[/THINK]5")
    said = hermes.parse(sampled, [], inside_reasoning=False, cut=False, call_prefix="")
    assert (said.reasoning, said.content) == ("hm", "5")
    assert read(CallFormat.HERMES, "[THINK]hm[/THINK]5").reasoning is None


def test_only_its_own_marker_ends_reasoning() -> None:
    said = read(CallFormat.KIMI, "<think>a◁/think▷b</think>c")
    assert (said.reasoning, said.content) == ("a◁/think▷b", "c")
    assert read(CallFormat.KIMI, "a◁/think▷b", thinking=True).content == "b"


def pieces(kind: CallFormat) -> st.SearchStrategy[str]:
    parts = [*markers_of(FORMS[kind]), spell(kind, SUM), spell(kind, NOTHING), "x", "\n", "{", "é", '"', "add", "[f("]
    parts += ["<function=do>", "</function>", "<parameter=a>\n", "\n</parameter>\n", '{"name": "do"', "]", "say("]
    return st.lists(st.sampled_from(parts), max_size=12).map("".join)


@every
@both
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nothing_is_lost_and_only_sound_calls_are_ok(kind: CallFormat, marked: bool, data: st.DataObject) -> None:
    text = data.draw(pieces(kind))
    thinking, cut = data.draw(st.booleans()), data.draw(st.booleans())
    said = read(kind, text, thinking=thinking, cut=cut, marked=marked)
    kept = said.content + (said.reasoning or "") + "".join(call.raw for call in said.tool_calls)
    for piece in ("x", "é", "{", "[f("):
        assert kept.count(piece) >= text.count(piece)
    ran = [call for call in said.tool_calls if call.status is ParseStatus.OK]
    assert all((call.name, call.arguments) in (SUM, NOTHING) for call in ran)
    assert all((call.error is None) == (call.status is ParseStatus.OK) for call in said.tool_calls)
    assert cut or ParseStatus.CUT not in statuses(said)
    assert len({call.id for call in said.tool_calls}) == len(said.tool_calls)


@every
@both
@settings(max_examples=30, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_any_ids_parse(kind: CallFormat, marked: bool, data: st.DataObject, thinking: bool, cut: bool) -> None:
    size = encoder(kind, marked=marked).vocab_size
    low, high = data.draw(st.sampled_from([(0, size + 5), (size - 16, size), (30, 130)]))
    sampled = data.draw(st.lists(st.integers(low, high), max_size=40))
    said = read(kind, sampled, thinking=thinking, cut=cut, marked=marked)
    assert ParseStatus.OK not in statuses(said)


values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
texts = values.filter(lambda text: "</" not in text and "<p" not in text and "<f" not in text)


def some_calls() -> st.SearchStrategy[list[Call]]:
    numbers = st.integers(-(1 << 63), (1 << 63) - 1)
    add = st.tuples(st.just("add"), st.fixed_dictionaries({"a": numbers, "b": numbers}))
    say = st.tuples(st.just("say"), st.fixed_dictionaries({"text": texts}))
    return st.lists(add | say | st.just(NOTHING), min_size=1, max_size=4)


@every
@both
@settings(max_examples=60, deadline=None)
@given(some_calls())
def test_calls_read_back_as_they_were(kind: CallFormat, marked: bool, calls: list[Call]) -> None:
    said = read(kind, spell(kind, *calls), marked=marked)
    assert statuses(said) == [ParseStatus.OK] * len(calls), said.tool_calls
    assert said_calls(said) == calls


@every
@both
def test_cost_is_linear_in_hostile_replies(kind: CallFormat, marked: bool) -> None:
    form = FORMS[kind]
    bodies: list[Any] = [spell(kind, NOTHING) * 300, form.opens * 2000, "<parameter=a>\n" * 2000, "[f(" * 2000]
    bodies += [wrap(kind, "<function=f>\n" + "<parameter=a>\n</parameter>\n" * 2000), "[" * 4000, '{"name":' * 4000]
    bodies += [wrap(kind, "".join(form.inner) * 2000), f"{form.opens}<arg_value>" * 500 + (form.closes or "") * 500]
    bodies += [(form.section or ("",))[0] * 2000, "</function>" * 2000, "[f(a='" + "\\\\" * 5000, "\n" * 20000 + "{"]
    sampled = [ids(kind, body, marked=marked) for body in bodies]
    started = time.process_time()
    for tokens in sampled:
        read(kind, tokens, [ADD], marked=marked)
    assert time.process_time() - started < 2.0


def best_of(tries: int, work: Callable[[], object]) -> float:
    """Seconds of processor time of the fastest try."""
    times: list[float] = []
    for _ in range(tries):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@every
@both
def test_a_long_reply_costs_a_few_times_what_its_bytes_cost(kind: CallFormat, marked: bool) -> None:
    """The yardstick is the bare joining of the tokens' bytes, so that a busy machine does not matter."""
    opens, closes = think(kind)
    prose = "The answer is five, and it is right. " * 200
    tokens = ids(kind, f"{opens}{prose}{closes}" + spell(kind, ("say", {"text": prose})), marked=marked)
    assert statuses(read(kind, tokens, marked=marked)) == [ParseStatus.OK]
    vocabulary = encoder(kind, marked=marked).vocabulary
    joined = best_of(10, lambda: vocabulary.join(tokens))
    assert best_of(10, lambda: read(kind, tokens, marked=marked)) < 10 * joined + 2e-4
