"""What a tokenizer cannot spell is escaped, never dropped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render.encode import Encoder
from rollbook.render.escapes import Escapes
from rollbook.render.tracked import Tracked, scaffold, tags_of
from rollbook.render.vocabulary import _ALPHABET  # pyright: ignore[reportPrivateUsage]
from tests.render.families import encoder, tokenizer_json

MISSING = [0xC0, 0xF1, 0xF2, 0xFF, 0xE9, 0xC3, 0x04, 0x1D]


def without(missing: list[int]) -> Encoder:
    """The small tokenizer without the tokens of some bytes, and without all merges."""
    parts = json.loads(tokenizer_json(marked=True))
    gone = {shown for shown, byte in _ALPHABET.items() if byte in missing}
    kept = {word: at for word, at in parts["model"]["vocab"].items() if len(word) == 1 and word not in gone}
    names = {entry["content"]: entry["id"] for entry in parts["added_tokens"]}
    parts["model"].update(vocab={**kept, **names}, merges=[])
    return Encoder(json.dumps(parts).encode())


HOLED = without(MISSING)


def test_escapes_keep_the_tag_of_their_character() -> None:
    shown = Escapes().apply(scaffold("é") + "\ud835x" + scaffold("\udc00"))
    assert shown == "é\\ud835x\\udc00"
    assert tags_of(shown) == "s" + "c" * 7 + "s" * 6


def test_text_that_can_be_spelled_is_left_alone() -> None:
    text = Tracked("é🙂\0\x1b\u2028")
    assert Escapes().apply(text) is text


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters() | st.sampled_from("\ud800\udfff\x04\x1dé\U00040000\U000bffff逐a"), max_size=8))
def test_no_character_is_lost(text: str) -> None:
    """The yardstick escapes a character exactly where one of its bytes is missing."""
    expected = ""
    for char in text:
        data = char.encode("utf-8", "surrogatepass")
        bad = "\ud800" <= char <= "\udfff" or any(byte in MISSING for byte in data)
        code = ord(char)
        width = (code >= 0x100) + (code >= 0x10000)
        expected += f"\\{'xuU'[width]}{code:0{(2, 4, 8)[width]}x}" if bad else char
    assert HOLED.vocabulary.join(HOLED.encode_content(text).tolist()).decode() == expected


def test_whole_vocabularies_escape_surrogates_only() -> None:
    whole = encoder(marked=True)
    assert whole.vocabulary.missing() == frozenset()
    assert whole.vocabulary.join(whole.encode_content("a\ud835\udc9cb\x04").tolist()) == b"a\\ud835\\udc9cb\x04"


@pytest.mark.parametrize("byte", [0x20, 0x41, 0x80, 0xBF])
def test_a_vocabulary_that_lacks_common_bytes_is_refused(byte: int) -> None:
    with pytest.raises(ModelError, match=f"cannot spell byte {byte:#04x}"):
        without([byte])
