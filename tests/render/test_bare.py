"""What becomes of a tokenizer's parts when its control tokens are taken out."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.errors import ModelError
from rollbook.render.bare import behind_first, blank_sign, is_white, unknown_token, without_control
from tests.render.kinds import BLANK, REPLACE

METASPACE = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False}


def sequence(key: str, *inner: Any) -> dict[str, Any]:
    return {"type": "Sequence", key: list(inner)}


@pytest.mark.parametrize(
    ("parts", "sign"),
    [
        ({}, None),
        ({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel"}}, None),
        ({"normalizer": REPLACE}, BLANK),
        ({"normalizer": sequence("normalizers", sequence("normalizers", {"type": "NFC"}, REPLACE))}, BLANK),
        ({"pre_tokenizer": sequence("pretokenizers", {"type": "Digits"}, METASPACE)}, "_"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "__"}}, None),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "-"}, "content": "_"}}, None),
    ],
)
def test_the_sign_for_a_blank(parts: dict[str, Any], sign: str | None) -> None:
    assert blank_sign(parts) == sign


def test_white_space() -> None:
    assert is_white(" \n", None)
    assert is_white(f"{BLANK} \t", BLANK)
    assert not is_white(BLANK, None)
    assert not is_white(f"{BLANK}x", BLANK)


def test_the_unknown_token() -> None:
    assert unknown_token({"type": "Unigram", "unk_id": 3, "vocab": []}) == 3
    assert unknown_token({"type": "BPE", "unk_token": "<u>", "vocab": {"<u>": 7}}) == 7
    assert unknown_token({"type": "BPE", "unk_token": "<u>", "vocab": {}}) is None
    assert unknown_token({"type": "Unigram", "unk_id": None}) is None
    assert unknown_token({"type": "BPE", "unk_token": None, "vocab": {}}) is None


def test_a_second_form_where_the_first_segment_is_special() -> None:
    assert behind_first({"pre_tokenizer": None}) is None
    assert behind_first({"pre_tokenizer": {**METASPACE, "prepend_scheme": "always"}}) is None
    changed = behind_first({"pre_tokenizer": sequence("pretokenizers", {"type": "Digits"}, METASPACE), "model": 1})
    never = {**METASPACE, "prepend_scheme": "never"}
    assert changed == {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits"}, never), "model": 1}


def test_words_of_control_tokens_are_hidden_unless_a_merge_needs_them() -> None:
    added = [{"content": "<s>"}, {"content": "ab"}, {"content": "\n\n"}]
    vocab = {"<s>": 0, "a": 1, "b": 2, "ab": 3, "<u>": 4}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a b"], "unk_token": "<u>"}
    made = without_control({"added_tokens": added, "model": model}, {"<s>", "ab", "<u>"})
    assert made["model"]["vocab"] == {" <s>": 0, "a": 1, "b": 2, "ab": 3, " <u>": 4}
    assert (made["model"]["unk_token"], made["added_tokens"]) == (" <u>", [{"content": "\n\n"}])
    assert list(vocab) == ["<s>", "a", "b", "ab", "<u>"]


def test_a_model_without_a_type_is_known_by_its_merges() -> None:
    made = without_control({"added_tokens": [], "model": {"vocab": {"a": 0}, "merges": []}}, set())
    assert made["model"]["vocab"] == {"a": 0}
    with pytest.raises(ModelError, match="'WordPiece' is not supported"):
        without_control({"added_tokens": [], "model": {"type": "WordPiece", "vocab": {}}}, set())
