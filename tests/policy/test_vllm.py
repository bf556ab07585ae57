"""The vLLM client against a small server: what goes out, what comes back, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import Completion, EngineBusy
from rollbook.policy.vllm import Route, VllmPolicy
from rollbook.trace import Finish, LogprobKind, Reason, RolloutFailure, Sampling
from tests.policy.held import sampled
from tests.policy.serving import STOP_ID, VllmServer, remote, serving

PROMPT = np.array([4, 5, 6], np.int32)
ROUTES = list(Route)


def ask(
    server: VllmServer, sampling: Sampling | None = None, *, route: Route | None = None, **config: Any
) -> Completion:
    """One call of a started client."""

    async def one(policy: VllmPolicy) -> Completion:
        return await sampled(policy, PROMPT, sampling or Sampling(max_tokens=8), session="r0")

    return started(server, one, route=route, **config)


def started(
    server: VllmServer, use: Callable[[VllmPolicy], Awaitable[Any]], *, route: Route | None = None, **config: Any
) -> Any:
    async def main() -> Any:
        async with serving(server.handle) as url:
            policy = VllmPolicy(remote(url, **config), route=route)
            try:
                await policy.start()
                return await use(policy)
            finally:
                await policy.close()

    return asyncio.run(main())


def answers(**choice: Any) -> Callable[[Any], Any]:
    return lambda body: {"token_ids": [1, STOP_ID], "finish_reason": "stop", **choice}


# What goes out.


@pytest.mark.parametrize("route", ROUTES)
def test_every_field_of_the_sampling_is_sent(route: Route) -> None:
    server = VllmServer()
    sampling = Sampling(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repetition_penalty=1.5, presence_penalty=0.5,
        frequency_penalty=-0.5, seed=3, max_tokens=8, stop=("X", "Y"), stop_token_ids=(2,), grammar="root ::= \"a\"",
    )  # fmt: skip
    ask(server, sampling, route=route)
    (path, headers, body), *_ = server.requests
    sent = body["sampling_params"] if route is Route.GENERATE else body
    assert (path, headers["X-Session-ID"]) == (route, "r0")
    assert body["token_ids" if route is Route.GENERATE else "prompt"] == PROMPT.tolist()
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"):
        assert sent[name] == getattr(sampling, name)
    assert (sent["presence_penalty"], sent["frequency_penalty"]) == (0.5, -0.5)
    assert sent["stop"] == ["X", "Y"]
    assert sent["stop_token_ids"] == [2, STOP_ID]
    assert sent["structured_outputs"] == {"grammar": sampling.grammar}
    assert (sent["include_stop_str_in_output"], sent["skip_special_tokens"], sent["logprobs"]) == (True, False, 0)
    if route is Route.GENERATE:
        assert (sent["detokenize"], body["return_token_ids"]) == (True, True)
    else:
        assert body["add_special_tokens"] is False
        assert (body["return_token_ids"], body["return_weight_versions"], body["truncate_prompt_tokens"]) == (
            True, True, None,
        )  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_neutral_values_are_sent_too(route: Route) -> None:
    server = VllmServer()
    ask(server, route=route)
    body = server.requests[0][2]
    sent = body["sampling_params"] if route is Route.GENERATE else body
    neutral = {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "seed": None, "stop": [], "structured_outputs": None, "min_tokens": 0,
        "ignore_eos": False, "n": 1, "bad_words": [], "logit_bias": None, "allowed_token_ids": None,
    }  # fmt: skip
    assert {name: sent[name] for name in neutral} == neutral
    if route is Route.GENERATE:
        assert sent["detokenize"] is False


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.001), Sampling(temperature=2.5), Sampling(presence_penalty=3), Sampling(seed=-1),
        Sampling(frequency_penalty=-2.1), Sampling(seed=2**63), Sampling(stop=("",)),
    ],
)  # fmt: skip
def test_what_the_engine_would_do_otherwise_is_refused_before_it_is_sent(sampling: Sampling) -> None:
    server = VllmServer()
    with pytest.raises(ConfigError, match="vLLM"):
        ask(server, sampling)
    assert server.requests == []


def test_room_in_the_context_is_held_before_the_request() -> None:
    server = VllmServer()
    with pytest.raises(RolloutFailure, match="do not fit 64") as caught:
        ask(server, Sampling(max_tokens=62))
    assert caught.value.reason is Reason.CONTEXT_OVERFLOW
    ask(server, Sampling())
    assert server.requests[0][2]["sampling_params"]["max_tokens"] == 61
    with pytest.raises(RolloutFailure, match="do not fit 4"):
        ask(server, Sampling(max_tokens=2), context_length=4)


# What comes back.


@pytest.mark.parametrize("route", ROUTES)
def test_a_reply(route: Route) -> None:
    answer = answers(
        weight_versions=[{"version": "v7", "start": 0, "end": 1}, {"version": "v8", "start": 1, "end": 2}],
        usage={"prompt_tokens_details": {"cached_tokens": 2}},
        metrics={"queue_time_ms": 5.0, "time_to_first_token_ms": 20.0, "generation_time_ms": 1500.0},
    )
    done = ask(VllmServer(answer), route=route)
    assert done.token_ids.tolist() == [1, STOP_ID]
    assert done.logprobs.tolist() == [-0.25, -0.375]
    assert (done.finish, done.engine_finish, done.logprob_kind) == (Finish.STOP, "stop", LogprobKind.RAW)
    assert done.versions == ((7, 1), (8, 1))
    assert (done.prompt_tokens, done.cached_tokens) == (3, 2)
    assert done.prompt_ids is not None
    assert done.prompt_ids.tolist() == PROMPT.tolist()
    assert (done.queue, done.prefill, done.decode) == (0.005, 0.02, 1.5)


@pytest.mark.parametrize("route", ROUTES)
def test_what_the_engine_does_not_say_is_none(route: Route) -> None:
    done = ask(VllmServer(answers(prompt_token_ids=None)), route=route)
    assert (done.prompt_ids, done.cached_tokens, done.queue, done.prefill, done.decode) == (None,) * 5
    assert (done.versions, done.routed_experts) == ((), None)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("choice", "finish"),
    [
        ({}, Finish.STOP),
        ({"stop_reason": STOP_ID}, Finish.STOP),
        ({"token_ids": [1, 2], "stop_reason": 2}, Finish.STOP),
        ({"token_ids": [1] * 8, "finish_reason": "length"}, Finish.LENGTH),
        ({"token_ids": [1] * 8, "finish_reason": None}, Finish.LENGTH),
        ({"token_ids": [1, 20], "stop_reason": " STOP"}, Finish.STOP_STRING),
        ({"token_ids": [1], "finish_reason": "abort"}, Finish.ABORT),
        ({"token_ids": [], "finish_reason": "abort"}, Finish.ABORT),
        ({"token_ids": [], "finish_reason": "abort", "logprobs": None}, Finish.ABORT),
    ],
)
def test_finishes(route: Route, choice: dict[str, Any], finish: Finish) -> None:
    sampling = Sampling(max_tokens=8, stop=(" STOP",), stop_token_ids=(2,))
    assert ask(VllmServer(answers(**choice)), sampling, route=route).finish is finish


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"token_ids": [1], "finish_reason": "length"}, "behind 1 of 8"),
        ({"token_ids": [1], "finish_reason": "stop"}, "no end of a turn"),
        ({"token_ids": [1], "finish_reason": "repetition"}, "repetition"),
        ({"token_ids": [1, 2], "stop_reason": STOP_ID}, "stopped at id 9 and returned 2"),
        ({"usage": {"completion_tokens": 3}}, "the engine counts 3"),
        ({"usage": {"prompt_tokens": 2}}, "counted 2 prompt tokens"),
        ({"prompt_token_ids": [4, 5, 7]}, "ran on another prompt"),
        ({"prompt_token_ids": [4, "5"]}, "unreadable echo"),
        ({"values": [-9999.0, -1.0]}, "-9999.0 as a logprob"),
        ({"values": [-0.1, 0.5]}, "0.5 as a logprob"),
        ({"values": [-0.1, None]}, "unreadable"),
        ({"values": [-0.1, float("nan")]}, "unreadable"),
        ({"values": [-0.1, float("-inf")]}, "unreadable"),
        ({"logprobs": None}, "no ids, or no logprobs"),
        ({"token_ids": [], "finish_reason": "stop", "stop_reason": None}, "the last id None"),
        ({"token_ids": [2**31, STOP_ID]}, "unreadable"),
        ({"token_ids": [-1, STOP_ID]}, "unreadable"),
        ({"weight_versions": [{"version": "v7", "start": 0, "end": 1}]}, "cover 1 of 2"),
        ({"weight_versions": [{"version": "-3", "start": 0, "end": 2}]}, "no policy version"),
        ({"routed_experts": "AAAA"}, "unreadable routed experts"),
    ],
)  # fmt: skip
def test_replies_that_break_the_contract(route: Route, choice: dict[str, Any], problem: str) -> None:
    with pytest.raises(RolloutFailure, match=problem) as caught:
        ask(VllmServer(answers(**choice)), route=route)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize("route", ROUTES)
def test_an_error_that_comes_as_a_reply(route: Route) -> None:
    with pytest.raises(RolloutFailure, match="middle") as caught:
        ask(VllmServer(answers(finish_reason="error")), route=route)
    assert caught.value.reason is Reason.ENGINE_UNREACHABLE


def test_another_list_of_ids_beside_the_logprobs_is_refused() -> None:
    content = [{"token_id": 1, "logprob": -0.5}, {"token_id": 2, "logprob": -0.5}]
    with pytest.raises(RolloutFailure, match="logprobs of 2 other ids"):
        ask(VllmServer(answers(logprobs={"content": content})))


def test_one_choice_is_asked_for() -> None:
    def two(body: dict[str, Any]) -> web.Response:
        return web.json_response({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0}})

    with pytest.raises(RolloutFailure, match="0 choices"):
        ask(VllmServer(two))


@pytest.mark.parametrize("route", ROUTES)
def test_a_stop_string_that_was_not_asked_for_is_none(route: Route) -> None:
    with pytest.raises(RolloutFailure, match="no end of a turn"):
        ask(VllmServer(answers(token_ids=[1, 20], stop_reason=" STOP")), route=route)


# Failures.


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (400, "This model's maximum context length is 64 tokens. However ...", Reason.CONTEXT_OVERFLOW),
        (400, "The decoder prompt (length 99) is longer than the maximum model length of 64.", Reason.CONTEXT_OVERFLOW),
        (500, "EngineCore died", Reason.ENGINE_UNREACHABLE),
        (429, "slow down", Reason.RATE_LIMITED),
        (503, "paused", Reason.ENGINE_UNREACHABLE),
    ],
)
def test_http_failures(status: int, message: str, reason: Reason) -> None:
    def refuse(body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": message, "code": status}}, status=status)

    with pytest.raises(RolloutFailure) as caught:
        ask(VllmServer(refuse))
    assert caught.value.reason is reason
    assert isinstance(caught.value, EngineBusy) is (status in (429, 503))


def test_a_wrong_request_is_an_error_of_configuration() -> None:
    def refuse(body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "bad grammar"}}, status=400)

    with pytest.raises(ConfigError, match="bad grammar"):
        ask(VllmServer(refuse))


def test_a_cancelled_call_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def hang(body: dict[str, Any]) -> Any:
        arrived.set()
        await asyncio.Event().wait()

    server = VllmServer(hang)

    async def leave(policy: VllmPolicy) -> int:
        task = asyncio.create_task(sampled(policy, PROMPT, Sampling(max_tokens=8), session="r0"))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if server.gone:
                break
            await asyncio.sleep(0.01)
        return server.gone

    assert started(server, leave) == 1


def test_no_call_before_the_start_or_behind_the_end() -> None:
    async def main() -> None:
        async with serving(VllmServer().handle) as url:
            policy = VllmPolicy(remote(url))
            with pytest.raises(UsageError, match="call start"):
                await sampled(policy, PROMPT, Sampling(max_tokens=1), session="r0")
            await policy.start()
            await policy.start()
            await policy.close()
            await policy.close()
            with pytest.raises(UsageError, match="call start"):
                await sampled(policy, PROMPT, Sampling(max_tokens=1), session="r0")

    asyncio.run(main())


# The start.


async def info(policy: VllmPolicy) -> Any:
    return policy.info


@pytest.mark.parametrize("route", [None, *ROUTES])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [("raw", LogprobKind.RAW), ("temperature", LogprobKind.TEMPERATURE), ("processed", LogprobKind.PROCESSED)],
)
def test_the_kind_of_logprobs_is_found_by_asking(mode: str, kind: LogprobKind, route: Route | None) -> None:
    server = VllmServer(mode=mode)
    told = started(server, info, route=route)
    assert (told.logprob_kind, server.probes) == (kind, 3)
    assert told.engine == f"vLLM 0.33.0 ({route or Route.GENERATE})"
    assert told.context_length == 64
    assert ask(VllmServer(mode=mode), route=route).logprob_kind is kind


def test_logits_are_no_logprobs() -> None:
    with pytest.raises(UsageError, match="logits"):
        started(VllmServer(mode="logits"), info)


def test_the_route_for_ids_is_taken_where_it_is_offered() -> None:
    server = VllmServer(generates=False)
    assert started(server, info).engine.endswith("(/v1/completions)")
    ask(server)
    assert server.requests[0][0] == Route.COMPLETIONS
    with pytest.raises(UsageError, match="not enabled"):
        started(server, info, route=Route.GENERATE)


@pytest.mark.parametrize(
    ("models", "config", "problem"),
    [
        ([{"id": "a"}, {"id": "b"}], {}, "serves a, b: say which"),
        ([{"id": "a", "max_model_len": 8}], {"model": "c"}, "does not serve 'c'; it serves a"),
        ([{"id": "a"}], {}, "context length"),
        ([{"id": "a", "max_model_len": 8}], {"context_length": 9}, "offers 8 tokens"),
        ([], {}, "serves none"),
    ],
)
def test_servers_that_cannot_be_used(models: list[dict[str, Any]], config: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        started(VllmServer(models=models), info, **config)


def test_an_adapter_is_no_second_model_but_can_be_asked_for() -> None:
    models = [{"id": "a", "max_model_len": 8}, {"id": "lora", "max_model_len": 8, "parent": "a"}]
    server = VllmServer(models=models)
    ask(server, Sampling(max_tokens=2))
    ask(server, Sampling(max_tokens=2), model="lora")
    assert [body["model"] for _, _, body in server.requests] == ["a", "lora"]


def test_nobody_listens() -> None:
    async def main() -> None:
        policy = VllmPolicy(remote("http://127.0.0.1:9"))
        with pytest.raises(UsageError, match="cannot be reached"):
            await policy.start()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "problem"), [(503, "not ready"), (404, "no such kind of engine"), (401, "refuses access")]
)
def test_a_server_that_is_not_up(status: int, problem: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async def main() -> None:
        async with serving(refuse) as url:
            policy = VllmPolicy(remote(url))
            with pytest.raises(UsageError, match=problem):
                await policy.start()

    asyncio.run(main())
