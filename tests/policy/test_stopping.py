"""Why a generation stopped, by its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollbook.policy.stopping import check_stop_string, checked_finish, finish_of
from rollbook.trace import Finish, Reason, RolloutFailure

FINE: dict[str, Any] = {"last": 5, "tokens": 3, "limit": 8, "ends": frozenset({9})}


@pytest.mark.parametrize(
    ("word", "fields", "finish"),
    [
        ("stop", {"last": 9}, Finish.STOP),
        ("stop", {"last": 9, "matched": 9}, Finish.STOP),
        ("length", {"last": 9, "tokens": 8}, Finish.STOP),
        ("stop", {"last": 9, "matched": "x", "stop": ("x",)}, Finish.STOP),
        ("stop", {"matched": "x", "stop": ("x",)}, Finish.STOP_STRING),
        ("length", {"tokens": 8}, Finish.LENGTH),
        (None, {"tokens": 8}, Finish.LENGTH),
        ("abort", {"last": 9}, Finish.ABORT),
        ("aborted", {"last": None, "tokens": 0}, Finish.ABORT),
    ],
)
def test_finishes(word: str | None, fields: dict[str, Any], finish: Finish) -> None:
    assert finish_of(word, **{**FINE, **fields}) is finish


@pytest.mark.parametrize(
    ("word", "fields", "reason"),
    [
        ("error", {"last": 9}, Reason.ENGINE_UNREACHABLE),
        ("stop", {}, Reason.ENGINE_CONTRACT),
        (None, {}, Reason.ENGINE_CONTRACT),
        ("length", {}, Reason.ENGINE_CONTRACT),
        ("repetition", {}, Reason.ENGINE_CONTRACT),
        ("stop", {"last": None, "tokens": 0}, Reason.ENGINE_CONTRACT),
        ("stop", {"matched": 9}, Reason.ENGINE_CONTRACT),
        ("stop", {"matched": "y", "stop": ("x",)}, Reason.ENGINE_CONTRACT),
    ],
)
def test_words_that_the_tokens_do_not_bear_out(word: str | None, fields: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(RolloutFailure) as caught:
        finish_of(word, **{**FINE, **fields})
    assert caught.value.reason is reason


def test_an_error_is_no_reply_and_a_word_of_ours_is_held_like_an_engines() -> None:
    for said in (Finish.STOP, Finish.LENGTH, Finish.STOP_STRING, Finish.ERROR):
        with pytest.raises(RolloutFailure) as caught:
            checked_finish(said, "odd", **FINE, stop=())
        assert caught.value.reason is Reason.ENGINE_CONTRACT
        assert "odd" in caught.value.detail
    assert checked_finish(Finish.STOP_STRING, "odd", **FINE, stop=("x",)) is Finish.STOP_STRING


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["ok", " ST", "OP"], None),
        (["ok STOP and what its token holds behind it"], None),
        (["ok", " STOP", " more"], "behind the stop string"),
        (["ok", " STO"], "end before a stop string"),
        (["ok", " STOP"], None),
        (["#", " STOP"], "behind the stop string '#'"),
    ],
)
def test_a_stop_string_is_whole_with_the_last_token(texts: list[str], problem: str | None) -> None:
    def check() -> None:
        ids = np.arange(len(texts), dtype=np.int32)
        check_stop_string(("#", " STOP"), ids, lambda kept: "".join(texts[token] for token in kept))

    if problem is None:
        check()
        return
    with pytest.raises(RolloutFailure, match=problem) as caught:
        check()
    assert caught.value.reason is Reason.ENGINE_CONTRACT
