"""Vocabularies of pieces as tokenizer.json: what is refused, what becomes an added token."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rollbook.errors import ModelError
from rollbook.models.pieces import Pieces, PieceType, pieces_json

SMALL = Pieces(
    texts=["<unk>", "<s>", "<tool>", "\u2581\u2581", "\n\n", "a", "b", "ab", "\u2581", "gone", "aab"],
    scores=[0.0, 0.0, 0.0, 0.0, 0.0, -3.0, -4.0, -1.0, -2.0, 0.0, -1.0],
    types=[2, 3, 4, 4, 4, 1, 1, 1, 1, 5, 1],
    unigram=False,
    dummy_blank=True,
)


def parts(**changes: Any) -> Any:
    return json.loads(pieces_json(msgspec.structs.replace(SMALL, **changes), "m"))


def test_added_tokens() -> None:
    added = {entry["content"]: (entry["id"], entry["special"]) for entry in parts()["added_tokens"]}
    assert added == {"<unk>": (0, True), "<s>": (1, True), "<tool>": (2, False), "\n\n": (4, False)}


def test_merges_rise_by_score_and_fall_by_length() -> None:
    assert parts()["model"]["merges"] == [["\u2581", "\u2581"], ["a", "ab"], ["a", "b"]]
    assert parts()["model"]["unk_token"] == "<unk>"


def test_a_unigram_vocabulary_keeps_scores_and_hides_unused_pieces() -> None:
    model = parts(unigram=True)["model"]
    assert model["vocab"][7] == ["ab", -1.0]
    assert model["vocab"][9] == [" gone", 0.0]
    assert (model["unk_id"], model["byte_fallback"]) == (0, False)


def test_the_dummy_blank() -> None:
    assert [each["type"] for each in parts()["normalizer"]["normalizers"]] == ["Prepend", "Replace"]
    assert [each["type"] for each in parts(dummy_blank=False)["normalizer"]["normalizers"]] == ["Replace"]


def without(place: int) -> list[int]:
    return [PieceType.NORMAL if at == place else kind for at, kind in enumerate(SMALL.types)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": []}, "do not cover the 0 pieces"),
        ({"scores": [0.0]}, "do not cover the 11 pieces"),
        ({"types": [1]}, "do not cover"),
        ({"texts": ["a"] * 11}, "same piece twice"),
        ({"texts": ["", *SMALL.texts[1:]]}, "empty or overlong"),
        ({"texts": ["x" * 5000, *SMALL.texts[1:]]}, "empty or overlong"),
        ({"scores": [float("nan"), *SMALL.scores[1:]]}, "no number"),
        ({"types": [9, *SMALL.types[1:]]}, "unknown type"),
        ({"types": without(0), "unigram": True}, "needs an unknown piece"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^m: .*{message}"):
        parts(**changes)
