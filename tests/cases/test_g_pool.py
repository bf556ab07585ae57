"""Reports about workers that die while they load, and about groups whose members are all alike."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollbook.audit import audit
from rollbook.errors import UsageError
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine
from rollbook.rollout import Limits
from rollbook.rollout.pool import ProcessWorker
from rollbook.run import RunConfig, open_run, run
from rollbook.trace import Sampling
from tests.cases.case import report
from tests.run.run_made import model_folder, renderer

COMMAND = (sys.executable, "-m", "tests.rollout.pool.doing")


@report("G06")
@pytest.mark.parametrize("how", ["import", "usage", "die"])
def test_a_worker_that_dies_while_it_loads_is_reported_at_once(how: str, given: dict[str, Any]) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError) as found:
        asyncio.run(ProcessWorker.start("w", COMMAND, {"start": how}))
    assert time.monotonic() - began < 5 < given["parent_wait_limit_s"]
    said = {
        "import": ("exited with code 1", "ImportError: no module named nothing", "about to import"),
        "usage": ("no such model: try another",),
        "die": ("killed by SIGKILL",),
    }
    assert all(part in str(found.value) for part in said[how])


@report("G19")
@pytest.mark.parametrize("engine", ["draws by the seed", "heeds no seed"])
def test_each_member_has_a_seed_of_its_own_and_equal_members_are_counted(
    engine: str, given: dict[str, Any], tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "m")
    shape = EngineShape(stop_ids=tuple(renderer(folder).info.stop_ids))

    def repeats(prompt: Sequence[int], sampling: Sampling, session: str) -> Sequence[int]:
        return [40, 41, 42, *shape.stop_ids]

    said = None if engine == "draws by the seed" else repeats
    with FakeEngine(Dialect.VLLM, script=said, shape=shape) as fake:
        config = RunConfig(
            environment="tests.storm.world:Storm",
            policy=f"vllm:{fake.url}",
            tokenizer=str(folder),
            tasks=1,
            group=given["n"],
            seed=given["seed"],
            sampling=Sampling(temperature=given["temperature"]),
            limits=Limits(max_generation=16),
        )
        asyncio.run(run(config, tmp_path / "run", start_jitter=0.0))
    source = open_run(tmp_path / "run")
    seeds = [trace.calls[0].sampling.seed for trace in source.traces()]
    assert None not in seeds
    assert len(set(seeds)) == given["n"]
    duplicates = audit(source)["duplicates"]
    alike = 0 if said is None else given["n"] - 1
    assert (duplicates.value, duplicates.details["within_groups"]) == (alike / given["n"], alike)
