import pytest
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.models.gguf_file import read_gguf
from rollbook.models.gguf_tokenizer import tokenizer_json

from .gguf_samples import write


def build(path, **changes) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(read_gguf(write(path, **changes)), "m.gguf").decode())


def test_ids_are_the_files_own(tmp_path):
    tokenizer = build(tmp_path / "m.gguf")
    assert tokenizer.encode("<|im_start|>ab 12<think>").ids == [1, 8, 9, 6, 7, 3]
    assert tokenizer.get_vocab_size() == 11


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path):
    tokenizer = build(tmp_path / "m.gguf")
    assert tokenizer.decode([1, 8, 3, 2]) == "ab<think>"
    assert tokenizer.decode([1, 8, 3, 2], skip_special_tokens=False) == "<|im_start|>ab<think><|im_end|>"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, r"'llama'.*gpt-2, smollm, qwen2"),
        ({"pre": "tekken"}, r"'tekken'.*smollm.*tokenizer folder"),
        ({"pre": None}, r"None.*smollm"),
        ({"merges": None}, r"no tokenizer\.ggml\.merges"),
        ({"types": [1]}, "does not cover the 11 tokens"),
        ({"types": None}, "does not cover"),
        ({"tokens": ["a"] * 11}, "same token twice"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(tmp_path, changes, message):
    with pytest.raises(ModelError, match=message):
        build(tmp_path / "m.gguf", **changes)
