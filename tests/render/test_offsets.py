"""Characters of tokens: by their bytes, and by the library's word where a normalizer changed the text."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from rollbook.render.encode import Encoder
from rollbook.render.offsets import Offsets, offsets_of
from tests.render.kinds import kind, kind_json


def spans(name: str, text: str) -> list[tuple[bytes, int, int]]:
    """Bytes of each token, and the first and last position that it covers."""
    made: Encoder = kind(name)
    encoding = Tokenizer.from_str(kind_json(name).decode()).encode(text)
    spelled = [made.vocabulary[token] for token in encoding.ids]
    offsets = offsets_of(encoding, spelled, text)
    covered = [[at for at in range(len(text)) if places(offsets, at, token)] for token in range(len(spelled))]
    return [(data, each[0], each[-1]) for data, each in zip(spelled, covered, strict=True)]


def places(offsets: Offsets, at: int, token: int) -> bool:
    return offsets.covering(at) <= token < offsets.behind(at + 1)


@pytest.mark.parametrize("name", ["bpe-legacy", "unigram-legacy"])
def test_bytes_of_unknown_characters(name: str) -> None:
    """Unigram reports one span for all bytes of both characters."""
    assert spans(name, "\u0394\u0395") == [
        (b" ", 0, 0),
        (b"\xce", 0, 0),
        (b"\x94", 0, 0),
        (b"\xce", 1, 1),
        (b"\x95", 1, 1),
    ]


def test_a_composed_character_covers_what_it_was_made_of() -> None:
    assert spans("bpe-nfc", "\u0395\u0301\u0394") == [
        (b" ", 0, 1),
        (b"\xce", 0, 1),
        (b"\x88", 0, 1),
        (b"\xce", 2, 2),
        (b"\x94", 2, 2),
    ]


def test_nothing() -> None:
    encoding = Tokenizer.from_str(kind_json("bpe-legacy").decode()).encode("")
    offsets = offsets_of(encoding, [], "")
    assert (offsets.covering(0), offsets.behind(0)) == (0, 0)
    lost = offsets_of(encoding, [], "ab")
    assert (lost.covering(1), lost.behind(1)) == (0, 0)
