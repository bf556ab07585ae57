"""Where text would creep back into tokens: suffixes, streams, decoders, boundaries."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.models.sentencepiece_file import sentencepiece_json
from rollbook.render import ChatRenderer, RendererConfig, Rendering
from rollbook.render.encode import Encoder
from rollbook.trace import Finish, Message, Role, RunKind, samples
from tests.cases.case import Script, Talk, reply, report, run_one
from tests.real_tokenizers import mistral_file
from tests.render.stock import NAMES, stock

QWEN_STOP = 151645


def user(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def ids_of(made: Rendering) -> list[int]:
    return made.token_ids.tolist()


@report("A03")
def test_what_trains_is_what_was_sampled_and_no_difference_of_lengths(given: dict[str, Any]) -> None:
    """The answer begins with a line end, which the tokenizer would merge with the prompt's own."""
    chosen = stock("qwen2.5")
    qwen = chosen.renderer
    question, answer = (each["content"] for each in given["messages"])
    sampled = [*qwen.encode(answer).tolist(), QWEN_STOP]
    script = Script([reply(sampled)])
    trace = run_one(Talk, script, renderer=qwen, prompt=question)
    prompt = script.prompts[0].tolist()
    assert len(prompt) == given["lengths"]["prompt"]
    assert prompt[-3:] == given["prompt_tail"]
    (sample,) = samples(trace)
    assert sample.token_ids.tolist() == prompt + sampled
    assert sample.token_ids[sample.loss_mask].tolist() == sampled
    assert int(sample.loss_mask.sum()) == len(sampled)
    full = chosen.encoder.encode_parsed(qwen.decode(np.array(prompt + sampled, np.int32))).tolist()
    assert full[29:] == given["full_tail_from_same_point"][2:-1]
    assert next(place for place, (a, b) in enumerate(zip(prompt, full, strict=False)) if a != b) == 29


@settings(deadline=None, max_examples=50)
@examples(st.text("\n\t a1", max_size=8))
def test_no_answer_merges_with_its_prompt(answer: str) -> None:
    qwen = stock("qwen2.5").renderer
    sampled = [*qwen.encode(answer).tolist(), QWEN_STOP]
    script = Script([reply(sampled)])
    (sample,) = samples(run_one(Talk, script, renderer=qwen, prompt="Hi"))
    assert sample.token_ids[sample.loss_mask].tolist() == sampled
    assert sample.token_ids[: len(script.prompts[0])].tolist() == script.prompts[0].tolist()


@report("A04")
def test_a_stream_holds_back_half_a_character(given: dict[str, Any]) -> None:
    chosen = stock("qwen3")
    stream = chosen.renderer.stream()
    shown = [stream.push(np.array(chunk, np.int32)) for chunk in given["stream_chunks"]]
    assert shown == ["", "", given["text"]]
    assert stream.finish() == ""
    spelled = [chosen.encoder.vocabulary[token].hex() for token in given["sampled_ids"]]
    assert spelled == given["token_bytes_hex"]


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=15)
@examples(text=st.text(max_size=12), cut=st.integers(1, 3))
def test_a_stream_says_what_the_whole_says(name: str, text: str, cut: int) -> None:
    chosen = stock(name)
    ids = chosen.renderer.encode(text)
    stream = chosen.renderer.stream()
    parts = [stream.push(ids[at : at + cut]) for at in range(0, len(ids), cut)]
    assert "".join(parts) + stream.finish() == chosen.renderer.decode(ids)
    assert "\ufffd" not in "".join(parts) or "\ufffd" in text


@report("A06")
def test_ordinary_tokens_that_spell_a_control_token_end_no_turn(given: dict[str, Any]) -> None:
    chosen = stock("qwen3")
    qwen, ids = chosen.renderer, given["sampled_ids"]
    assert chosen.encoder.encode_parsed(given["decoded"]).tolist() == given["retokenized_with_special_parsing"]
    parsed = qwen.parse(np.array(ids, np.int32), (), inside_reasoning=False, cut=True, call_prefix="c")
    assert (parsed.closed, parsed.message.content) == (False, given["decoded"])
    script = Script([reply([*ids, QWEN_STOP]), reply([*qwen.encode("Done.").tolist(), QWEN_STOP])])
    trace = run_one(lambda: Talk(["go on"]), script, renderer=qwen)
    assert script.prompts[1].tolist()[len(script.prompts[0]) :][: len(ids) + 1] == [*ids, QWEN_STOP]
    assert [call.finish for call in trace.calls] == [Finish.STOP, Finish.STOP]
    assert qwen.reencode(np.array(ids, np.int32)).tolist() == given["retokenized_with_special_parsing"]


@report("A07")
def test_decoding_is_byte_for_byte(given: dict[str, Any]) -> None:
    """Whatever a tokenizer's configuration says of cleaning up spaces, nothing here ever does."""
    for text in (given["text_from_ids"], given["second"]["text"]):
        for name in NAMES:
            renderer, blank = stock(name).renderer, " " if stock(name).encoder.blank_behind else ""
            assert renderer.decode(renderer.encode(text)) == blank + text
            assert stock(name).encoder.text_of(renderer.encode(text), behind=True) == text


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@examples(ids=st.lists(st.integers(0, 40_000), max_size=30))
def test_the_bytes_of_ids_are_the_bytes_of_each(name: str, ids: list[int]) -> None:
    chosen = stock(name)
    vocabulary = chosen.encoder.vocabulary
    whole = [token % chosen.renderer.info.vocab_size for token in ids]
    assert vocabulary.join(whole) == b"".join(vocabulary[token] for token in whole)
    assert vocabulary.join(whole).decode("utf-8", "replace") == chosen.renderer.decode(np.array(whole, np.int32))


_TOY = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}[A]{% endif %}"
)


def toy(vocab: dict[str, int]) -> ChatRenderer:
    """The report's own vocabulary, with the single letters that its merges need, and one token for the tool."""
    letters = sorted(set("".join(name for name in vocab if name.isalpha()) + "lo"))
    words = {**{letter: 100 + place for place, letter in enumerate(letters)}, "ll": 120}
    words |= {name: token for name, token in vocab.items() if name.isalpha()}
    marks = {"<end>": vocab["<end>"], "[tool]": vocab["[T]"], "[A]": vocab["[A]"], "[user]": 130, "[assistant]": 131}
    marks["[system]"] = 132
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    filler = {chr(code): 200 + code for code in range(33, 127) if chr(code) not in words}
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = {chr(256 + place): 400 + place for place in range(256 - len(shown))}
    filler |= {chr(code): 600 + code for code in shown if code > 126} | hidden
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": name, **flags} for name, token in marks.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {**words, **filler, **marks},
            "merges": [["h", "e"], ["l", "l"], ["ll", "o"], ["he", "llo"]],
        },
    }
    config = RendererConfig(name="toy", stop_ids=frozenset({vocab["<end>"]}))
    return ChatRenderer.build(json.dumps(tokenizer).encode(), _TOY, config)


@report("A09")
def test_a_suffix_has_the_ids_that_it_has_inside_the_whole(given: dict[str, Any]) -> None:
    """A SentencePiece vocabulary spells the first word of a text differently: what stands behind is cut out of the
    whole, and a tokenizer that gives the whole other ids is refused."""
    data = sentencepiece_json(mistral_file("tokenizer.model.v1"), "v1")
    template = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    template += "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    config = RendererConfig(name="v1", stop_ids=frozenset({2}), special_tokens={"eos_token": "</s>"})
    renderer, encoder = ChatRenderer.build(data, template, config), Encoder(data)
    assert encoder.encode_content(given["suffix"]).tolist() == given["suffix_encoded_alone"]
    made = renderer.extend(2, [user("hi")], ()).messages[0].token_ids.tolist()
    inside = given["suffix_inside_full"]
    assert made[made.index(inside[0]) :][: len(inside)] == inside
    whole = encoder.encode_parsed(given["prefix"] + given["suffix"]).tolist()
    assert whole[-len(inside) :] == inside
    opened = renderer.open([Message(role=Role.SYSTEM, content="dummy"), user("hi")], ())
    text = f"{given['prefix']}<|user|>\nhi</s>\n<|assistant|>\n"
    assert ids_of(opened) == encoder.encode_parsed(text).tolist()


def test_a_blank_of_the_tokenizer_is_no_text_and_a_sampled_one_is() -> None:
    """Behind a control token such a tokenizer writes a blank of its own; behind words the policy sampled it."""
    told = Message(role=Role.ASSISTANT, content="Hi")
    mistral = stock("mistral-v3").renderer
    data = sentencepiece_json(mistral_file("tokenizer.model.v1"), "v1")
    text = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    text += "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    words = ChatRenderer.build(data, text, RendererConfig(name="v1", stop_ids=frozenset({2})))
    for renderer, content in ((mistral, "Hi"), (words, " Hi")):
        ids = renderer.encode(told.content)
        parsed = renderer.parse(ids, (), inside_reasoning=False, cut=False, call_prefix="c")
        assert renderer.decode(ids) == " Hi"
        assert parsed.message.content == content


@report("A12")
def test_the_next_prompt_is_the_ids_that_are_there_and_the_new_ones(given: dict[str, Any]) -> None:
    renderer = toy(given["toy_vocab"])
    opened = renderer.open([user("hello")], ())
    assert opened.prompt_ids.tolist() == given["prompt_ids"]
    said = given["completion_ids"]
    more = renderer.extend(said[-1], [Message(role=Role.TOOL, content="", call_id="c")], ())
    grown = [*ids_of(opened), *said, *ids_of(more)]
    assert grown[len(ids_of(opened)) - 1 :] == [6, 1, 2, 9, 5, 9, 6]
    assert renderer.reencode(np.array(said, np.int32)).tolist() == [3, 9]  # what a re-encoded history would hold


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=5)
@examples(ids=st.lists(st.integers(0, 40_000), min_size=1, max_size=12), turns=st.integers(2, 4))
def test_every_prompt_begins_with_the_last_prompt_and_reply(name: str, ids: list[int], turns: int) -> None:
    """In each family and for any sampled ids, also such as no text would be encoded to."""
    chosen = stock(name)
    renderer, stop = chosen.renderer, chosen.added[chosen.stops[0]]
    said = [token for token in ids if token not in renderer.info.stop_ids and token < renderer.info.vocab_size]
    said = [token for token in said if token not in chosen.encoder.control] or renderer.encode("x").tolist()
    script = Script([reply([*said, stop])])
    run_one(lambda: Talk(["go on"] * turns), script, renderer=renderer)
    assert len(script.prompts) == turns + 1
    for before, after in zip(script.prompts, script.prompts[1:], strict=False):
        known = [*before.tolist(), *said, stop]
        assert after.tolist()[: len(known)] == known


@report("A17")
def test_what_the_prompt_forces_does_not_train_and_no_separator_comes_twice(given: dict[str, Any]) -> None:
    chosen = stock("qwen3")
    forced = chosen.template.replace(
        "{{- '<|im_start|>assistant\\n' }}\n    {%- if", "{{- '<|im_start|>assistant\\n<think>\\n' }}\n    {%- if"
    )
    assert forced != chosen.template
    renderer = ChatRenderer.build(chosen.tokenizer_json, forced, chosen.config)
    script = Script([reply(given["sampled_ids"])])
    trace = run_one(lambda: Talk(["go on"]), script, renderer=renderer)
    first = script.prompts[0].tolist()
    assert first[-2:] == given["forced_prefix_ids"]
    sample = next(iter(samples(trace)))
    stored = sample.token_ids.tolist()[len(first) - 2 : len(first) + 3]
    assert stored == given["stored_turn_ids"]
    assert sample.loss_mask.tolist()[len(first) - 2 : len(first) + 3] == [False, False, True, True, True]
    behind = script.prompts[1].tolist()[len(first) + 3 :]
    assert behind[0] == given["template_adds_after_turn"][1]
    assert behind[1] != given["template_adds_after_turn"][0]
    node = trace.graph[trace.turns()[0].index]
    assert len(node.logprobs) == len(given["sampled_ids"])


def test_kinds_of_a_forced_close() -> None:
    """A turn without its end gets the template's own, as forced and never trained."""
    qwen = stock("qwen3").renderer
    made = qwen.extend(100, [user("go on")], ())
    assert made.messages[0].token_ids.tolist()[0] == QWEN_STOP
    assert made.messages[0].runs.tolist()[0] == [RunKind.FORCED, 1]
