import contextlib
import struct

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.models.gguf_file import read_gguf

from .gguf_samples import TOKENS, TYPES, write


def test_it_reads_what_was_written(tmp_path):
    found = read_gguf(write(tmp_path / "m.gguf"))
    assert found["general.architecture"] == "llama"
    assert found["tokenizer.ggml.tokens"] == TOKENS
    assert found["tokenizer.ggml.token_type"] == TYPES
    assert found["tokenizer.ggml.eos_token_id"] == 2


def test_it_agrees_with_the_reference_reader_on_the_real_file(smollm2):
    found = read_gguf(smollm2.weights)
    fields = gguf.GGUFReader(smollm2.weights).fields
    expected = {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value, key


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole = write(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(0, len(whole), 7):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut short|not a GGUF"):
            read_gguf(cut)
    cut.write_bytes(whole[:-1] if len(whole) % 32 else whole[:-129])
    with pytest.raises(ModelError, match="cut short"):
        read_gguf(cut)


def test_the_last_byte_of_the_weights_counts(tmp_path):
    path = write(tmp_path / "m.gguf")
    data = path.read_bytes()
    at = data.index(struct.pack("<3f", 61.0, 62.0, 63.0)) + 12
    path.write_bytes(data[:at])
    read_gguf(path)
    path.write_bytes(data[: at - 1])
    with pytest.raises(ModelError, match="cut short"):
        read_gguf(path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_never_gives_anything_but_a_model_error(tmp_path_factory, noise):
    path = tmp_path_factory.getbasetemp() / "noise.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + noise)
    with contextlib.suppress(ModelError):
        read_gguf(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF"),
        (b"PK\x03\x04 a zip file", "not a GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "cut short"),
    ],
)
def test_foreign_files_are_named_as_such(tmp_path, data, message):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=message):
        read_gguf(path)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ModelError, match="no model file"):
        read_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="cannot read"):
        read_gguf(tmp_path)
