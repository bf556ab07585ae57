"""What rollouts stand on, on real engines: ids, logprobs, cache, stops, context, aborts."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rollbook import LoadedPolicy, Sampling, check_policy
from rollbook.policy import Completion, PolicyVerdict, TokenIds
from rollbook.run import refuse_unfit
from rollbook.trace import Finish, LogprobKind, Message, Reason, Role, RolloutFailure
from tests.policy.held import sampled
from tests.slow.engines.conftest import Engine
from tests.slow.engines.score_call import Apart, Scorer

Record = Callable[[str, object], None]

BLOCK = 128
"""Tokens of one block of vLLM's prefix cache on the CPU: nothing shorter is found again."""
LIMITS = {True: (0.06, 0.7), False: (0.005, 0.05)}
"""Mean and greatest distance of a logprob from the float32 pass, in nats, by whether the engine computes in bfloat16.
Twice what the same pass in torch shows: bfloat16 keeps 8 bits of each activation, which is 0.035 and 0.35 here."""
QUESTIONS = (
    "Tell me about whales.",
    "What is 17 times 3?",
    "Write a short poem about rain.",
    "Only emoji: 🎉🚀👩‍🚀🇨🇭 日本語",
    "List three colours.",
    "Explain what a lighthouse is for.",
)
GREEDY = Sampling(temperature=0.0, seed=0, max_tokens=48)


def asked(loaded: LoadedPolicy, text: str) -> TokenIds:
    return loaded.renderer.open([Message(role=Role.USER, content=text)], ()).token_ids


def on(engine: Engine, ask: Callable[[LoadedPolicy], Any]) -> Any:
    """What the coroutine `ask` gives on a connected client."""

    async def connected() -> Any:
        async with engine.loaded() as loaded:
            return await ask(loaded)

    return asyncio.run(connected())


async def sample(loaded: LoadedPolicy, prompt: Sequence[int] | TokenIds, sampling: Sampling) -> Completion:
    return await sampled(loaded.policy, np.array(prompt, np.int32), sampling, session="live")


def test_the_engine_runs_on_the_ids_that_were_sent(engine: Engine) -> None:
    """Random ids, control tokens among them: no text has such ids, so an engine that went over text would show."""
    rng = np.random.default_rng(5)

    async def ask(loaded: LoadedPolicy) -> list[tuple[TokenIds, Completion]]:
        prompts = [rng.integers(0, 49152, size).astype(np.int32) for size in (1, 7, 200)]
        return [(prompt, await sample(loaded, prompt, Sampling(seed=1, max_tokens=4))) for prompt in prompts]

    for prompt, reply in on(engine, ask):
        assert reply.prompt_tokens == len(prompt)
        if engine.kind != "llamacpp":  # it counts them and does not echo
            assert reply.prompt_ids is not None
            assert reply.prompt_ids.tolist() == prompt.tolist()


def test_a_single_request_repeats_itself_at_temperature_0(engine: Engine) -> None:
    async def ask(loaded: LoadedPolicy) -> list[Completion]:
        return [await sample(loaded, asked(loaded, QUESTIONS[0]), GREEDY) for _ in range(3)]

    first, *others = on(engine, ask)
    assert [reply.token_ids.tolist() for reply in others] == [first.token_ids.tolist()] * 2


def test_logprobs_are_those_of_a_float32_pass(engine: Engine, scorer: Scorer, record_property: Record) -> None:
    """As far as the engine's number format allows; several at once, so that they share batches."""

    async def ask(loaded: LoadedPolicy) -> tuple[LogprobKind, list[tuple[TokenIds, Completion]]]:
        prompts = [asked(loaded, text) for text in QUESTIONS]
        samplings = [Sampling(seed=seed, max_tokens=48) for seed in range(len(prompts))]
        pairs = zip(prompts, samplings, strict=True)
        replies = await asyncio.gather(*(sample(loaded, prompt, sampling) for prompt, sampling in pairs))
        return loaded.policy.info.logprob_kind, list(zip(prompts, replies, strict=True))

    kind, found = on(engine, ask)
    rows = [(prompt.tolist(), reply.token_ids.tolist()) for prompt, reply in found]
    apart = Apart.of(np.concatenate([reply.logprobs for _, reply in found]), scorer.score(rows))
    for name in ("tokens", "mean", "p99", "most"):
        record_property(name, {"tokens": apart.tokens, "mean": apart.mean, "p99": apart.p99, "most": apart.most}[name])
    record_property("rescored", sum(len(reply.rescored) for _, reply in found))
    mean, most = LIMITS[engine.bfloat16]
    assert kind is LogprobKind.RAW
    assert apart.tokens > 150
    assert apart.mean <= mean
    assert apart.most <= most


def test_the_cache_is_used_again_over_turns(engine: Engine, record_property: Record) -> None:
    """Each turn's prompt begins with the last one's prompt and reply."""

    async def ask(loaded: LoadedPolicy) -> list[tuple[int, int, int | None]]:
        text = "Remember this list of things: " + ", ".join(f"thing number {number}" for number in range(60))
        path = asked(loaded, text).tolist()
        seen, turns = 0, []
        for turn in range(3):
            reply = await sample(loaded, path, Sampling(seed=turn, max_tokens=40))
            turns.append((seen, len(path), reply.cached_tokens))
            path += reply.token_ids.tolist()
            seen = len(path) - 1  # the last id was sampled and not yet run
            more = loaded.renderer.extend(path[-1], [Message(role=Role.USER, content="And then? " * 20)], ())
            path += more.token_ids.tolist()
        return turns

    turns = on(engine, ask)
    record_property("turns", [{"seen_before": seen, "prompt": size, "cached": cached} for seen, size, cached in turns])
    for seen, size, cached in turns[1:]:
        assert cached is not None
        assert cached < size
        least = seen // BLOCK * BLOCK if engine.kind.startswith("vllm") else seen - 8
        assert cached >= least


def test_a_turn_ends_with_its_stop_token_and_a_stop_string_keeps_its_ids(engine: Engine) -> None:
    async def ask(loaded: LoadedPolicy) -> tuple[LoadedPolicy, Completion, str, Completion]:
        prompt = asked(loaded, "Say hi.")
        ended = await sample(loaded, prompt, Sampling(temperature=0.0, seed=0, max_tokens=200))
        word = loaded.renderer.decode(ended.token_ids).split()[3]
        stop = Sampling(temperature=0.0, seed=0, max_tokens=200, stop=(word,))
        return loaded, ended, word, await sample(loaded, prompt, stop)

    loaded, ended, word, stopped = on(engine, ask)
    assert ended.finish is Finish.STOP
    assert int(ended.token_ids[-1]) in loaded.renderer.info.stop_ids
    assert stopped.finish is Finish.STOP_STRING
    assert word in loaded.renderer.decode(stopped.token_ids)
    assert word not in loaded.renderer.decode(stopped.token_ids[:-1])


def test_what_does_not_fit_is_refused_by_client_and_engine(engine: Engine) -> None:
    async def ask(loaded: LoadedPolicy) -> tuple[int, Reason]:
        length = loaded.policy.info.context_length
        with pytest.raises(RolloutFailure) as refused:
            await sample(loaded, [5] * (length + 1), Sampling(seed=0, max_tokens=1))
        return length, refused.value.reason

    length, reason = on(engine, ask)
    assert reason is Reason.CONTEXT_OVERFLOW
    prompt = [5] * (length + 1)
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "vllm": ("/inference/v1/generate", {"token_ids": prompt, "sampling_params": {"max_tokens": 1}}),
        "vllm-completions": ("/v1/completions", {"model": "smollm2", "prompt": prompt, "max_tokens": 1}),
        "llamacpp": ("/completion", {"prompt": prompt, "n_predict": 1}),
    }
    path, body = bodies[engine.kind]
    assert status_of(engine.url + path, body) == 400


def status_of(url: str, body: dict[str, Any]) -> int:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_cancelled_request_frees_the_engine(engine: Engine, record_property: Record) -> None:
    async def ask(loaded: LoadedPolicy) -> float:
        prompt = asked(loaded, "Count up from one, as far as you can.")
        # nothing ends it but its limit
        long = [sample(loaded, prompt, Sampling(seed=seed, temperature=1.8, max_tokens=3000)) for seed in range(4)]
        tasks = [asyncio.ensure_future(each) for each in long]
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(running, engine):  # noqa: ASYNC110 (the engine has no event to wait for)
                await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        start = time.monotonic()
        await asyncio.gather(*tasks, return_exceptions=True)
        while await asyncio.to_thread(running, engine):
            await asyncio.sleep(0.05)
            assert time.monotonic() - start < 20
        return time.monotonic() - start

    record_property("seconds_until_idle", round(on(engine, ask), 2))


def running(engine: Engine) -> int:
    """Requests that the engine works on, as it says itself."""
    if engine.kind == "llamacpp":
        with urllib.request.urlopen(f"{engine.url}/slots", timeout=30) as reply:
            return sum(bool(slot["is_processing"]) for slot in json.load(reply))
    with urllib.request.urlopen(f"{engine.url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("vllm:num_requests_running"))


def test_check_policy_finds_it_fit(engine: Engine, record_property: Record) -> None:
    async def ask(loaded: LoadedPolicy) -> Any:
        return await check_policy(loaded.policy, loaded.renderer)

    asyncio.run(refuse_unfit(engine.loaded()))
    report = on(engine, ask)
    record_property("engine", report.engine)
    record_property("verdicts", {str(each.about): str(each.verdict) for each in report.findings})
    assert report.fit
    assert not [each for each in report.findings if each.verdict is PolicyVerdict.UNKNOWN]
