"""The shipped model on real engines: its folder for transformers is served by vLLM, its weights by llama.cpp's server,
and rollouts there have the logprobs of a float32 pass of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest

from rollbook import open_run
from rollbook.models import ModelFiles, load_model
from rollbook.trace import samples
from tests.render.families import CACHE
from tests.slow.engines import servers
from tests.slow.engines.conftest import Engine
from tests.slow.engines.models import EngineModels, make_models
from tests.slow.engines.score_call import Apart, Scorer

Record = Callable[[str, object], None]

FLOAT32 = (0.001, 0.02)
"""Mean and greatest distance of a logprob from torch, in nats. Weights and sums are float32 on both engines; keys and
values are float16 on llama.cpp's server, which comes to 0.003 at most."""


@pytest.fixture(scope="module")
def tiny() -> ModelFiles:
    return load_model("tiny", CACHE)


@pytest.fixture(scope="module")
def tiny_models(tiny: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> EngineModels:
    return make_models(tiny, tmp_path_factory.mktemp("tiny") / "models")


@pytest.fixture(scope="module", params=["vllm", "llamacpp"])
def tiny_engine(
    request: pytest.FixtureRequest, engines_python: Path, tiny: ModelFiles, tiny_models: EngineModels
) -> Generator[Engine]:
    """vLLM in float32, and llama.cpp's server."""
    kind, log = str(request.param), tiny_models.folder / f"{request.param}.log"
    assert tiny.context_length is not None
    served = (
        servers.vllm(engines_python, tiny_models, log, name="tiny", dtype="float32", context=tiny.context_length)
        if kind == "vllm"
        else servers.llama_cpp(tiny_models, log)
    )
    with served as url:
        yield Engine(kind, url)


def test_rollouts_on_it_have_the_logprobs_of_torch(
    tiny_engine: Engine, tiny_models: EngineModels, engines_python: Path, tmp_path: Path, record_property: Record
) -> None:
    words = ["run", "calculator", "--policy", tiny_engine.name, "--option", "difficulty=1", "--seed", "11", "--json"]
    words += ["--tasks", "8", "--group", "4", "--concurrency", "8", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ROLLBOOK_CACHE": str(CACHE)},
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    endings = {row["reason"]: row["count"] for row in json.loads(done.stdout)["report"]["endings"]}
    record_property("endings", endings)
    found = [sample for trace in open_run(tmp_path / "run").traces() for sample in samples(trace)]
    assert len(found) >= 32
    rows = [(sample.token_ids[:1].tolist(), sample.token_ids[1:].tolist()) for sample in found]
    scored = Scorer(engines_python, tiny_models).score(rows)
    sampled = np.concatenate([sample.sampled[1:] for sample in found])
    given = np.concatenate([sample.logprobs[1:] for sample in found])
    apart = Apart.of(given[sampled], scored[sampled])
    record_property("tokens", apart.tokens)
    record_property("mean", apart.mean)
    record_property("most", apart.most)
    assert apart.tokens > 500
    mean, most = FLOAT32
    assert apart.mean <= mean
    assert apart.most <= most


@pytest.mark.parametrize("tiny_engine", ["vllm"], indirect=True)
def test_training_on_it_gives_it_new_weights(tiny_engine: Engine, tmp_path: Path, record_property: Record) -> None:
    """Learner and engine agree before the first step and after it: it samples from the weights that it was given."""
    out = tmp_path / "training"
    words = ["train", "calculator", "--policy", tiny_engine.name, "--tokenizer", "local:tiny", "--out", str(out)]
    words += ["--option", "difficulty=1", "--steps", "3", "--tasks", "8", "--group", "4", "--lr", "0.002", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ROLLBOOK_CACHE": str(CACHE)},
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    steps = json.loads((out / "training.json").read_bytes())["steps"]
    record_property("steps", steps)
    assert [step["version"] for step in steps] == [0, 1, 2]
    assert all(step["norm"] and list(step["lags"]) == ["0"] for step in steps)
    mean, most = FLOAT32
    for step in steps:
        assert step["mismatch"]["mean"] <= mean
        assert step["mismatch"]["most"] <= most
