"""Weights out of GGUF files and back into them, beside the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.models import ModelFiles, read_tensors, write_gguf
from rollbook.models.gguf_file import read_head
from rollbook.models.gguf_tensors import hf_name
from tests.models.gguf_samples import write
from tests.models.llama_samples import SHAPES, write_llama


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=1)
    changed = {name: array + np.float32(1) for name, array in read_tensors(source).items()}
    write_gguf(tmp_path / "out.gguf", source, changed)
    again = read_tensors(tmp_path / "out.gguf")
    assert again.keys() == changed.keys()
    assert all(again[name].tobytes() == changed[name].tobytes() for name in changed)


def test_the_same_weights_give_the_same_file(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=1)
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    write_gguf(first, source, read_tensors(source))
    write_gguf(second, first, read_tensors(first))
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_reference_library_reads_it(tmp_path: Path) -> None:
    source, out = write_llama(tmp_path / "source.gguf", seed=2), tmp_path / "out.gguf"
    write_gguf(out, source, read_tensors(source))
    ours, theirs = gguf.GGUFReader(out), gguf.GGUFReader(source)
    kept = {key for key in theirs.fields if not key.startswith("GGUF.") and key != "general.file_type"}
    assert {key: ours.fields[key].contents() for key in kept} == {key: theirs.fields[key].contents() for key in kept}
    assert ours.fields["general.file_type"].contents() == gguf.LlamaFileType.ALL_F32
    for mine, given_ in zip(ours.tensors, theirs.tensors, strict=True):
        assert (mine.name, mine.tensor_type) == (given_.name, gguf.GGMLQuantizationType.F32)
        assert np.array_equal(mine.data, given_.data)


def test_rows_of_queries_and_keys_go_by_halves_and_others_stay(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=3)
    stored = {hf_name(tensor.name): np.array(tensor.data) for tensor in gguf.GGUFReader(source).tensors}
    for name, array in read_tensors(source).items():
        if "q_proj" in name:  # 2 heads of 4 rows: the even ones first
            assert np.array_equal(array, stored[name][[0, 2, 1, 3, 4, 6, 5, 7]])
        elif "k_proj" not in name:
            assert np.array_equal(array, stored[name])


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-4, 1.0, 300.0]))
def test_packed_weights_are_those_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int, scale: float
) -> None:
    wanted = gguf.GGMLQuantizationType[kind]
    array = (np.random.default_rng(seed).normal(size=(3, 64)) * scale).astype(np.float32)
    path = tmp_path_factory.getbasetemp() / f"{kind}.gguf"
    packed = gguf.quants.quantize(array, wanted)
    write_llama(path, seed=0, replaced={"blk.0.ffn_up.weight": (packed, wanted)})
    found = read_tensors(path)["model.layers.0.mlp.up_proj.weight"]
    assert found.dtype == np.float32
    assert np.array_equal(found, gguf.quants.dequantize(packed, wanted))


def test_a_type_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q5_0
    packed = gguf.quants.quantize(np.zeros((3, 64), np.float32), kind)
    path = write_llama(tmp_path / "m.gguf", seed=0, replaced={"blk.0.ffn_up.weight": (packed, kind)})
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.weight is of ggml type 6.*Q8_0"):
        read_tensors(path)


def test_a_tensor_of_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="weight belongs to no Llama"):
        read_tensors(write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("model.norm.weight"),
        lambda tensors: tensors.update({"model.norm.weight": np.zeros(9, np.float32)}),
        lambda tensors: tensors.update({"lm_head.weight": np.zeros((11, 8), np.float32)}),
    ],
    ids=["one less", "another shape", "one more"],
)
def test_weights_that_are_not_the_sources_are_refused(tmp_path: Path, change: Any) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=0)
    tensors = read_tensors(source)
    change(tensors)
    with pytest.raises(ModelError, match=r"not the weights of source\.gguf"):
        write_gguf(tmp_path / "out.gguf", source, tensors)
    assert not (tmp_path / "out.gguf").exists()


def test_a_name_without_a_place_is_refused(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=0)
    with pytest.raises(ModelError, match=r"model\.extra\.weight has no place"):
        write_gguf(tmp_path / "out.gguf", source, {"model.extra.weight": np.zeros(1, np.float32)})


def test_a_folder_that_is_not_there_is_a_model_error(tmp_path: Path) -> None:
    source = write_llama(tmp_path / "source.gguf", seed=0)
    with pytest.raises(ModelError, match="cannot write"):
        write_gguf(tmp_path / "none" / "out.gguf", source, read_tensors(source))


def test_shapes_are_given_as_numpy_counts_them(tmp_path: Path) -> None:
    head = read_head(write_llama(tmp_path / "m.gguf", seed=0))
    assert {row.name: row.shape for row in head.tensors} == SHAPES


def test_the_real_files_weights_are_those_of_the_reference(smollm2: ModelFiles) -> None:
    assert smollm2.weights is not None
    found = read_tensors(smollm2.weights)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2.weights).tensors}
    assert found.keys() == set(map(hf_name, tensors))
    for name in ("output_norm.weight", "blk.0.attn_v.weight", "blk.29.ffn_down.weight"):
        expected = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        assert np.array_equal(found[hf_name(name)], expected), name
