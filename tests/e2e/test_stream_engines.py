"""A stream over engines that get new weights while rollouts run: the fake servers, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rollbook.policy.control import SglangControl, VllmControl
from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Latency
from rollbook.policy.vllm import VllmPolicy
from rollbook.policy.weights import PauseMode
from rollbook.rollout import LoadedPolicy
from rollbook.rollout.staleness import StaleBy, StalenessBound
from rollbook.run import open_stream
from tests.rollout.made import SMOLLM, ids_of, versions_of
from tests.run.test_runner import CONFIG

IDS = ids_of("the user wants the sum of two and three. " * 6)
SHAPE = EngineShape(context_length=4096, vocabulary=49152, stop_ids=(SMOLLM.stop,))


@pytest.mark.parametrize(
    ("dialect", "mode"),
    [
        (Dialect.VLLM, PauseMode.KEEP),
        (Dialect.VLLM, PauseMode.ABORT),
        (Dialect.SGLANG, PauseMode.KEEP),
        (Dialect.SGLANG, PauseMode.ABORT),
    ],
)
def test_rollouts_that_outlive_an_update_keep_the_versions_of_their_tokens(
    tmp_path: Path, dialect: Dialect, mode: PauseMode
) -> None:
    config = msgspec.structs.replace(CONFIG, tasks=2, group=2)

    async def main(url: str) -> None:
        address = EngineAddress(url=url)
        remote = RemoteConfig(name=f"{dialect}:{url}", address=address, stop_ids=frozenset({SMOLLM.stop}))
        vllm = dialect is Dialect.VLLM
        policy = LoadedPolicy(VllmPolicy(remote) if vllm else SglangPolicy(remote), SMOLLM.renderer)
        control = VllmControl(address) if vllm else SglangControl(address)
        bound = StalenessBound(most=1, by=StaleBy.OLDEST)
        async with open_stream(
            config, tmp_path / "run", policy=policy, control=control, bound=bound, start_jitter=0.0
        ) as stream:
            await asyncio.sleep(0.5)  # all four are being sampled: a reply takes about a second
            assert engine.running == 4
            await stream.update(tmp_path, 1, mode=mode)
            seen = [group async for group in stream]
        assert len(seen) == 2
        for group in seen:
            assert group.version == 1
            for trace in group.traces():
                found = versions_of(trace)
                assert len(trace.policy_nodes) == 1
                assert len(trace.graph.segments.view) == (2 if mode is PauseMode.ABORT else 1)
                row = group.staleness[trace.id]
                assert ([version for version, _ in found.counts], found.unknown) == ([0, 1], 0)
                # The trainer gained one version while the rollout ran.
                assert (row.in_flight, row.in_queue) == (1, 0)

    with FakeEngine(dialect, script=lambda *_: IDS, shape=SHAPE, latency=Latency(per_token=0.01)) as engine:
        asyncio.run(asyncio.wait_for(main(engine.url), 30))
