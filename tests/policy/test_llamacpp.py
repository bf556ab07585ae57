"""A llama.cpp server behind a URL: the real one, started as the embedded engine starts it."""

import asyncio
import contextlib
from functools import partial

import numpy as np
import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import EngineBusy
from rollbook.policy.http import EngineAddress
from rollbook.policy.llamacpp import LlamacppPolicy
from rollbook.policy.llamacpp_server import EmbeddedServer, ServerConfig
from rollbook.policy.pieces import MAX_RESCORED, PIECE
from rollbook.policy.remote import RemoteConfig
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from tests.policy.held import sampled
from tests.policy.serving import serving


@pytest.fixture(scope="module")
def server(smollm2):
    started = EmbeddedServer(ServerConfig(weights=smollm2.weights, context_length=1024, slots=2, threads=1))
    yield started
    started.stop()


@contextlib.asynccontextmanager
async def connected(url, stop_ids, key=None, **changes):
    address = EngineAddress(url=url, api_key=key, timeout=30.0)
    policy = LlamacppPolicy(RemoteConfig(name="llamacpp:x", address=address, stop_ids=stop_ids, **changes))
    await policy.start()
    try:
        yield policy
    finally:
        await policy.close()


PROMPT = np.array([1, 4093, 198, 504, 260, 1, 520, 9531], np.int32)


def test_a_real_server_says_what_it_is_and_samples_over_pieces(server, smollm2):
    async def run():
        async with connected(server.url, smollm2.stop_ids, server.key) as policy:
            await policy.start()
            plain = await sampled(policy, PROMPT, Sampling(temperature=0.0, max_tokens=PIECE + 3, seed=0), session="s")
            policy.tell_version(7)
            told = await sampled(policy, PROMPT, Sampling(max_tokens=2, seed=1), session="s")
            return policy.info, plain, told

    info, plain, told = asyncio.run(run())
    assert (info.context_length, info.logprob_kind) == (2048, LogprobKind.RAW)  # two slots share one cache
    assert info.engine.startswith("llama.cpp ")
    assert (plain.finish, len(plain.token_ids), plain.versions) == (Finish.LENGTH, PIECE + 3, ())
    assert plain.tries >= 2
    assert plain.prompt_tokens == len(PROMPT)
    assert told.versions == ((7, 2),)
    assert told.cached_tokens > 0


def test_what_cannot_be_done_is_said_before_anything_is_sent(server, smollm2):
    async def run(sampling, length=4, **changes):
        async with connected(server.url, smollm2.stop_ids, server.key, **changes) as policy:
            await sampled(policy, np.ones(length, np.int32), sampling, session="s")

    with pytest.raises(ConfigError, match="stop strings"):
        asyncio.run(run(Sampling(max_tokens=1, stop_token_ids=(9,))))
    with pytest.raises(RolloutFailure, match="do not fit 100") as caught:
        asyncio.run(run(Sampling(max_tokens=2), length=99, context_length=100))
    assert caught.value.reason is Reason.CONTEXT_OVERFLOW
    with pytest.raises(UsageError, match="offers 2048"):
        asyncio.run(run(Sampling(max_tokens=1), context_length=4096))
    with pytest.raises(UsageError, match="does not serve 'other'"):
        asyncio.run(run(Sampling(max_tokens=1), model="other"))


def test_before_the_start_and_behind_the_end_nothing_is_sampled(server, smollm2):
    address = EngineAddress(url=server.url, api_key=server.key)
    policy = LlamacppPolicy(RemoteConfig(name="llamacpp:x", address=address, stop_ids=smollm2.stop_ids))

    async def run():
        with pytest.raises(UsageError, match="call start"):
            await sampled(policy, PROMPT, Sampling(max_tokens=1), session="s")
        await policy.start()
        await policy.close()
        await policy.close()
        with pytest.raises(UsageError, match="call start"):
            await sampled(policy, PROMPT, Sampling(max_tokens=1), session="s")

    asyncio.run(run())


# Faults, from a server that is told what to answer.


TIMES = {"cache_n": 0, "prompt_n": 8, "prompt_ms": 1.0, "predicted_ms": 2.0}


def reply(**changes):
    return {
        "tokens": [5, 2], "stop_type": "eos", "truncated": False, "tokens_evaluated": 8, "tokens_predicted": 2,
        "timings": TIMES,
        "completion_probabilities": [
            {"id": 5, "logprob": -1.0, "top_logprobs": [{"id": 5, "logprob": -1.0}, {"id": 6, "logprob": -2.0}]},
            {"id": 2, "logprob": -0.5},
        ],
    } | changes  # fmt: skip


async def handle(script, request):
    if request.path == "/props":
        return web.json_response({"default_generation_settings": {"n_ctx": 512}, "total_slots": 1})
    if request.path == "/v1/models":
        return web.json_response({"data": [{"id": "m", "meta": {"n_vocab": 100, "n_ctx_train": 512}}]})
    asked = await request.json()
    if asked["n_probs"] > 1 and len(asked["prompt"]) == 1:
        return web.json_response(reply(
            tokens=[5], tokens_evaluated=1, tokens_predicted=1, stop_type="limit",
            timings={"cache_n": 0, "prompt_n": 1, "prompt_ms": 1.0, "predicted_ms": 2.0},
        ))  # fmt: skip
    answer = script.pop(0)
    return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


def ask(*script, sampling=Sampling(max_tokens=9, seed=1)):  # noqa: B008 (frozen)
    async def run():
        async with serving(partial(handle, list(script))) as url, connected(url, frozenset({2})) as policy:
            return await sampled(policy, PROMPT, sampling, session="s")

    return asyncio.run(run())


def test_a_scripted_reply_is_read():
    made = ask(reply())
    assert (made.token_ids.tolist(), made.logprobs.tolist(), made.finish) == ([5, 2], [-1.0, -0.5], Finish.STOP)


@pytest.mark.parametrize(
    ("stop_type", "last", "finish"),
    [("eos", 2, Finish.STOP), ("limit", 2, Finish.STOP), ("limit", 5, Finish.LENGTH), ("word", 5, Finish.STOP_STRING)],
)
def test_a_finish_follows_the_last_id(stop_type, last, finish):
    entries = [{"id": 5, "logprob": -1.0}, {"id": last, "logprob": -0.5}]
    answer = reply(tokens=[5, last], stop_type=stop_type, completion_probabilities=entries)
    assert ask(answer, sampling=Sampling(max_tokens=2, seed=1, stop=("x",))).finish is finish


@pytest.mark.parametrize(
    ("stop_type", "limit"), [("eos", 9), ("eos", 2), ("none", 9), ("none", 2), ("abort", 9), ("word", 9)]
)
def test_a_stop_that_no_token_explains_breaks_the_contract(stop_type, limit):
    entries = [{"id": 5, "logprob": -1.0}, {"id": 5, "logprob": -0.5}]
    with pytest.raises(RolloutFailure, match=f"engine_contract.*{stop_type}"):
        ask(
            reply(tokens=[5, 5], stop_type=stop_type, completion_probabilities=entries),
            sampling=Sampling(max_tokens=limit, seed=1),
        )


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (reply(tokens_evaluated=7), RolloutFailure, "engine_contract"),
        (reply(truncated=True), RolloutFailure, "ran out of its context"),
        (reply(tokens=[]), RolloutFailure, "engine_contract"),
        (reply(tokens=[5, 2**31]), RolloutFailure, "engine_contract.*tokens"),
        (reply(tokens=[-5, 2]), RolloutFailure, "engine_contract.*tokens"),
        (reply(tokens=[5] * 100, tokens_predicted=100), RolloutFailure, "100 tokens, more than the 99 asked for"),
        (reply(timings=TIMES | {"cache_n": -1, "prompt_n": 9}), RolloutFailure, "cache_n"),
        (reply(timings=TIMES | {"prompt_ms": -1}), RolloutFailure, "prompt_ms"),
        (reply(completion_probabilities=[{"id": 9, "logprob": -1.0}]), RolloutFailure, "was not sampled there"),
        (reply(completion_probabilities=[{"id": 5, "logprob": 0.5}, {"id": 2, "logprob": -1}]), RolloutFailure, "0.5"),
        (reply(tokens=[5] * (MAX_RESCORED + 1), tokens_predicted=MAX_RESCORED + 1, completion_probabilities=[]),
         RolloutFailure, "left out 65"),
        (web.Response(status=400, text='{"error": {"message": "m", "type": "exceed_context_size_error"}}'),
         RolloutFailure, "context_overflow"),
        (web.Response(status=503, text='{"error": {"message": "Loading model"}}'), EngineBusy, "Loading"),
        (web.Response(status=400, text='{"error": {"message": "bad grammar"}}'), ConfigError, "bad grammar"),
        (web.Response(text="{"), RolloutFailure, "unreadable"),
        ({"error": {"message": "Loading", "code": 503}}, EngineBusy, "Loading"),
    ],
)  # fmt: skip
def test_a_fault_has_its_reason(answer, error, message):
    with pytest.raises(error, match=message):
        ask(answer, sampling=Sampling(max_tokens=99, seed=1, stop=("x",)))


def test_what_the_server_left_out_is_scored_by_a_second_request():
    listed = [{"id": 5, "logprob": -1.5}, {"id": 7, "logprob": -2.5}]
    second = reply(
        tokens=[8], tokens_predicted=1, stop_type="limit", completion_probabilities=[
            {"id": 8, "logprob": -9.0, "top_logprobs": listed}])  # fmt: skip
    made = ask(reply(completion_probabilities=[{"id": 2, "logprob": -0.5}]), second)
    assert (made.logprobs.tolist(), made.rescored.tolist(), made.tries) == ([-1.5, -0.5], [0], 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no longer listed"),
        ([{"id": "o", "meta": {"n_vocab": 7, "n_ctx_train": 1}}], "no longer listed"),
        ([{"id": "m", "meta": {"n_vocab": 0, "n_ctx_train": 1}}], "n_vocab"),
    ],
)
def test_a_model_that_is_gone_at_the_second_look_is_said(rows, message):
    first = [web.json_response({"data": [{"id": "m"}]})]

    async def answer(request):
        if request.path == "/v1/models":
            return first.pop() if first else web.json_response({"data": rows})
        return await handle([], request)

    async def run():
        async with serving(answer) as url, connected(url, frozenset({2})):
            pass

    with pytest.raises(UsageError, match=message):
        asyncio.run(run())
