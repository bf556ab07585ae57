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
from rollbook.trace import ParseStatus, Sampling, Trace, samples
from tests.e2e.test_real_model import rollbook

TASKS, GROUP = 16, 8


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


def test_every_attempt_ends_by_itself(folder: Path) -> None:
    rows = list(RunReader(folder).summaries())
    assert len(rows) == TASKS * GROUP
    kinds = Counter(row.kind for row in rows)
    assert kinds["submitted"] >= 0.95 * len(rows), kinds
    assert kinds["error"] == 0


def test_success_is_mixed_so_that_there_is_something_to_learn(folder: Path) -> None:
    rewards = [row.reward for row in RunReader(folder).summaries()]
    assert None not in rewards
    assert 0.3 <= sum(filter(None, rewards)) / len(rewards) <= 0.65
    by_group = Counter((row.group, row.reward) for row in RunReader(folder).summaries())
    mixed = {group for group, reward in by_group if reward == 0.0} & {group for group, reward in by_group if reward}
    assert len(mixed) >= TASKS // 2


def test_its_bad_habits_are_there(traces: list[Trace]) -> None:
    first = [trace.turns()[0].message.tool_calls for trace in traces]
    said = Counter(str(calls[0].status) if calls else "none" for calls in first)
    assert said[ParseStatus.OK] > 0.3 * len(traces), said
    assert min(said[key] for key in ("none", ParseStatus.INVALID_JSON, ParseStatus.UNKNOWN_TOOL)) >= 2, said


def test_the_audit_passes(folder: Path, tmp_path: Path) -> None:
    report = rollbook("audit", str(folder), "--cache", str(tmp_path))
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["drift"]["value"] < 0.05
    for name in ("alignment", "executed_after_fault", "tools_unrendered", "control_in_content", "separators"):
        assert (checks[name]["status"], checks[name]["value"]) == ("ok", 0), name


def test_torch_gives_the_logprobs_that_the_engine_gave(traces: list[Trace], tiny: ModelFiles, tmp_path: Path) -> None:
    assert tiny.weights is not None
    write_hf_folder(tiny, read_tensors(tiny.weights), tmp_path / "hf")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    differences: list[float] = []
    for trace in traces[:32]:
        for sample in samples(trace):
            ids = torch.tensor(sample.token_ids[None].astype(np.int64))
            with torch.no_grad():
                found = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
            scored = found.gather(1, ids[0, 1:, None])[:, 0].numpy()
            kept = sample.sampled[1:]
            differences += np.abs(scored - sample.logprobs[1:])[kept].tolist()
    assert len(differences) > 500
    assert max(differences) < 1e-3


def test_a_kind_of_cache_that_rounds_would_be_seen(tiny: ModelFiles) -> None:
    """The same tokens scored with keys and values in float16 differ by more than float32 does: the option matters."""

    async def scores(float32: bool) -> np.ndarray[Any, Any]:
        assert tiny.weights is not None
        config = LocalConfig(
            name="local:tiny", weights=tiny.weights, stop_ids=tiny.stop_ids, context_length=512, float32=float32
        )
        policy = LocalPolicy(config)
        await policy.start()
        try:
            prompt = np.arange(5, 105, dtype=np.int32)
            reply = await policy.sample(prompt, Sampling(temperature=0.0, max_tokens=8, seed=0), session="s")
        finally:
            await policy.close()
        return reply.logprobs

    exact, rounded = asyncio.run(scores(True)), asyncio.run(scores(False))
    assert exact.tolist() != rounded.tolist()


def test_a_policy_by_name_is_ready_without_a_fetch(tmp_path: Path) -> None:
    loaded = load_policy("local:tiny", cache=tmp_path)
    assert loaded.policy.info.context_length == 1024
    assert loaded.renderer is not None
    assert loaded.renderer.info.tool_prompt is None
    assert [path.name for path in tmp_path.iterdir()] == ["checksums"]
