"""The model that comes with the package: a run on it, what the record holds, and torch's own figures beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rollbook.models import ModelFiles, load_model, read_tensors, write_hf_folder
from rollbook.policy.local import LocalConfig, LocalPolicy
from rollbook.run import load_policy
from rollbook.store import RunReader
from rollbook.trace import EndingKind, ParseStatus, Sampling, Trace, samples
from tests.e2e.test_real_model import rollbook

TASKS, GROUP = 16, 8
EXACT = 1e-4
"""Nats. What is promised is 1e-3; float32 on both sides comes to about 1e-5, keys and values in float16 to 1e-3."""

Network = Any
"""The model as ``transformers`` loads it from `write_hf_folder`."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return load_model("tiny", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny") / "run"
    sizes = ("--option", "difficulty=1", "--tasks", str(TASKS), "--group", str(GROUP), "--seed", "11")
    cache = str(tmp_path_factory.mktemp("cache"))
    rollbook("run", "calculator", "--policy", "local:tiny", *sizes, "--cache", cache, "--out", str(out))
    return out


@pytest.fixture(scope="module")
def traces(folder: Path) -> list[Trace]:
    return list(RunReader(folder).traces())


@pytest.fixture(scope="module")
def network(tiny: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Network:
    assert tiny.weights is not None
    torch.set_num_threads(1)  # several threads wait for each other longer than this network computes
    out = tmp_path_factory.mktemp("torch") / "hf"
    write_hf_folder(tiny, read_tensors(tiny.weights), out)
    return AutoModelForCausalLM.from_pretrained(out)


def scores(network: Network, token_ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Logprobs of every token but the first: float64, shape (tokens - 1,)."""
    ids = torch.tensor(token_ids[None].astype(np.int64))
    with torch.no_grad():
        found = torch.log_softmax(network(ids).logits[0, :-1].double(), -1)
    return np.asarray(found.gather(1, ids[0, 1:, None])[:, 0])


def test_every_attempt_ends_by_itself(folder: Path) -> None:
    rows = list(RunReader(folder).summaries())
    assert len(rows) == TASKS * GROUP
    kinds = Counter(row.kind for row in rows)
    assert kinds[EndingKind.SUBMITTED] >= 0.95 * len(rows), kinds
    assert kinds[EndingKind.ERROR] == 0


def test_success_is_mixed_so_that_there_is_something_to_learn(folder: Path) -> None:
    rewards = [row.reward for row in RunReader(folder).summaries()]
    assert None not in rewards
    assert 0.25 <= sum(filter(None, rewards)) / len(rewards) <= 0.55  # 0.40, and a spread of 0.04 over so many
    by_group = Counter((row.group, row.reward) for row in RunReader(folder).summaries())
    mixed = {group for group, reward in by_group if reward == 0.0} & {group for group, reward in by_group if reward}
    assert len(mixed) >= TASKS // 2


def test_its_bad_habits_are_there(traces: list[Trace]) -> None:
    first = [trace.turns()[0].message.tool_calls for trace in traces]
    said = Counter(str(calls[0].status) if calls else "none" for calls in first)
    assert said[ParseStatus.OK] > 0.25 * len(traces), said
    assert min(said[key] for key in ("none", ParseStatus.INVALID_JSON, ParseStatus.UNKNOWN_TOOL)) >= 2, said


def test_the_audit_passes(folder: Path, tmp_path: Path) -> None:
    report = rollbook("audit", str(folder), "--cache", str(tmp_path))
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["drift"]["value"] < 0.05
    for name in ("alignment", "executed_after_fault", "tools_unrendered", "control_in_content", "separators"):
        assert (checks[name]["status"], checks[name]["value"]) == ("ok", 0), name


def test_torch_gives_the_logprobs_that_the_engine_gave(traces: list[Trace], network: Network) -> None:
    differences: list[float] = []
    for trace in traces[:48]:
        for sample in samples(trace):
            apart = np.abs(scores(network, sample.token_ids) - sample.logprobs[1:])
            differences += apart[sample.sampled[1:]].tolist()
    assert len(differences) > 500
    assert max(differences) < EXACT


def test_a_cache_of_float16_would_be_seen(tiny: ModelFiles, network: Network) -> None:
    """The same prompts with keys and values in float16 give other logprobs than torch does: the option matters."""
    prompts = [np.random.default_rng(seed).integers(5, 384, 100).astype(np.int32) for seed in range(4)]

    async def most(float32: bool) -> float:
        assert tiny.weights is not None
        config = LocalConfig(
            name="local:tiny", weights=tiny.weights, stop_ids=tiny.stop_ids, context_length=512, float32=float32
        )
        policy = LocalPolicy(config)
        await policy.start()
        try:
            replies = [
                await policy.sample(prompt, Sampling(temperature=1.0, max_tokens=48, seed=0), session="s")
                for prompt in prompts
            ]
        finally:
            await policy.close()
        whole = [np.concatenate([prompt, reply.token_ids]) for prompt, reply in zip(prompts, replies, strict=True)]
        return max(
            float(np.abs(scores(network, ids)[len(prompt) - 1 :] - reply.logprobs).max())
            for prompt, reply, ids in zip(prompts, replies, whole, strict=True)
        )

    assert asyncio.run(most(True)) < EXACT
    assert asyncio.run(most(False)) > EXACT


def test_a_policy_by_name_is_ready_without_a_fetch(tmp_path: Path) -> None:
    loaded = load_policy("local:tiny", cache=tmp_path)
    assert loaded.policy.info.context_length == 1024
    assert loaded.renderer is not None
    assert loaded.renderer.info.tool_prompt is None
    assert [path.name for path in tmp_path.iterdir()] == ["checksums"]
