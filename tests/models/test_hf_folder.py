"""A model as a folder: transformers loads it, and it computes the same function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollbook.errors import ModelError
from rollbook.models import ModelFiles, load_folder, load_gguf, load_model, read_tensors, write_hf_folder
from rollbook.render import ChatRenderer, RendererConfig
from tests.models.llama_samples import EPSILON, ROPE_BASE, write_llama


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return load_gguf(write_llama(tmp_path / "m.gguf", seed=4), tmp_path)


def rotated(x: np.ndarray[Any, Any], base: float) -> np.ndarray[Any, Any]:
    """Rotary embedding as `transformers` has it, shape (tokens, heads, size): halves turn against each other."""
    size = x.shape[-1]
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(0, size, 2) / size))
    cosine, sine = (np.concatenate([part, part], 1)[:, None] for part in (np.cos(angles), np.sin(angles)))
    return x * cosine + np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1) * sine


def logits(tensors: dict[str, Any], ids: list[int], *, heads: int, key_heads: int) -> np.ndarray[Any, Any]:
    """One layer of a Llama in float64, from its definition: shape (tokens, vocabulary)."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[name]  # noqa: E731
    layer, x = "model.layers.0.", w["model.embed_tokens.weight"][ids]
    h = norm(x, layer + "input_layernorm.weight")
    project = lambda h, part: h @ w[f"{layer}{part}.weight"].T  # noqa: E731
    q = rotated(project(h, "self_attn.q_proj").reshape(len(ids), heads, -1), ROPE_BASE)
    k = rotated(project(h, "self_attn.k_proj").reshape(len(ids), key_heads, -1), ROPE_BASE)
    v = project(h, "self_attn.v_proj").reshape(len(ids), key_heads, -1)
    k, v = (np.repeat(each, heads // key_heads, axis=1) for each in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones((len(ids), len(ids)))), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    x = x + project(np.einsum("hij,jhd->ihd", weights, v).reshape(len(ids), -1), "self_attn.o_proj")
    h = norm(x, layer + "post_attention_layernorm.weight")
    gate = project(h, "mlp.gate_proj")
    x = x + project(gate / (1 + np.exp(-gate)) * project(h, "mlp.up_proj"), "mlp.down_proj")
    return norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T


def test_transformers_computes_what_the_definition_says(files: ModelFiles, tmp_path: Path) -> None:
    assert files.weights is not None
    tensors = read_tensors(files.weights)
    write_hf_folder(files, tensors, tmp_path / "hf")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert model.config.tie_word_embeddings
    assert {name: tuple(each.shape) for name, each in model.named_parameters()} == {
        name: array.shape for name, array in tensors.items()
    }
    ids = [1, 4, 5, 6, 9, 2]
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(found - logits(tensors, ids, heads=2, key_heads=1)).max() < 1e-4
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("ab<|im_end|>", add_special_tokens=False)["input_ids"] == [8, 2]
    assert (tokenizer.eos_token, tokenizer.chat_template) == ("<|im_end|>", "{{ messages }}")


def test_the_folder_reads_as_the_file_does(files: ModelFiles, tmp_path: Path) -> None:
    assert files.weights is not None
    write_hf_folder(files, read_tensors(files.weights), tmp_path / "hf")
    again = load_folder(tmp_path / "hf")
    for name in ("tokenizer_json", "template", "stop_ids", "eos_id", "context_length", "special_tokens"):
        assert getattr(again, name) == getattr(files, name), name
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"], config["head_dim"]) == (EPSILON, ROPE_BASE, 4)


def test_weights_of_an_output_of_its_own_are_not_tied(files: ModelFiles, tmp_path: Path) -> None:
    assert files.weights is not None
    tensors = read_tensors(files.weights)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + np.float32(1)
    write_hf_folder(files, tensors, tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["tie_word_embeddings"] is False


def test_a_folder_that_is_there_is_left_alone(files: ModelFiles, tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    with pytest.raises(ModelError, match="is there already"):
        write_hf_folder(files, {}, tmp_path / "hf")
    assert list((tmp_path / "hf").iterdir()) == []


def test_nothing_is_left_of_a_folder_that_failed(files: ModelFiles, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelError, match="cannot write"):
        write_hf_folder(files, {}, tmp_path / "none" / "hf")
    with pytest.raises(AttributeError):
        write_hf_folder(files, {"x": object()}, tmp_path / "hf")  # type: ignore[dict-item]
    assert sorted(tmp_path.iterdir()) == before


def test_a_model_without_a_gguf_file_is_refused(files: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no GGUF file"):
        write_hf_folder(msgspec.structs.replace(files, weights=None), {}, tmp_path / "hf")


def test_the_shipped_model_as_a_folder_has_a_template_that_renders(tmp_path: Path) -> None:
    tiny = load_model("tiny", tmp_path)
    assert tiny.weights is not None
    write_hf_folder(tiny, read_tensors(tiny.weights), tmp_path / "hf")
    again = load_folder(tmp_path / "hf")
    config = RendererConfig(name="tiny", stop_ids=again.stop_ids, special_tokens=again.special_tokens)
    assert ChatRenderer.build(again.tokenizer_json, again.template or "", config).facts.renders_tools
