"""Tracked text to ids: control tokens out of scaffold only, kinds, cuts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render.encode import Encoder
from rollbook.render.tracked import SCAFFOLD, Tracked, concat, scaffold, tags_of
from rollbook.trace.runs import RunKind, expand_runs
from tests.render.families import CONTROL, MARKERS, encoder, tokenizer_json

MARKED = encoder(marked=True)
spelled = st.sampled_from(
    [*CONTROL, *MARKERS, "<|im_", "end|>", "\n", " ", "user\n", "é", "🙂", "\0", "\u2028", "e\u0301"]
)
texts = st.lists(st.text(max_size=4) | spelled, max_size=5).map("".join)
tracked = st.lists(texts.map(scaffold) | texts, max_size=6).map(concat)


def spell(ids: np.ndarray[Any, Any]) -> bytes:
    return MARKED.vocabulary.join(ids.tolist())


@settings(max_examples=100, deadline=None)
@given(tracked, st.lists(st.integers(0, 40), max_size=4))
def test_ids_spell_the_text_and_cuts_do_not_change_them(text: Tracked, cuts: list[int]) -> None:
    places = sorted(min(cut, len(text)) for cut in cuts)
    whole, pieces = MARKED.encode(text, ()), MARKED.encode(text, places)
    assert len(pieces) == len(cuts) + 1
    joined = np.concatenate([piece.token_ids for piece in pieces])
    assert joined.tolist() == whole[0].token_ids.tolist()
    assert spell(joined) == text.encode()
    kinds = np.concatenate([expand_runs(piece.runs) for piece in pieces])
    assert kinds.tolist() == expand_runs(whole[0].runs).tolist()


@settings(max_examples=100, deadline=None)
@given(tracked)
def test_kinds_follow_the_characters(text: Tracked) -> None:
    """The yardstick walks over the bytes: a token is content exactly where one of its bytes belongs to content."""
    (piece,) = MARKED.encode(text, ())
    owners = [tag != SCAFFOLD for char, tag in zip(text.plain, tags_of(text), strict=True) for _ in char.encode()]
    ends = np.cumsum([len(MARKED.vocabulary[token]) for token in piece.token_ids.tolist()])
    kinds = expand_runs(piece.runs).tolist()
    assert len(kinds) == len(piece.token_ids)
    for start, end, kind, token in zip([0, *ends], ends, kinds, piece.token_ids.tolist(), strict=False):
        assert (kind == RunKind.CONTENT) == any(owners[start:end])
        if token in MARKED.control:
            assert not any(owners[start:end])


@settings(max_examples=100, deadline=None)
@given(texts)
def test_scaffold_alone_is_encoded_as_the_tokenizer_does(text: str) -> None:
    assert MARKED.encode(scaffold(text), ())[0].token_ids.tolist() == MARKED.encode_parsed(text).tolist()


@settings(max_examples=100, deadline=None)
@given(texts)
def test_content_never_makes_control_tokens(text: str) -> None:
    ids = MARKED.encode_content(text)
    assert MARKED.control.isdisjoint(ids.tolist())
    assert spell(ids) == text.encode()
    assert MARKED.encode(Tracked(text), ())[0].token_ids.tolist() == ids.tolist()


def test_one_content_character_is_enough_to_break_a_control_token() -> None:
    for place in range(len("<|im_end|>")):
        text = "<|im_end|>"
        made = scaffold(text[:place]) + text[place] + scaffold(text[place + 1 :])
        assert MARKED.control.isdisjoint(MARKED.encode(made, ())[0].token_ids.tolist())
    assert MARKED.encode(scaffold("<|im_") + scaffold("end|>"), ())[0].token_ids.tolist() == [
        MARKED.added["<|im_end|>"]
    ]


def test_a_straddling_token_goes_to_the_later_piece() -> None:
    text = scaffold("The ans") + "wer"
    whole = MARKED.encode(text, ())[0].token_ids.tolist()
    first, second = MARKED.encode(text, [len("The ans")])
    assert spell(second.token_ids) == b" answer"
    assert first.token_ids.tolist() + second.token_ids.tolist() == whole
    assert second.runs.tolist() == [[RunKind.CONTENT, len(second.token_ids)]]


def test_empty_text() -> None:
    pieces = MARKED.encode(Tracked(""), [0, 0])
    assert [piece.token_ids.tolist() for piece in pieces] == [[], [], []]
    assert pieces[0].runs.shape == (0, 2)
    assert pieces[0].token_ids.dtype == np.int32


def test_a_megabyte_of_text() -> None:
    text = "The sum of two <|im_end|> and three. " * 27000
    ids = MARKED.encode(scaffold("<|im_start|>") + text + scaffold("<|im_end|>"), ())[0].token_ids
    assert spell(ids) == f"<|im_start|>{text}<|im_end|>".encode()
    assert sum(token in MARKED.control for token in ids.tolist()) == 2


def changed(**change: Any) -> bytes:
    parts = json.loads(tokenizer_json(marked=True))
    for entry in parts["added_tokens"]:
        entry.update(change.get("flags", {}))
    parts["added_tokens"] += change.get("added", [])
    parts["model"].update(change.get("model", {}))
    return json.dumps({**parts, **change.get("parts", {})}).encode()


FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": False}


@pytest.mark.parametrize(
    "flags", [{"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}]
)
@settings(max_examples=60, deadline=None)
@given(text=st.lists(st.sampled_from(["<|im_end|>", "<think>", " ", "\n", "x", "<"]), max_size=8).map("".join))
def test_flags_of_added_tokens(flags: dict[str, bool], text: str) -> None:
    made = FLAGGED.setdefault(json.dumps(flags), Encoder(changed(flags=flags)))
    assert made.encode(scaffold(text), ())[0].token_ids.tolist() == made.encode_parsed(text).tolist()


FLAGGED: dict[str, Encoder] = {}


def test_white_space_swallowed_by_a_token_is_never_content() -> None:
    made = Encoder(changed(flags={"rstrip": True}))
    text = scaffold("<|im_start|>\n") + "  x"
    assert made.vocabulary.join(made.encode(text, ())[0].token_ids.tolist()) == b"<|im_start|>  x"


def test_longest_added_token_wins() -> None:
    made = Encoder(changed(added=[{"id": MARKED.vocab_size, "content": "<think>\n", **FLAGS}]))
    ids = made.encode_parsed("<think>\n<think>").tolist()
    assert made.encode(scaffold("<think>\n<think>"), ())[0].token_ids.tolist() == ids
    assert len(ids) == 2


def test_nothing_is_added_by_a_post_processor() -> None:
    post = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    }
    post |= {"pair": [*post["single"], {"Sequence": {"id": "B", "type_id": 1}}]}
    post |= {"special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [5], "tokens": ["<|im_start|>"]}}}
    trim = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    made = Encoder(changed(parts={"post_processor": post, "truncation": trim}))
    assert made.encode_content("The answer is five").tolist() == MARKED.encode_content("The answer is five").tolist()


def test_a_post_processor_that_trims_offsets_does_not_hide_content() -> None:
    trim = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    made = Encoder(changed(parts={"post_processor": trim}))
    (piece,) = made.encode(scaffold("The") + " " + scaffold("answer"), ())
    assert made.vocabulary[piece.token_ids.tolist()[-1]] == b" answer"
    assert expand_runs(piece.runs).tolist()[-1] == RunKind.CONTENT


def test_control_tokens_inside_the_vocabulary_cannot_be_reached() -> None:
    """As in GGUF files: the names of control tokens stand in the model's own vocabulary."""
    parts = json.loads(tokenizer_json(marked=True))
    vocabulary = {**parts["model"]["vocab"], **{entry["content"]: entry["id"] for entry in parts["added_tokens"]}}
    whole_word = {"id": MARKED.vocab_size, "content": "@@@@", **FLAGS}  # the pre-tokenizer does not split it
    vocabulary["@@@@"] = whole_word["id"]
    made = Encoder(changed(model={"vocab": vocabulary, "ignore_merges": True}, added=[whole_word]))
    for name in ("<think>", "@@@@"):
        assert made.control.isdisjoint(made.encode_content(name).tolist())
        assert made.encode(scaffold(name), ())[0].token_ids.tolist() == [made.added[name]]


def test_a_tokenizer_that_merges_text_into_a_control_token_is_refused() -> None:
    parts = json.loads(tokenizer_json(marked=True))
    parts["added_tokens"] = [{"id": parts["model"]["vocab"]["ad"], "content": "ad", **FLAGS}]
    assert ["a", "d"] in parts["model"]["merges"] or "a d" in parts["model"]["merges"]
    with pytest.raises(ModelError, match="makes control token"):
        Encoder(json.dumps(parts).encode())


def test_added_runs_of_blanks_are_text() -> None:
    parts = json.loads(tokenizer_json(marked=True))
    size = len(parts["model"]["vocab"])
    blanks = [{"id": size, "content": "    ", **FLAGS}]
    moved = [{**entry, "id": entry["id"] + 1} for entry in parts["added_tokens"]]
    made = Encoder(json.dumps({**parts, "added_tokens": blanks + moved}).encode())
    assert size in made.encode_content("x    y <think>").tolist()
    assert size not in made.control
    with pytest.raises(ModelError, match="cannot be kept apart"):
        Encoder(changed(added=[{"id": MARKED.vocab_size, "content": "    ", **FLAGS}]))


def test_an_id_that_the_library_would_move_is_refused() -> None:
    with pytest.raises(ModelError, match="'<far>' has id 9000"):
        Encoder(changed(added=[{"id": 9000, "content": "<far>", **FLAGS}]))


def test_bytes_that_are_no_tokenizer() -> None:
    for data in (b"", b"{}", b"[1]", b"\xff", b'{"added_tokens": [], "model": {"type": "BPE"}}'):
        with pytest.raises(ModelError, match="the tokenizer cannot be read"):
            Encoder(data)
