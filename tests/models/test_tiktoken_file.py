"""Rank files: the ids of tiktoken itself."""

from __future__ import annotations

import base64
import contextlib
from functools import cache

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.models.tiktoken_file import FAMILIES, read_ranks, tiktoken_json
from rollbook.render.encode import Encoder
from rollbook.render.tracked import scaffold

from .samples import rank_file, texts


@cache
def pair(family: str) -> tuple[tiktoken.Encoding, Encoder]:
    ranks, chosen = read_ranks(rank_file(), "r"), FAMILIES[family]
    control = chosen.tokens(len(ranks), {len(ranks): "<|end|>"})
    library = tiktoken.Encoding("r", pat_str=chosen.pattern, mergeable_ranks=ranks, special_tokens=control)
    return library, Encoder(tiktoken_json(ranks, chosen.pattern, control))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_text_has_the_librarys_ids(family: str, text: str) -> None:
    library, made = pair(family)
    assert made.encode_content(text).tolist() == library.encode(text, disallowed_special=())
    marked = f"<|end|>{text}<|end|>"
    assert made.encode(scaffold(marked), ())[0].token_ids.tolist() == library.encode(marked, allowed_special="all")
    ids = made.encode_content(marked).tolist()
    assert made.control.isdisjoint(ids)
    assert made.vocabulary.join(ids) == marked.encode()


def test_control_tokens_of_a_family() -> None:
    kimi = FAMILIES["kimi"].tokens(100, {101: "<|im_end|>", 400: "<far>"})
    assert (len(kimi), kimi["<|reserved_token_100|>"], kimi["<|im_end|>"], kimi["<far>"]) == (257, 100, 101, 400)
    qwen = FAMILIES["qwen"].tokens(151643, {})
    assert (qwen["<|im_end|>"], qwen["<|extra_0|>"], max(qwen.values())) == (151645, 151646, 151850)


def test_composed_text() -> None:
    ranks = read_ranks(rank_file(), "r")
    made = Encoder(tiktoken_json(ranks, FAMILIES["qwen"].pattern, {}, nfc=True))
    assert made.vocabulary.join(made.encode_content("e\u0301").tolist()) == "é".encode()


def test_ids_may_lie_behind_the_control_tokens() -> None:
    ranks = {**{bytes([byte]): byte for byte in range(256)}, b"ab": 256}
    made = Encoder(tiktoken_json(ranks, ".+", {"<x>": 0}, offset=5))
    assert made.encode_parsed("ab<x>").tolist() == [261, 0]


def line(token: bytes, rank: int) -> bytes:
    return base64.b64encode(token) + b" %d\n" % rank


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"YQ== 0\nYg==\n", "line 2 is not"),
        (b"YQ= 0\n", "line 1 is not"),
        (b"Y*Q== 0\n", "line 1 is not"),
        (b"YQ== x\n", "line 1 is not"),
        (line(b"a", 0) + line(b"a", 1), "twice"),
        (line(b"a", 0) + line(b"b", 0), "twice"),
        (line(b"a", -1), "outside 0"),
        (line(b"a", 1 << 40), "outside 0"),
        (line(b"a" * 5000, 0), "more than 4096 bytes"),
    ],
)
def test_what_is_no_rank_file(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=f"^r .*{message}"):
        read_ranks(data, "r")


def test_a_vocabulary_has_a_bound() -> None:
    with pytest.raises(ModelError, match="2097153 tokens"):
        read_ranks(b"x\n" * ((1 << 21) + 1), "r")


def test_empty_lines_are_nothing() -> None:
    assert read_ranks(b"YQ== 1\r\n\r\nYg== 0\r\n", "r") == {b"b": 0, b"a": 1}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=50))
def test_noise_never_gives_anything_but_a_model_error(noise: bytes) -> None:
    with contextlib.suppress(ModelError):
        read_ranks(noise, "r")


def test_two_tokens_of_one_id_or_name_are_refused() -> None:
    with pytest.raises(ModelError, match="id 1 stands for"):
        tiktoken_json({b"a": 0, b"b": 1}, ".", {"<x>": 1})
    with pytest.raises(ModelError, match="'a' is a token"):
        tiktoken_json({b"a": 0, b"b": 1}, ".", {"a": 2})


def test_a_vocabulary_with_too_many_merges_is_refused_before_they_fill_the_memory() -> None:
    """Some megabytes of ranks, each the start of the next, would become gigabytes of merges."""
    ranks = {b"a" * (place + 1): place for place in range(2000)}
    with pytest.raises(ModelError, match="too many ways to merge"):
        tiktoken_json(ranks, ".", {})
