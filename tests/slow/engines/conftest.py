"""The engines that the tests here run on: each server is started once, when a test first asks for it."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollbook import LoadedPolicy, load_policy
from rollbook.models import ModelFiles
from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.vllm import Route, VllmPolicy
from tests.render.families import CACHE
from tests.slow.engines import servers
from tests.slow.engines.models import EngineModels, make_models
from tests.slow.engines.score_call import Scorer

ENGINES = ("vllm", "vllm-completions", "llamacpp", "sglang")


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine."""

    kind: str
    """One of `ENGINES`."""
    url: str

    @property
    def name(self) -> str:
        """As a policy."""
        return f"{self.kind.partition('-')[0]}:{self.url}"

    @property
    def bfloat16(self) -> bool:
        """True where it computes in bfloat16; float32 otherwise."""
        return self.kind.startswith("vllm")

    def loaded(self) -> LoadedPolicy:
        """A client of it, not connected yet; the tokenizer is found by what the engine says."""
        made = load_policy(self.name, cache=CACHE)
        if self.kind != "vllm-completions":
            return made
        config = RemoteConfig(
            name=self.name,
            address=EngineAddress(url=self.url),
            stop_ids=made.renderer.info.stop_ids,
        )
        return LoadedPolicy(VllmPolicy(config, route=Route.COMPLETIONS), made.renderer)


@pytest.fixture(scope="session")
def engines_python() -> Path:
    """The interpreter of the engines' environment."""
    return Path(os.environ["ROLLBOOK_ENGINES_PYTHON"]).absolute()


@pytest.fixture(scope="session")
def models(smollm2: ModelFiles) -> EngineModels:
    return make_models(smollm2, CACHE.parent / "engines")


@pytest.fixture(scope="session")
def scorer(engines_python: Path, models: EngineModels) -> Scorer:
    return Scorer(engines_python, models)


@pytest.fixture(scope="session")
def vllm_url(engines_python: Path, models: EngineModels) -> Generator[str]:
    with servers.vllm(engines_python, models, models.folder / "vllm.log") as url:
        yield url


@pytest.fixture(scope="session")
def llamacpp_url(models: EngineModels) -> Generator[str]:
    with servers.llama_cpp(models, models.folder / "llamacpp.log") as url:
        yield url


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    kind = str(request.param)
    if kind == "sglang":
        pytest.skip("no SGLang on the CPU")
    url: str = request.getfixturevalue("llamacpp_url" if kind == "llamacpp" else "vllm_url")
    return Engine(kind, url)
