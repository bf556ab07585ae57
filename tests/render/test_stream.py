"""Text while tokens come: nothing early, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rollbook.render.encode import Encoder
from rollbook.render.stream import TextStream
from rollbook.render.vocabulary import Vocabulary, show_bytes
from tests.render.families import encoder
from tests.render.kinds import kind

MADE = [encoder(marked=True), kind("bpe-legacy"), kind("unigram-first")]


@pytest.mark.parametrize("made", MADE)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_pieces_are_the_text(made: Encoder, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, made.vocab_size - 1), max_size=20))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    stream = TextStream(made.vocabulary)
    for _ in range(2):  # a finished stream starts anew
        pieces = [stream.push(ids[start:end]) for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
        assert "".join([*pieces, stream.finish()]) == show_bytes(made.vocabulary.join(ids))


@pytest.mark.parametrize("made", MADE)
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=8))
def test_no_character_is_shown_before_it_is_whole(made: Encoder, text: str) -> None:
    stream, shown = TextStream(made.vocabulary), ""
    ids = made.encode_content(text).tolist()
    whole = show_bytes(made.vocabulary.join(ids))
    for token in ids:
        shown += stream.push([token])
        assert whole.startswith(shown)
    assert stream.finish() == ""
    assert shown == whole


def test_a_character_that_stays_incomplete() -> None:
    made = kind("bpe-legacy")
    stream = TextStream(made.vocabulary)
    byte = {made.vocabulary[token]: token for token in range(5, 261)}
    assert [stream.push([byte[bytes([part])]]) for part in "🙂".encode()[:3]] == ["", "", ""]
    assert stream.finish() == "\ufffd"
    assert [stream.push([byte[b"\xf0"]]), stream.push([byte[b"a"]])] == ["", "\ufffda"]
    assert stream.push([]) == stream.finish() == ""


def test_a_character_of_three_tokens(qwen_tokenizer_json: bytes) -> None:
    tokenizer = Tokenizer.from_str(qwen_tokenizer_json.decode())
    stream = TextStream(Vocabulary(tokenizer, {"decoder": {"type": "ByteLevel"}, "model": {}}, {}))
    assert [stream.push([token]) for token in (9284, 104, 254)] == ["", "", "\U0001fae0"]
    assert stream.finish() == ""
