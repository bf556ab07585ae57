"""Engines under a changing policy and under load: versions per token, descriptors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.policy import Completion
from rollbook.policy.vllm import Route, VllmPolicy
from rollbook.trace import Sampling, samples
from tests.cases.case import STOP, byte_ids, report
from tests.cases.test_e_engines import LARGE, ROUTES, roll, server
from tests.policy.held import sampled
from tests.policy.serving import VllmServer, remote, serving

ROOT = Path(__file__).parents[2]


# G01


@ROUTES
@report("G01")
def test_tokens_bear_the_version_of_when_they_were_asked_for(given: dict[str, Any], route: Route) -> None:
    before, after, tokens = given["t0"]["version"], given["t1"]["set_version"], given["t2"]["recv_tokens"]
    spans = [{"version": f"v{before}", "start": 0, "end": 20}, {"version": f"v{after}", "start": 20, "end": tokens}]

    async def main(**said: Any) -> Completion:
        arrived, release = asyncio.Event(), asyncio.Event()

        async def answer(body: dict[str, Any]) -> dict[str, Any]:
            arrived.set()
            await release.wait()
            return {"token_ids": [1] * tokens, "finish_reason": "length", **said}

        async with serving(VllmServer(answer, models=LARGE).handle) as url:
            policy = VllmPolicy(remote(url), route=route)
            await policy.start()
            policy.tell_version(before)
            call = asyncio.create_task(
                sampled(policy, np.array([1], np.int32), Sampling(max_tokens=tokens), session="r0")
            )
            await arrived.wait()
            policy.tell_version(after)
            release.set()
            try:
                return await call
            finally:
                await policy.close()

    assert asyncio.run(main()).versions == ((before, tokens),)
    assert asyncio.run(main(weight_versions=spans)).versions == ((before, 20), (after, tokens - 20))


# G02: the versions; staleness is the pool's.


@report("G02")
def test_each_token_bears_its_own_version(given: dict[str, Any]) -> None:
    spans, tokens = given["meta"]["weight_versions"], given["n_output"]
    ids = [*byte_ids("x" * (tokens - 1)), STOP]
    trace = roll(server(lambda body: {"token_ids": ids, "finish_reason": "stop", "weight_versions": spans}))
    (sample,) = samples(trace)
    versions = sample.policy_version[sample.sampled]
    assert versions.tolist() == [7] * 57 + [8] * 71
    assert (sample.min_version, sample.max_version) == (7, 8)
    behind = given["trainer_version"] - versions
    assert behind.max() == 3 > given["max_lag"]
    assert behind.mean() == pytest.approx(2.45, abs=0.01)


# G17


PROGRAM = """
import asyncio, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from aiohttp import web
from rollbook.errors import ConfigError
from rollbook.policy.http import EngineAddress, HttpClient
from tests.policy.serving import serving
from tests.policy.held import sampled

async def handle(request):
    await asyncio.sleep(0.001)
    return web.Response(text="{{}}")

async def main():
    async with serving(handle) as url:
        try:
            await HttpClient(EngineAddress(url=url, connections={calls})).open()
        except ConfigError as error:
            print("start:", error)
        client = HttpClient(EngineAddress(url=url, connections=60))
        await client.open()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(client.post("/x", None)) for _ in range({calls})]
        print("done:", sum(call.result().status == 200 for call in calls))
        await client.close()
        await client.open()
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            await client.post("/x", None)
        except ConfigError as error:
            print("call:", error)
        for number in taken:
            os.close(number)
        await client.close()

asyncio.run(main())
"""


@report("G17")
def test_descriptors_are_checked_at_the_start_and_named_when_they_run_out(given: dict[str, Any]) -> None:
    program = PROGRAM.format(limit=given["ulimit_nofile"], calls=given["concurrent_calls"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    start, all_done, call = done.stdout.splitlines()
    assert start.startswith("start: 1000 connections need about 1128 file descriptors and this process may have 256")
    assert all_done == "done: 1000"
    assert call.startswith("call: no file descriptor is left for a connection to http://127.0.0.1")
