from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.models.gguf_file import read_gguf
from rollbook.models.gguf_tokenizer import tokenizer_json
from rollbook.models.sentencepiece_file import sentencepiece_json

from .gguf_samples import write
from .samples import sentencepiece_model


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


def from_sentencepiece(path: Path, data: bytes, **changes: object) -> Tokenizer:
    """As converters write a SentencePiece model into a GGUF file."""
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    places = range(library.vocab_size())
    kinds = [
        2 if library.is_unknown(at) else 3 if library.is_control(at) else 6 if library.is_byte(at) else 1
        for at in places
    ]
    tokens, scores = [library.id_to_piece(at) for at in places], [library.get_score(at) for at in places]
    return build(path, model="llama", merges=None, tokens=tokens, scores=scores, types=kinds, **changes)


def test_a_sentencepiece_vocabulary(tmp_path):
    data = sentencepiece_model("bpe")
    made = from_sentencepiece(tmp_path / "m.gguf", data)
    assert made.to_str() == Tokenizer.from_str(sentencepiece_json(data, "m").decode()).to_str()
    plain = from_sentencepiece(tmp_path / "n.gguf", data, prefix=False)
    assert made.encode("hi").tokens[0].startswith("\u2581")
    assert not plain.encode("hi").tokens[0].startswith("\u2581")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, r"'bert'.*gpt-2, smollm, qwen2"),
        ({"model": "llama"}, "no scores and types"),
        ({"model": "llama", "scores": [0.0] * 11, "tokens": ["a"] * 11}, "same piece twice"),
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
