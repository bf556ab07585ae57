import json
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.models import CATALOGUE, load_folder, load_gguf, load_model

from .gguf_samples import write


def test_the_real_model(smollm2):
    assert smollm2.name == "smollm2-135m"
    assert smollm2.weights_hash == CATALOGUE["smollm2-135m"].sha256
    assert (smollm2.context_length, smollm2.licence, smollm2.eos_id) == (8192, "apache-2.0", 2)
    assert smollm2.stop_ids == {0, 2, 4}
    assert smollm2.special_tokens["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in (smollm2.template or "")
    tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())
    assert tokenizer.encode("hi 123<|im_end|>").ids == [6004, 216, 33, 34, 35, 2]


def test_the_second_start_is_fast(smollm2):
    started = time.process_time()
    again = load_model("smollm2-135m", smollm2.weights.parent.parent.parent)
    assert time.process_time() - started < 0.5
    assert again == smollm2


def test_a_file_by_path_that_says_little(tmp_path):
    path = write(tmp_path / "m.gguf", template=None, bos=None, eos=None, context=None)
    files = load_gguf(path, tmp_path / "cache")
    assert (files.template, files.template_hash, files.eos_id, files.context_length) == (None, "", None, None)
    assert files.special_tokens == {}
    assert files.stop_ids == {2}
    assert files.name == str(path)


def test_an_id_outside_the_vocabulary_is_not_taken(tmp_path):
    files = load_gguf(write(tmp_path / "m.gguf", eos=99), tmp_path / "cache")
    assert files.eos_id is None


def test_a_missing_path_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="no model file"):
        load_model(str(tmp_path / "none.gguf"), tmp_path / "cache")


def folder(path: Path, **files: object) -> Path:
    tokenizer = {
        "model": {"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []},
        "added_tokens": [{"id": 2, "content": "<end>", "special": True}],
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def test_a_tokenizer_folder(tmp_path):
    config = {"chat_template": "T", "eos_token": {"content": "<end>"}, "bos_token": "</s>", "pad_token": None}
    files = load_folder(
        folder(
            tmp_path,
            tokenizer_config=config,
            generation_config={"eos_token_id": [1, 2]},
            config={"max_position_embeddings": 99},
        )
    )
    assert files.weights is None
    assert (files.template, files.eos_id, files.context_length) == ("T", 2, 99)
    assert files.stop_ids == {1, 2}
    assert files.special_tokens == {"eos_token": "<end>", "bos_token": "</s>"}


def test_a_template_file_wins_over_the_configuration(tmp_path):
    path = folder(tmp_path, tokenizer_config={"chat_template": "old"})
    (path / "chat_template.jinja").write_text("new")
    assert load_folder(path).template == "new"


def test_a_bare_tokenizer_says_nothing_and_nothing_is_guessed(tmp_path):
    files = load_folder(folder(tmp_path))
    assert (files.template, files.eos_id, files.stop_ids, files.context_length) == (None, None, frozenset(), None)


def test_several_templates_are_refused(tmp_path):
    config = {"chat_template": [{"name": "default", "template": "x"}]}
    with pytest.raises(ModelError, match=r"chat_template\.jinja"):
        load_folder(folder(tmp_path, tokenizer_config=config))


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_config", "generation_config", "config"])
def test_a_damaged_file_is_named(tmp_path, name):
    path = folder(tmp_path)
    (path / f"{name}.json").write_text("{")
    with pytest.raises(ModelError, match=f"{name}.json"):
        load_folder(path)


def test_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(ModelError, match=r"cannot read tokenizer\.json"):
        load_folder(tmp_path)
