"""The client of text-only endpoints."""

import asyncio
import json

import numpy as np
import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import EngineBusy
from rollbook.policy.endpoint import TextCall
from rollbook.policy.http import EngineAddress
from rollbook.policy.llamacpp_server import EmbeddedServer, ServerConfig
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.text import TextPolicy
from rollbook.policy.text_wire import LimitField
from rollbook.trace import Message, Role, ToolCall, ToolSpec
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from tests.policy.text_server import Endpoint, connected, said

SAMPLING = Sampling(max_tokens=8, seed=5)
ASK = (Message(role=Role.USER, content="hi \ud83d"),)
TOOL = ToolSpec(name="add", description="d", parameters={"type": "object", "properties": {}})


def ask(endpoint, *, sampling=SAMPLING, messages=ASK, tools=(), **changes):
    async def run():
        async with connected(endpoint, **changes) as policy:
            return await policy.reply(messages, tools, sampling, "r1")

    return asyncio.run(run())


def test_every_field_that_the_route_has_is_set():
    endpoint = Endpoint(said())
    ask(endpoint, sampling=Sampling(max_tokens=8, seed=5, temperature=0.5, top_p=0.9, stop=("x",)), tools=(TOOL,))
    assert endpoint.sessions == ["r1"]
    assert endpoint.asked == [
        {
            "model": "m", "messages": [{"role": "user", "content": "hi \ud83d"}], "max_completion_tokens": 8,
            "temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 5,
            "stop": ["x"], "n": 1, "stream": False, "tools": [TOOL.openai()], "tool_choice": "auto",
        }
    ]  # fmt: skip


def test_the_limit_goes_by_the_name_that_the_endpoint_knows():
    endpoint = Endpoint(said(), said(usage=(7, 9)))
    ask(endpoint, given={"limit_field": LimitField.MAX_TOKENS})
    assert endpoint.asked[0]["max_tokens"] == 8
    assert "max_completion_tokens" not in endpoint.asked[0]
    with pytest.raises(RolloutFailure, match="LimitField"):
        ask(endpoint)


def test_calls_and_results_go_back_as_they_came():
    good = ToolCall(id="c0", name="add", raw='{ "a":1 }')
    bad = ToolCall(id="c1", name=None, raw='{"x": 1', arguments=None)
    history = (
        *ASK,
        Message(role=Role.ASSISTANT, reasoning="secret", tool_calls=(good, bad)),
        Message(role=Role.TOOL, content="3", call_id="c0", name="add"),
    )  # fmt: skip
    endpoint = Endpoint(said())
    ask(endpoint, messages=history)
    turn, result = endpoint.asked[0]["messages"][1:]
    sent = [call["function"] for call in turn["tool_calls"]]
    assert sent == [{"name": "add", "arguments": '{ "a":1 }'}, {"name": "", "arguments": '{"x": 1'}]
    assert (turn["content"], "secret" in json.dumps(turn)) == (None, False)
    assert result == {"role": "tool", "content": "3", "tool_call_id": "c0"}


def test_a_reply_is_kept_as_it_came():
    made = ask(Endpoint(said(None, "tool_calls", [("add", '{"a": 1'), (None, None)], reasoning_content="so")))
    assert (made.message.content, made.message.reasoning, made.message.tool_calls) == ("", "so", ())
    assert made.calls == (TextCall("c0", "add", '{"a": 1'), TextCall("c1", None, "null"))
    assert (made.finish, made.engine_finish) == (Finish.STOP, "tool_calls")
    assert (made.prompt_tokens, made.completion_tokens, made.cached_tokens) == (7, 3, None)


def test_absent_counts_are_not_zero():
    made = ask(Endpoint(said(usage=None)))
    assert (made.prompt_tokens, made.completion_tokens) == (None, None)
    counted = said() | {"usage": {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}}
    assert ask(Endpoint(counted)).cached_tokens == 4


@pytest.mark.parametrize(
    ("word", "finish"),
    [("stop", Finish.STOP), ("length", Finish.LENGTH), ("content_filter", Finish.ERROR), ("abort", Finish.ABORT)],
)
def test_finishes(word, finish):
    assert ask(Endpoint(said(finish=word))).finish is finish


def test_a_refusal_is_what_was_said_and_a_stop_string_is_told():
    assert ask(Endpoint(said(None, refusal="no"))).message.content == "no"
    stopped = said()
    stopped["choices"][0]["stop_reason"] = "x"
    assert ask(Endpoint(stopped)).finish is Finish.STOP_STRING


def error(status, message, **more):
    return web.Response(status=status, text=json.dumps({"error": {"message": message, **more}}))


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (said(finish=None), RolloutFailure, "finished by None"),
        (said(usage=(7, -1)), RolloutFailure, "engine_contract"),
        ({"choices": []}, RolloutFailure, "0 choices"),
        ({"error": {"message": "later", "code": 429}}, EngineBusy, "later"),
        ({"error": {"message": "broken"}}, RolloutFailure, "engine_unreachable"),
        (web.Response(text="<html>"), RolloutFailure, "unreadable"),
        (error(400, "too long", code="context_length_exceeded"), RolloutFailure, "context_overflow"),
        (error(400, "This model's maximum context length is 8"), RolloutFailure, "context_overflow"),
        (error(400, "Unsupported parameter: temperature"), ConfigError, "Unsupported"),
        (error(429, "slow down"), EngineBusy, "slow down"),
        (error(500, "x"), RolloutFailure, "engine_unreachable"),
        (error(401, "key"), UsageError, "refuses access"),
    ],
)
def test_a_fault_has_its_reason(answer, kind, message):
    with pytest.raises(kind, match=message):
        ask(Endpoint(answer))


def test_a_used_up_quota_is_not_waited_for():
    with pytest.raises(RolloutFailure) as caught:
        ask(Endpoint(error(429, "pay", type="insufficient_quota")))
    assert caught.value.reason is Reason.RATE_LIMITED
    assert not isinstance(caught.value, EngineBusy)


@pytest.mark.parametrize(
    "changes",
    [{"top_k": 5}, {"min_p": 0.1}, {"repetition_penalty": 1.1}, {"grammar": "g"}, {"stop_token_ids": (1,)},
     {"stop": ("a",) * 5}, {"max_tokens": None}, {"max_tokens": 2**31 - 1}],
)  # fmt: skip
def test_what_the_route_has_no_field_for_is_never_sent(changes):
    endpoint = Endpoint()
    with pytest.raises(ConfigError):
        ask(endpoint, sampling=Sampling(**({"max_tokens": 8} | changes)))
    assert not endpoint.asked


def test_the_context_is_what_the_endpoint_says_or_what_is_set_or_not_known():
    async def run(models=None, **changes):
        async with connected(Endpoint(models=models), **changes) as policy:
            await policy.start()
            return policy.info.context_length

    listed = {"data": [{"id": "m", "max_model_len": 100}, {"id": "o", "max_model_len": 5}]}
    assert asyncio.run(run()) is None
    assert asyncio.run(run(listed)) == 100
    assert asyncio.run(run(listed, context_length=60)) == 60
    assert asyncio.run(run({"data": []}, context_length=60)) == 60


def test_a_url_with_a_path_is_the_base():
    assert ask(Endpoint(said()), base="/v1").finish is Finish.STOP
    with pytest.raises(ConfigError, match="no such route"):
        ask(Endpoint(said()), base="/v4")


def test_it_is_no_engine_of_tokens():
    async def run():
        async with connected(Endpoint()) as policy:
            await policy.sample(np.ones(3, np.int32), SAMPLING, session="s")

    with pytest.raises(RolloutFailure, match="no token ids"):
        asyncio.run(run())
    with pytest.raises(UsageError, match="names no model"):
        TextPolicy(RemoteConfig(name="text:x", address=EngineAddress(url="http://h"), stop_ids=frozenset()))


def test_the_server_of_llamacpp_is_such_an_endpoint(smollm2):
    server = EmbeddedServer(ServerConfig(weights=smollm2.weights, context_length=512, slots=1, threads=1))

    async def run():
        address = EngineAddress(url=server.url, api_key=server.key)
        policy = TextPolicy(RemoteConfig(name="text:x#m", address=address, stop_ids=frozenset(), model="m"))
        await policy.start()
        try:
            ask = (Message(role=Role.USER, content="Tell me about whales."),)
            return await policy.reply(ask, (), Sampling(temperature=0.0, max_tokens=5, seed=0), "s")
        finally:
            await policy.close()

    try:
        made = asyncio.run(run())
    finally:
        server.stop()
    assert (made.finish, made.completion_tokens, bool(made.message.content)) == (Finish.LENGTH, 5, True)
    assert made.prompt_tokens is not None


def test_arguments_that_are_no_text_stay_as_they_came():
    body = """{"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [
        {"id": "a", "function": {"name": "add", "arguments": {"n": 1.0e2, "n": 123456789012345678901}}},
        {"id": "b", "function": {"name": "add", "arguments": DEEP}}]}}]}"""
    for depth in (10, 900, 960, 980, 990, 1000, 100_000):  # wherever the reader's own limit of recursion is
        deep = "[" * depth + "]" * depth
        try:
            made = ask(Endpoint(web.Response(text=body.replace("DEEP", deep), content_type="application/json")))
        except RolloutFailure as failure:
            assert failure.reason is Reason.ENGINE_CONTRACT  # noqa: PT017 (either is right)
        else:
            assert [call.arguments for call in made.calls] == ['{"n": 1.0e2, "n": 123456789012345678901}', deep]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (said(role="user"), "role"),
        (said(refusal="no"), "both a text and a refusal"),
        (said(None, "tool_calls"), "the reply has none"),
        (said(None, "tool_calls", []), "the reply has none"),
        (said(usage=(2**31, 1)), "prompt_tokens"),
        (said(usage=(-1, 1)), "prompt_tokens"),
        (said([{"type": "text"}]), "content"),
    ],
)
def test_a_reply_that_does_not_agree_with_itself_is_refused(answer, message):
    with pytest.raises(RolloutFailure, match=f"engine_contract.*{message}"):
        ask(Endpoint(answer))


def test_an_id_names_one_call():
    answer = said(None, "tool_calls", [("add", "{}"), ("add", "{}")])
    for call in answer["choices"][0]["message"]["tool_calls"]:
        call["id"] = "c"
    with pytest.raises(RolloutFailure, match="two tool calls have one id"):
        ask(Endpoint(answer))


def test_a_refusal_beside_an_empty_text_is_what_was_said():
    assert ask(Endpoint(said("", refusal="no"))).message.content == "no"


@pytest.mark.parametrize("length", [0, -1, 2**31])
def test_a_context_that_is_none_is_refused_at_the_start(length):
    with pytest.raises(UsageError, match="no context has such a length"):
        ask(Endpoint(models={"data": [{"id": "m", "max_model_len": length}]}))
