"""Exact bytes of tokens, text for people, spans."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render.encode import Encoder
from rollbook.render.vocabulary import show_bytes
from tests.render.families import encoder, tokenizer_json

MARKED = encoder(marked=True)
WORDS = MARKED.vocabulary
sampled = st.lists(st.integers(0, MARKED.vocab_size - 1), max_size=30)


@settings(max_examples=100, deadline=None)
@given(sampled)
def test_spans_cover_the_text_of_any_ids(ids: list[int]) -> None:
    shown = WORDS.show(np.array(ids, np.int32))
    assert shown.text == show_bytes(WORDS.join(ids))
    ends = shown.ends.tolist()
    assert len(ends) == len(ids)
    assert ends == sorted(ends)
    assert not ids or ends[-1] == len(shown.text)


def test_a_character_belongs_to_the_token_that_completes_it() -> None:
    byte = {WORDS[token]: token for token in range(MARKED.vocab_size)}
    ids = [byte[b"a"], *(byte[bytes([part])] for part in "🙂".encode()), byte[b"b"]]
    shown = WORDS.show(np.array(ids, np.int32))
    assert (shown.text, shown.ends.tolist()) == ("a🙂b", [1, 1, 1, 1, 2, 3])


def test_a_cut_character_is_shown_and_its_bytes_are_kept() -> None:
    byte = {WORDS[token]: token for token in range(MARKED.vocab_size)}
    ids = [byte[bytes([part])] for part in "🙂".encode()[:2]]
    shown = WORDS.show(np.array(ids, np.int32))
    assert (shown.text, shown.ends.tolist()) == ("\ufffd", [0, 1])
    assert WORDS.join(ids) == "🙂".encode()[:2]


def test_every_byte_has_a_token_and_added_tokens_are_their_spelling() -> None:
    singles = {WORDS[token] for token in range(MARKED.vocab_size)}
    assert {bytes([byte]) for byte in range(256)} <= singles
    assert WORDS[MARKED.added["<think>"]] == b"<think>"


def test_ids_beyond_the_vocabulary_are_named() -> None:
    assert WORDS.join([1 << 20, -1]) == b"<unknown id 1048576><unknown id -1>"


@pytest.mark.parametrize(
    "decoder", [None, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": False}]
)
def test_other_kinds_are_refused(decoder: object) -> None:
    parts = {**json.loads(tokenizer_json(marked=True)), "decoder": decoder}
    with pytest.raises(ModelError, match="not byte-level"):
        Encoder(json.dumps(parts).encode())


def test_a_byte_level_part_of_a_sequence_is_found() -> None:
    parts = json.loads(tokenizer_json(marked=True))
    parts["decoder"] = {"type": "Sequence", "decoders": [parts["decoder"]]}
    assert Encoder(json.dumps(parts).encode()).vocabulary[0] == WORDS[0]
