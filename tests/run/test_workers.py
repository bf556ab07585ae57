"""Runs in worker processes, real ones: refused where a worker cannot do it, the same whatever their number, and stopped
by the breaker where the engine is down."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.envs import Environment
from rollbook.errors import ConfigError, UsageError
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan
from rollbook.rollout import Limits
from rollbook.rollout.breaker import BreakerRules, InfrastructureDown
from rollbook.run import RunConfig, policy_of, run
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Fate, Reason, Retry, Task, Trace, facts
from tests.run.run_made import loaded, model_folder, renderer, script
from tests.run.test_runner import check_whole, notes
from tests.storm.lives import undisturbed

DOUBLE = "tests.run.run_made:Double"
DIGEST = "tests.run.test_workers:Digest"


class Digest(Environment):
    """Whatever was sampled is worth something else."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"digest-{seed}-{index}", prompt=f"Say {index}.") for index in range(count)]

    async def score(self, trace: Trace) -> float:
        return float(np.concatenate([node.sampled_ids for node in trace.graph]).sum() % 1009)


def go(config: RunConfig, folder: Path, workers: int = 2, **more: Any) -> None:
    asyncio.run(run(config, folder, workers=workers, **more))


def engine(folder: Path, faults: FaultPlan | None = None, port: int = 0) -> FakeEngine:
    """A model of hashes with the tokenizer's end of a turn."""
    shape = EngineShape(stop_ids=tuple(renderer(folder).info.stop_ids))
    return FakeEngine(Dialect.VLLM, faults=faults, shape=shape, port=port)


def served(url: str, folder: Path, **more: Any) -> RunConfig:
    sizes = {"tasks": 6, "group": 4, "limits": Limits(max_turns=1, max_generation=8, request_retries=0)}
    return RunConfig(environment=DIGEST, policy=f"vllm:{url}", tokenizer=str(folder), **{**sizes, **more})


def rewards_of(folder: Path) -> dict[tuple[str, int], float | None]:
    return {(row.task, row.member): row.reward for row in RunReader(folder, strict=True).summaries()}


def refused(config: RunConfig, folder: Path, kind: type[UsageError] = UsageError, **more: Any) -> str:
    """The message, which comes at once."""
    began = time.monotonic()
    with pytest.raises(kind) as found:
        go(config, folder, **more)
    assert time.monotonic() - began < 20
    return str(found.value)


def test_two_workers_do_every_member_once(tmp_path: Path) -> None:
    config = RunConfig(environment=DOUBLE, policy=script(tmp_path / "m", "It is 8."), tasks=3, group=4)
    go(config, tmp_path / "run", concurrency=4)
    check_whole(tmp_path / "run", config)
    parts = [path.name for path in (tmp_path / "run" / "writers").iterdir() if list(path.glob("segments/*"))]
    assert len(parts) == 2, "both had something to do"


def test_a_policy_object_is_refused_with_workers(tmp_path: Path) -> None:
    config = RunConfig(environment=DOUBLE, policy=script(tmp_path / "m", "It is 8."), tasks=1)
    said = refused(config, tmp_path / "run", ConfigError, policy=loaded(tmp_path / "m", "It is 9."))
    assert "cannot be taken to 2 worker processes: name it in RunConfig.policy" in said
    assert not (tmp_path / "run").exists()
    go(config, tmp_path / "run", policy=policy_of(config))


def test_an_environment_that_only_this_process_knows_is_refused(tmp_path: Path) -> None:
    config = RunConfig(environment="test-double", policy=script(tmp_path / "m", "It is 8."), tasks=1)
    said = refused(config, tmp_path / "run")
    assert "no environment 'test-double'" in said
    assert "name it 'package.module:Class'" in said


def test_an_environment_that_a_worker_cannot_import_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "picky_world.py").write_text(
        "import sys\n"
        "from tests.run.run_made import Double as Picky\n"
        "if 'rollbook.run.worker' in sys.orig_argv:\n"
        "    raise ImportError('no driver in this process')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = RunConfig(environment="picky_world:Picky", policy=script(tmp_path / "m", "It is 8."), tasks=1)
    said = refused(config, tmp_path / "run")
    assert "no driver in this process" in said
    assert "worker w0000" in said or "worker w0001" in said


def test_rewards_follow_from_the_seed_whatever_the_number_of_workers(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    with engine(folder) as fake:
        config = served(fake.url, folder)
        for workers in (0, 1, 2):
            go(config, tmp_path / f"run{workers}", workers, concurrency=5)
        go(msgspec.structs.replace(config, seed=1), tmp_path / "other", 0)
    alone = rewards_of(tmp_path / "run0")
    assert rewards_of(tmp_path / "run1") == rewards_of(tmp_path / "run2") == alone
    assert len(set(alone.values())) > 12
    assert set(rewards_of(tmp_path / "other").values()) != set(alone.values())


def test_the_breaker_stops_a_run_whose_engine_is_down_and_a_resume_goes_on(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    down = FaultPlan(rates={Fault.SERVER_ERROR: 1.0}, sessions=undisturbed())
    rules = EndingRules().override({Reason.ENGINE_UNREACHABLE: Retry(10)})
    with engine(folder, down) as fake:
        url = fake.url
        config = served(url, folder, rules=rules, breaker=BreakerRules(window=8, least=8))
        said = refused(config, tmp_path / "run", InfrastructureDown, concurrency=8)
    assert "8 errors (8 engine_unreachable)" in said
    failed = len(list(RunReader(tmp_path / "run").summaries()))
    assert 8 <= failed < 40
    with engine(folder, port=int(url.rpartition(":")[2])):
        go(config, tmp_path / "run", resume=True, concurrency=8)
    check_whole(tmp_path / "run", config)


def test_the_first_rollouts_start_spread_over_the_jitter(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")

    def spread(name: str, jitter: float) -> float:
        with engine(folder) as fake:
            config = served(fake.url, folder, tasks=2)
            go(config, tmp_path / name, 1, start_jitter=jitter, concurrency=8)
            started = [entry.started for entry in fake.log if entry.session and not entry.session.startswith("check")]
        return max(started) - min(started)

    assert spread("none", 0.0) < spread("some", 1.5)


def test_a_group_that_its_engine_gives_up_on_is_counted(tmp_path: Path) -> None:
    """Every member meets a broken contract until it is dropped: no votes, no advantages, and the run ends."""
    folder = model_folder(tmp_path / "m")
    broken = FaultPlan(rates={Fault.NO_LOGPROBS: 1.0}, sessions=undisturbed())
    with engine(folder, broken) as fake:
        config = served(fake.url, folder, tasks=1, breaker=BreakerRules(share=1.0))
        go(config, tmp_path / "run", start_jitter=0.0)
    reader = RunReader(tmp_path / "run", strict=True)
    fates = Counter(each.fate for each in facts.dispositions(reader.annotations()).values())
    assert fates == {Fate.RETRIED: 8, Fate.DROPPED: 4}
    assert {fact.used for fact in facts.advantages(reader.annotations()).values()} == {0}
    assert len(notes(tmp_path / "run", "advantage")) == 12
