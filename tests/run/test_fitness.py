"""A run refuses an engine that drops or alters ids before it spends time on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollbook import LoadedPolicy, ScriptedPolicy, UsageError, load_policy
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan
from rollbook.run import refuse_unfit
from rollbook.trace import Sampling
from tests.run.run_made import model_folder, renderer


def asked(engine: FakeEngine, dialect: Dialect, folder: Path) -> None:
    asyncio.run(refuse_unfit(load_policy(f"{dialect}:{engine.url}", tokenizer=folder)))


def fake(dialect: Dialect, folder: Path, **faults: Fault) -> FakeEngine:
    """With a fault for the first request of each of these sessions."""
    stops = tuple(renderer(folder).info.stop_ids)
    plan = FaultPlan(sessions={name.replace("_", "-"): [fault] for name, fault in faults.items()})
    return FakeEngine(dialect, shape=EngineShape(stop_ids=stops), faults=plan)


@pytest.mark.parametrize("dialect", [Dialect.VLLM, Dialect.SGLANG, Dialect.LLAMACPP])
def test_a_fit_engine_is_asked_for_three_tokens(dialect: Dialect, tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    with fake(dialect, folder) as engine:
        asked(engine, dialect, folder)
        assert [entry.session for entry in engine.log if entry.session.startswith("check-")] == [
            "check-1",
            "check-2",
            "check-3",
        ]


@pytest.mark.parametrize(
    ("dialect", "fault", "words"),
    [
        (Dialect.VLLM, Fault.ALTERED_IDS, "another prompt than was sent"),
        (Dialect.VLLM, Fault.CUT_PROMPT, "prompt"),
        (Dialect.VLLM, Fault.NO_LOGPROBS, "logprob"),
        (Dialect.SGLANG, Fault.ALTERED_IDS, "another prompt than was sent"),
        (Dialect.LLAMACPP, Fault.CUT_PROMPT, "prompt"),
    ],
)
def test_ids_that_are_altered_or_dropped_are_refused(
    dialect: Dialect, fault: Fault, words: str, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path)
    told = rf"not fit to train on .*{words}.*rollbook check policy '{dialect}:"
    with fake(dialect, folder, check_2=fault) as engine, pytest.raises(UsageError, match=told):
        asked(engine, dialect, folder)


def test_a_busy_moment_refuses_nobody(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    with fake(Dialect.VLLM, folder, check_1=Fault.BUSY_LATER) as engine:
        asked(engine, Dialect.VLLM, folder)


@pytest.mark.parametrize("name", ["scripted", "scripted:x.json", "my own", "local:tiny"])
def test_what_is_no_engine_behind_a_url_is_not_asked(name: str, tmp_path: Path) -> None:
    def never(*_: object) -> object:
        raise AssertionError("it was asked")

    policy = ScriptedPolicy(never, name=name)  # type: ignore[arg-type]
    asyncio.run(refuse_unfit(LoadedPolicy(policy, renderer(model_folder(tmp_path)))))


@pytest.mark.parametrize("fault", [Fault.NAN, Fault.ALTERED_IDS])
def test_the_runs_own_sampling_is_held_to_the_contract_too(fault: Fault, tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    with fake(Dialect.VLLM, folder, check=fault) as engine:
        loaded = load_policy(f"vllm:{engine.url}", tokenizer=folder)
        with pytest.raises(UsageError, match="not fit to train on with this sampling"):
            asyncio.run(refuse_unfit(loaded, Sampling(temperature=0.7)))
    with fake(Dialect.VLLM, folder, check=Fault.SERVER_ERROR) as engine:
        asyncio.run(refuse_unfit(load_policy(f"vllm:{engine.url}", tokenizer=folder), Sampling(temperature=0.7)))
