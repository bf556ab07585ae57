"""Real weights swapped under a running generation of vLLM: each token has the version of the weights it came from."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import numpy as np

from rollbook import LoadedPolicy, Sampling
from rollbook.policy import Completion, TokenIds
from rollbook.policy.control import VllmControl
from rollbook.policy.http import EngineAddress
from rollbook.policy.weights import PauseMode, swap_weights
from rollbook.trace import Finish
from tests.slow.engines.conftest import Engine
from tests.slow.engines.live_engines import LIMITS, asked, sample
from tests.slow.engines.models import EngineModels
from tests.slow.engines.score_call import Apart, Scorer

Record = Callable[[str, object], None]

LONG = Sampling(seed=3, temperature=1.0, max_tokens=160)
QUESTION = "Write a long story about a ship, its crew and the weather."


@asynccontextmanager
async def control_of(url: str, models: EngineModels) -> AsyncGenerator[VllmControl]:
    """Weight control; the model's own weights are back when the block ends, whatever happened in it."""
    control = VllmControl(EngineAddress(url=url))
    await control.open()
    try:
        yield control
    finally:
        await swap_weights(control, models.hf, 0)
        await control.close()


async def underway(url: str) -> None:
    """Wait until the generation has some tokens, as the engine counts them."""
    before = await asyncio.to_thread(sampled, url)
    while await asyncio.to_thread(sampled, url) < before + 16:  # noqa: ASYNC110 (the engine has no event to wait for)
        await asyncio.sleep(0.05)


def sampled(url: str) -> float:
    """Tokens that the engine has sampled since it started."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def test_a_swap_in_mid_generation_gives_spans_on_the_right_tokens(
    vllm_url: str, models: EngineModels, scorer: Scorer, record_property: Record
) -> None:
    """Scored by a float32 pass of either weights, each span fits its own, and clearly not the other's."""

    async def run() -> tuple[TokenIds, Completion, LoadedPolicy]:
        async with control_of(vllm_url, models) as control, Engine("vllm", vllm_url).loaded() as loaded:
            prompt = asked(loaded, QUESTION)
            task = asyncio.create_task(sample(loaded, prompt, LONG))
            await underway(vllm_url)
            await swap_weights(control, models.changed, 7, mode=PauseMode.KEEP)
            return prompt, await task, loaded

    prompt, reply, _ = asyncio.run(run())
    record_property("spans", [list(span) for span in reply.versions])
    assert [version for version, _ in reply.versions] == [0, 7]
    cut = reply.versions[0][1]
    rows = [(prompt.tolist(), reply.token_ids.tolist())]
    old, new = scorer.score(rows), scorer.score(rows, changed=True)
    right = np.concatenate([old[:cut], new[cut:]])
    wrong = np.concatenate([new[:cut], old[cut:]])
    fits, fails = Apart.of(reply.logprobs, right), Apart.of(reply.logprobs, wrong)
    record_property("mean_by_right_weights", fits.mean)
    record_property("mean_by_wrong_weights", fails.mean)
    mean, most = LIMITS[True]
    assert fits.mean <= mean
    assert fits.most <= most
    for span in (slice(0, cut), slice(cut, None)):
        assert Apart.of(reply.logprobs[span], wrong[span]).mean > 3 * Apart.of(reply.logprobs[span], right[span]).mean


def test_an_aborted_generation_goes_on_as_a_second_segment(vllm_url: str, models: EngineModels) -> None:
    async def run() -> tuple[Completion, Completion]:
        async with control_of(vllm_url, models) as control, Engine("vllm", vllm_url).loaded() as loaded:
            prompt = asked(loaded, QUESTION)
            task = asyncio.create_task(sample(loaded, prompt, LONG))
            await underway(vllm_url)
            await swap_weights(control, models.changed, 8, mode=PauseMode.ABORT)
            first = await task
            rest = Sampling(seed=4, max_tokens=160 - len(first.token_ids))
            return first, await sample(loaded, np.concatenate([prompt, first.token_ids]), rest)

    first, second = asyncio.run(run())
    assert first.finish is Finish.ABORT
    assert 0 < len(first.token_ids) < 160
    assert first.versions == ((0, len(first.token_ids)),)
    assert second.versions == ((8, len(second.token_ids)),)
