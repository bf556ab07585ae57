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


def yardstick(pieces: list[bytes]) -> list[list[int]]:
    """Spans found the slow way: where the text of all but some bytes first differs."""
    data, found, at = b"".join(pieces), [], 0
    chars: list[int] = []  # the character of each byte
    rest, number = data, 0
    while rest:
        size = next(size for size in (1, 2, 3, 4) if len(show_bytes(rest)) == 1 + len(show_bytes(rest[size:])))
        longest = max(n for n in (1, 2, 3, 4) if size <= n <= len(rest) and same(rest, n))
        chars += [number] * longest
        rest, number = rest[longest:], number + 1
    for piece in pieces:
        inside = chars[at : at + len(piece)]
        found.append([inside[0], inside[-1] + 1])
        at += len(piece)
    return found


def same(rest: bytes, size: int) -> bool:
    return show_bytes(rest)[:1] == show_bytes(rest[:size]) and show_bytes(rest)[1:] == show_bytes(rest[size:])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.binary(min_size=1, max_size=3)
        | st.sampled_from([b"a", "é".encode(), *(bytes([byte]) for byte in "🙂".encode())]),
        max_size=8,
    )
)
def test_spans_of_any_bytes(pieces: list[bytes]) -> None:
    byte = {WORDS[token]: token for token in range(MARKED.vocab_size)}
    singles = [bytes([part]) for piece in pieces for part in piece]
    shown = WORDS.show(np.array([byte[part] for part in singles], np.int32))
    assert (shown.spans.dtype, shown.spans.shape) == (np.int32, (len(singles), 2))
    assert shown.spans.tolist() == yardstick(singles)


@settings(max_examples=100, deadline=None)
@given(sampled)
def test_spans_of_any_ids(ids: list[int]) -> None:
    shown = WORDS.show(np.array(ids, np.int32))
    assert shown.spans.tolist() == yardstick([WORDS[token] for token in ids])


def test_a_character_lies_in_the_spans_of_all_its_tokens() -> None:
    byte = {WORDS[token]: token for token in range(MARKED.vocab_size)}
    ids = [byte[b"a"], *(byte[bytes([part])] for part in "🙂".encode()), byte[b"\xff"], byte[b"b"]]
    shown = WORDS.show(np.array(ids, np.int32))
    assert shown.text == "a🙂\ufffdb"
    assert shown.spans.tolist() == [[0, 1], *[[1, 2]] * 4, [2, 3], [3, 4]]
    assert WORDS.show(np.array([], np.int32)).spans.shape == (0, 2)


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
