"""SentencePiece models: the ids of the library itself, for whole texts."""

from __future__ import annotations

import contextlib
from functools import cache

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.models.sentencepiece_file import sentencepiece_json
from rollbook.render.encode import Encoder
from rollbook.render.tracked import scaffold

from .samples import MISTRAL, mistral_file, sentencepiece_model, texts

TRAINED = ["bpe", "unigram"]


@cache
def pair(name: str) -> tuple[sentencepiece.SentencePieceProcessor, Encoder]:
    data = sentencepiece_model(name) if name in TRAINED else mistral_file(name).read_bytes()
    return sentencepiece.SentencePieceProcessor(model_proto=data), Encoder(sentencepiece_json(data, name))


@pytest.mark.parametrize("name", [*MISTRAL, *TRAINED])
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_text_has_the_librarys_ids(name: str, text: str) -> None:
    library, made = pair(name)
    if name == "unigram" and "<0x41>" in text:
        return  # the tokenizers library cannot spell it; it is escaped
    assert made.encode_content(text).tolist() == library.encode(text)


def test_control_tokens_have_their_own_ids() -> None:
    library, made = pair(MISTRAL[1])
    assert made.vocab_size == library.vocab_size() == 32768
    assert made.added["[INST]"] == library.piece_to_id("[INST]") == 3
    assert library.piece_to_id("</s>") in made.control
    ids = made.encode(scaffold("<s>[INST] hi[/INST]"), ())[0].token_ids.tolist()
    assert ids == [1, 3, *library.encode(" hi"), 4]


def test_the_dummy_blank_depends_on_where_a_text_begins() -> None:
    """A suffix alone does not have the ids that it has in the whole."""
    library, made = pair(MISTRAL[0])
    assert library.encode("<|user|>\nhi")[0] == 523
    whole, suffix = made.encode(scaffold("x\n<|user|>\nhi"), [2])
    assert suffix.token_ids.tolist()[0] == 28789
    assert [*whole.token_ids.tolist(), *suffix.token_ids.tolist()] == library.encode("x\n<|user|>\nhi")


@pytest.mark.parametrize("kind", TRAINED)
def test_pieces_that_a_user_defined(kind: str) -> None:
    data = sentencepiece_model(kind, defined=True, add_dummy_prefix=False)
    library, made = sentencepiece.SentencePieceProcessor(model_proto=data), Encoder(sentencepiece_json(data, "m"))
    for text in ("a<tool>b", "a\n\nb", "  a", "the  answer"):
        assert made.encode(scaffold(text), ())[0].token_ids.tolist() == library.encode(text), text
    assert library.piece_to_id("<tool>") in made.control
    assert library.piece_to_id("<tool>") not in made.encode_content("a<tool>b").tolist()
    assert library.piece_to_id("\n\n") in made.encode_content("a\n\nb").tolist()


@pytest.mark.parametrize("kind", TRAINED)
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("The answer 42 é数🙂\0"), max_size=12))
def test_without_byte_fallback_nothing_is_unknown(kind: str, text: str) -> None:
    data = sentencepiece_model(kind, fallback=False)
    library, made = WITHOUT.setdefault(
        kind, (sentencepiece.SentencePieceProcessor(model_proto=data), Encoder(sentencepiece_json(data, "m")))
    )
    ids = made.encode_content(text).tolist()
    assert library.unk_id() not in ids
    plain = library.encode(text)
    assert (ids == plain) == (library.unk_id() not in plain)


WITHOUT: dict[str, tuple[sentencepiece.SentencePieceProcessor, Encoder]] = {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalization_rule_name": "nmt_nfkc"}, "rewrites text"),
        ({"remove_extra_whitespaces": True}, "rewrites text"),
        ({"treat_whitespace_as_suffix": True}, "in a way of its own"),
    ],
)
def test_models_that_change_text_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=rf"^m .*{message}.*tokenizer\.json"):
        sentencepiece_json(sentencepiece_model("bpe", **options), "m")


def test_other_kinds_of_models_are_refused() -> None:
    with pytest.raises(ModelError, match="neither a BPE nor a Unigram"):
        sentencepiece_json(sentencepiece_model("char", fallback=False, hard_vocab_limit=False), "m")


def test_a_cut_file_is_refused() -> None:
    whole = sentencepiece_model("bpe")
    for size in [*range(1, 40), *range(40, len(whole), 53), len(whole) - 1]:
        with pytest.raises(ModelError, match=r"cut short|rewrites text"):  # without settings, those of the format hold
            sentencepiece_json(whole[:size], "m")
    with pytest.raises(ModelError, match="cut short"):
        sentencepiece_json(b"\x0a\x05\x0a\x01a", "m")


NUMBER = b"\x11" + bytes(8) + b"\x08\x01"


@pytest.mark.parametrize("piece", [b"\x0a\x01a\x10\x05", b"\x0a\x01a\x1a\x00", b"\x0a\x01\xff", b"\x08\x01", NUMBER])
def test_a_piece_of_another_form_is_refused(piece: bytes) -> None:
    """The score is a varint, the type is text, the text is not UTF-8, is a number."""
    with pytest.raises(ModelError, match="no SentencePiece model"):
        sentencepiece_json(b"\x0a" + bytes([len(piece)]) + piece, "m")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda data: b"\x0a" + bytes([len(data)]) + data))
def test_noise_never_gives_anything_but_a_model_error(noise: bytes) -> None:
    with contextlib.suppress(ModelError):
        sentencepiece_json(noise, "m")
    with pytest.raises(ModelError):
        sentencepiece_json(b"\xff" + noise, "m")
