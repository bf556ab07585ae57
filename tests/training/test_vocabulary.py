"""The small vocabulary: marks whole, digits alone, every text spelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from training.head import SHAPE, write_head
from training.vocabulary import CONTROL, END, MARKS, learn, single_bytes

from rollbook.models import load_gguf

TEXTS = ["<|im_start|>user\nCompute 12+345<|im_end|>\n", "<tool_call>\nexpression 12\n</tool_call><|im_end|>"] * 20


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "head.gguf"
    write_head(path, learn(TEXTS, size=300), "{{ messages }}")
    return Tokenizer.from_buffer(load_gguf(path, path.parent).tokenizer_json)


def test_the_same_texts_give_the_same_vocabulary() -> None:
    assert learn(TEXTS, size=300) == learn(TEXTS, size=300)


def test_marks_come_first_and_no_other_token_holds_a_part_of_one() -> None:
    vocabulary = learn(TEXTS, size=300)
    assert vocabulary.tokens[: len(CONTROL) + len(MARKS)] == (*CONTROL, *MARKS)
    assert vocabulary.tokens[vocabulary.end_id] == END
    assert vocabulary.types[:6] == [3, 3, 3, 4, 4, 1]
    assert not [token for token in vocabulary.tokens[5:] if len(token) > 1 and ("|" in token or "<" in token)]


def test_digits_stand_alone(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("12+345", add_special_tokens=False).tokens == ["1", "2", "+", "3", "4", "5"]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


def test_a_head_without_weights_says_what_the_network_is(tmp_path: Path) -> None:
    write_head(tmp_path / "head.gguf", single_bytes(), "{{ messages }}")
    files = load_gguf(tmp_path / "head.gguf", tmp_path)
    assert (files.context_length, files.licence, files.float32) == (SHAPE.context, "apache-2.0", False)
    assert files.stop_ids == {0, 2}
    assert SHAPE.head_size == 32
