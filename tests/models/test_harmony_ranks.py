"""The vocabulary of the harmony library from a model's own tokenizer: the right bytes, whole, or a refusal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import ModelError
from rollbook.models.harmony_ranks import RANKS_SUM, is_harmony, ranks_file, write_ranks
from tests.render.families import tokenizer_json

MARKERS = ["<|channel|>", "<|message|>", "<|call|>"]


def small(added: list[str], vocab: dict[str, int]) -> bytes:
    """A tokenizer file with these added tokens."""
    tokens = [{"id": 1000 + n, "content": text} for n, text in enumerate(added)]
    return json.dumps({"added_tokens": tokens, "model": {"type": "BPE", "vocab": vocab, "merges": []}}).encode()


def test_the_ranks_are_those_that_the_library_accepts(gptoss: bytes) -> None:
    data = ranks_file(gptoss)
    assert hashlib.sha256(data).hexdigest() == RANKS_SUM
    assert data.startswith(b"IQ== 0\n")
    assert data.count(b"\n") == 199_998


def test_a_damaged_file_is_written_anew_and_a_whole_one_is_left_alone(gptoss: bytes, tmp_path: Path) -> None:
    folder = write_ranks(gptoss, tmp_path)
    (path,) = folder.iterdir()
    before = path.stat()
    assert write_ranks(gptoss, tmp_path) == folder
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    path.write_bytes(path.read_bytes()[:-1])
    write_ranks(gptoss, tmp_path)
    assert path.read_bytes() == ranks_file(gptoss)
    assert [found.name for found in folder.iterdir()] == [path.name]


def test_a_cache_that_cannot_be_written_is_told(gptoss: bytes, tmp_path: Path) -> None:
    (tmp_path / "harmony").write_text("in the way")
    with pytest.raises(ModelError, match="cannot write into the model cache"):
        write_ranks(gptoss, tmp_path)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (small(MARKERS, {}), True),
        (small([*MARKERS, "<|end|>"], {"a": 0}), True),
        (small(MARKERS[:2], {}), False),
        (small([], {"".join(MARKERS): 0}), False),  # spelled in the file, but no added tokens
        (b'["<|channel|><|message|><|call|>"', False),
        (tokenizer_json(marked=True), False),
    ],
)
def test_gpt_oss_is_known_by_its_added_tokens(data: bytes, found: bool) -> None:
    assert is_harmony(data) is found


def test_the_real_tokenizer_is_known(gptoss: bytes) -> None:
    assert is_harmony(gptoss)


@pytest.mark.parametrize(
    ("vocab", "says"),
    [({"a": 0}, "another vocabulary"), ({"▁a": 0}, "not byte-level"), ([["a", 0.5]], "no byte-level vocabulary")],
)
def test_another_vocabulary_is_refused_before_anything_is_written(tmp_path: Path, vocab: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        write_ranks(small(MARKERS, vocab), tmp_path)
    assert not list(tmp_path.iterdir())
