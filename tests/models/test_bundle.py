import time

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.models import CATALOGUE, load_gguf, load_model

from .gguf_samples import TOKENS, write
from .llama_samples import write_llama


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


@pytest.mark.parametrize(
    ("ends", "stops"),
    [
        (["<|end|>", "<|return|>", "<|call|>"], {3, 4}),
        (["<|end|>", "<|flush|>", "<|calls|>"], {3, 4}),
        (["<|end|>", "<|return|>", "<|eom_id|>"], {2, 3, 4}),
    ],
)
def test_the_end_of_a_message_within_a_turn_is_no_stop(tmp_path, ends, stops):
    tokens = [*TOKENS[:2], *ends, *TOKENS[5:]]
    files = load_gguf(
        write(tmp_path / "m.gguf", tokens=tokens, types=[2, *[3] * 4, *[1] * 6], eos=3), tmp_path / "cache"
    )
    assert files.stop_ids == stops


def test_an_id_outside_the_vocabulary_is_not_taken(tmp_path):
    files = load_gguf(write(tmp_path / "m.gguf", eos=99), tmp_path / "cache")
    assert files.eos_id is None


def test_float32_means_every_tensor(tmp_path):
    half = gguf.quants.quantize(np.zeros((3, 8), np.float32), gguf.GGMLQuantizationType.F16)
    replaced = {"blk.0.ffn_up.weight": (half, gguf.GGMLQuantizationType.F16)}
    whole, mixed = write_llama(tmp_path / "a.gguf", seed=0), write_llama(tmp_path / "b.gguf", seed=0, replaced=replaced)
    bare = write(tmp_path / "c.gguf", tensors=False)
    assert [load_gguf(path, tmp_path / "cache").float32 for path in (whole, mixed, bare)] == [True, False, False]


def test_a_missing_path_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="no model file"):
        load_model(str(tmp_path / "none.gguf"), tmp_path / "cache")
