"""The client of SGLang against a server that answers as it is told."""

import asyncio
import base64
import contextlib
import json

import numpy as np
import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import EngineBusy
from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from tests.policy.held import sampled
from tests.policy.serving import serving

PROMPT = np.array([1, 2, 3], np.int32)
SAMPLING = Sampling(max_tokens=8, seed=5)


def reply(ids=(5, 9), finish=None, **meta):
    given = {
        "finish_reason": finish or {"type": "stop", "matched": 9}, "prompt_tokens": 3, "completion_tokens": len(ids),
        "cached_tokens": 2, "weight_version": "default",
        "weight_versions": [{"version": "default", "start": 0, "end": len(ids)}],
        "output_token_logprobs": [[-0.5 - place, token, None] for place, token in enumerate(ids)],
    } | meta  # fmt: skip
    kept = {name: value for name, value in given.items() if value is not None}
    return {"text": "?", "output_ids": list(ids), "prompt_token_ids": [1, 2, 3], "meta_info": kept}


class Server:
    """Answers from a script; keeps what it was asked. Its logprobs are after the temperature."""

    def __init__(self, *script, server=(), model=(), paths=("/server_info", "/model_info")):
        self.script, self.asked, self.aborted, self.paths = list(script), [], [], paths
        self.server = {"version": "0.5.23", "max_req_input_len": 95, "allow_auto_truncate": False} | dict(server)
        self.model = {"is_generation": True, "weight_version": "default"} | dict(model)

    async def __call__(self, request):
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m", "max_model_len": 100}]})
        if request.path == self.paths[0]:
            return web.json_response(self.server)
        if request.path == self.paths[1]:
            return web.json_response(self.model)
        if request.path == "/abort_request":
            self.aborted.append((await request.json())["rid"])
            return web.Response()
        if request.path != "/generate":
            return web.Response(status=404)
        body = await request.json()
        if body["top_logprobs_num"]:
            flat = 1 / body["sampling_params"]["temperature"]
            top = [[value * flat, token, None] for token, value in enumerate((-1.0, -1.5, -3.0, -4.0, -5.0))]
            return web.json_response(reply(ids=(5,), output_top_logprobs=[top]))
        self.asked.append((body, dict(request.headers)))
        answer = self.script.pop(0)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = reply()
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


@contextlib.asynccontextmanager
async def connected(server, seconds=10.0, experts=None, **changes):
    async with serving(server) as url:
        address = EngineAddress(url=url, timeout=seconds)
        config = RemoteConfig(name="sglang:x", address=address, stop_ids=frozenset({9}), **changes)
        policy = SglangPolicy(config, experts=experts)
        await policy.start()
        try:
            yield policy
        finally:
            await policy.close()


def ask(server, *, sampling=SAMPLING, prompt=PROMPT, **changes):
    async def run():
        async with connected(server, **changes) as policy:
            return await sampled(policy, prompt, sampling, session="r1")

    return asyncio.run(run())


def test_the_start_finds_out_what_the_server_is():
    async def run(server):
        async with connected(server) as policy:
            await policy.start()
            return policy.info

    info = asyncio.run(run(Server()))
    assert (info.engine, info.context_length, info.logprob_kind) == ("SGLang 0.5.23", 95, LogprobKind.TEMPERATURE)
    loose = asyncio.run(run(Server(server={"enable_deterministic_inference": False})))
    assert loose.engine == "SGLang 0.5.23 (seeds not kept to)"
    old = asyncio.run(run(Server(paths=("/get_server_info", "/get_model_info"))))
    assert old.context_length == 95


@pytest.mark.parametrize(
    ("server", "message", "changes"),
    [
        (Server(server={"allow_auto_truncate": True}), "without --allow-auto-truncate", {}),
        (Server(model={"is_generation": False}), "embedding", {}),
        (Server(model={"preferred_sampling_params": {"logit_bias": {"5": 1.0}}}), "logit_bias", {}),
        (Server(server={"enable_return_routed_experts": False}), "enable-return-routed", {"experts": (2, 1)}),
        (Server(), "does not serve 'z'", {"model": "z"}),
        (Server(), "offers 95", {"context_length": 100}),
    ],
)
def test_a_server_that_would_alter_the_data_is_refused_at_the_start(server, message, changes):
    with pytest.raises(UsageError, match=message):
        ask(server, **changes)


def test_defaults_of_the_operator_that_each_request_overrides_do_no_harm():
    preferred = {"preferred_sampling_params": {"temperature": 0.6, "top_k": 20}}
    assert ask(Server(reply(), model=preferred)).finish is Finish.STOP


def test_a_reply_is_read_whole():
    server = Server(reply())
    made = ask(server)
    assert (made.token_ids.tolist(), made.logprobs.tolist()) == ([5, 9], [-0.5, -1.5])
    assert (made.finish, made.engine_finish, made.versions) == (Finish.STOP, "stop: 9", ((0, 2),))
    assert (made.prompt_tokens, made.cached_tokens, made.prompt_ids.tolist()) == (3, 2, [1, 2, 3])
    assert made.logprob_kind is LogprobKind.TEMPERATURE
    body, headers = server.asked[0]
    assert headers["X-Session-ID"] == "r1"
    assert (body["input_ids"], body["sampling_params"]["max_new_tokens"]) == ([1, 2, 3], 8)
    assert body["rid"].startswith("r1.")
    assert body["rid"].endswith(".")


def test_the_names_of_requests_never_begin_like_each_other():
    """An abort of ``r1`` must not take ``r10`` with it, nor its own later attempt."""
    server = Server(*[reply() for _ in range(24)])

    async def run():
        async with connected(server) as one, connected(server) as other:
            for policy in (one, other):
                for session in ("r1", "r10", "r1.1", *["r1"] * 9):
                    await sampled(policy, PROMPT, SAMPLING, session=session)

    asyncio.run(run())
    names = [body["rid"] for body, _ in server.asked]
    assert len(set(names)) == 24
    assert not [(one, other) for one in names for other in names if one != other and other.startswith(one)]


def test_a_weight_update_in_mid_generation_gives_spans():
    spans = [{"version": "v3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    assert ask(Server(reply(weight_version="4", weight_versions=spans))).versions == ((3, 1), (4, 1))


def test_one_label_counts_only_where_nothing_changed_meanwhile():
    labels = [reply(weight_version=label, weight_versions=None) for label in ("default", "v1", "v1")]
    server = Server(*labels, reply(weight_version=None, weight_versions=None))

    async def run():
        async with connected(server) as policy:
            policy.tell_version(6)
            return [(await sampled(policy, PROMPT, SAMPLING, session="s")).versions for _ in range(4)]

    assert asyncio.run(run()) == [((0, 2),), (), ((1, 2),), ((6, 2),)]


def test_what_was_aborted_keeps_its_tokens_and_no_prompt_count_is_made_up():
    aborted = {"type": "abort", "message": "weights"}
    made = ask(Server(reply(ids=(5, 6), finish=aborted, prompt_tokens=None)))
    assert (made.finish, made.engine_finish, made.token_ids.tolist()) == (Finish.ABORT, "abort: weights", [5, 6])
    assert made.prompt_tokens is None
    none = ask(Server(reply(ids=(), finish=aborted, output_token_logprobs=None)))
    assert (len(none.token_ids), none.versions) == (0, ())


def test_a_stop_string_ends_it_where_it_was_asked_for():
    stopped = reply(ids=(5, 6), finish={"type": "stop", "matched": "6"})
    made = ask(Server(stopped), sampling=Sampling(max_tokens=8, seed=5, stop=("6",)))
    assert made.finish is Finish.STOP_STRING
    with pytest.raises(RolloutFailure, match="no end of a turn"):
        ask(Server(stopped))


def test_routed_experts_are_of_the_pass_that_each_token_came_from():
    flat = np.arange(8, dtype=np.int32)
    server = Server(reply(routed_experts=base64.b64encode(flat.tobytes()).decode()))
    made = ask(server, experts=(2, 2))
    assert made.routed_experts.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert server.asked[0][0]["routed_experts_start_len"] == 2  # the position before the first sampled token
    with pytest.raises(RolloutFailure, match="no routed experts"):
        ask(Server(reply()), experts=(2, 2))


def error(status, message, **more):
    return web.Response(status=status, text=json.dumps({"error": {"message": message}}), **more)


LONG = "The input (99 tokens) is longer than the model's context length (90 tokens)."


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (reply(ids=(5, 6, 9), output_token_logprobs=[[-1, 5, None], [-1, 9, None]]), RolloutFailure, "3 ids but 2"),
        (reply(output_token_logprobs=[[-1, 5, None], [-1, 6, None]]), RolloutFailure, "not those that were sampled"),
        (reply(output_token_logprobs=[[-1, 5, None], [None, 9, None]]), RolloutFailure, "left a logprob out"),
        (reply(output_token_logprobs=[[-3.4e38, 5, None], [-1, 9, None]]), RolloutFailure, "as a logprob"),
        (reply(output_token_logprobs=[[0.5, 5, None], [-1, 9, None]]), RolloutFailure, "as a logprob"),
        (reply(output_token_logprobs=None), RolloutFailure, "2 ids but 0"),
        (reply(completion_tokens=3), RolloutFailure, "counts 3 tokens"),
        (reply(ids=(5, 2**31)), RolloutFailure, "engine_contract.*output_ids"),
        (reply(ids=(-1, 9)), RolloutFailure, "engine_contract.*output_ids"),
        (reply() | {"prompt_token_ids": [1, 2, 2**40]}, RolloutFailure, "engine_contract.*prompt_token_ids"),
        (reply(cached_tokens=4), RolloutFailure, "4 prompt tokens came from the cache, 3 were sent"),
        (reply(cached_tokens=-1), RolloutFailure, "engine_contract.*cached_tokens"),
        (reply(prompt_tokens=2), RolloutFailure, "counted 2 prompt tokens"),
        (reply() | {"prompt_token_ids": [1, 2]}, RolloutFailure, "another prompt"),
        (reply(ids=(5, 6), finish={"type": "length", "length": 2}), RolloutFailure, "behind 2 of 8"),
        (reply(ids=(5, 6), finish={"type": "tired"}), RolloutFailure, "finish 'tired'"),
        (reply(finish={"type": "stop", "matched": 5}), RolloutFailure, "stopped at id 5"),
        (reply(weight_versions=[{"version": "1", "start": 0, "end": 1}]), RolloutFailure, "cover 1 of 2"),
        (reply(weight_versions=[{"version": "1", "start": 1, "end": 2}]), RolloutFailure, "behind token 0"),
        ({"text": "a", "meta_info": {"finish_reason": {"type": "stop"}}}, RolloutFailure, "engine_contract"),
        (web.Response(text='{"output_ids": ['), RolloutFailure, "engine_contract"),
        ({"error": {"message": "busy", "code": 503}}, EngineBusy, "busy"),
        ({"error": {"message": LONG, "code": 400}}, RolloutFailure, "context_overflow"),
        ({"error": "broken"}, RolloutFailure, "engine_unreachable"),
        (error(400, LONG), RolloutFailure, "context_overflow"),
        (error(400, "bad grammar"), ConfigError, "bad grammar"),
        (error(503, "The request queue is full."), EngineBusy, "queue is full"),
        (error(500, "dead"), RolloutFailure, "engine_unreachable"),
    ],
)
def test_a_fault_has_its_reason(answer, kind, message):
    with pytest.raises(kind, match=message):
        ask(Server(answer))


@pytest.mark.parametrize(
    ("sampling", "length", "kind", "message"),
    [
        (Sampling(max_tokens=1, presence_penalty=2.5), 3, ConfigError, "presence_penalty"),
        (Sampling(max_tokens=1, repetition_penalty=3.0), 3, ConfigError, "repetition_penalty"),
        (Sampling(max_tokens=1, stop=("a",) * 33), 3, ConfigError, "32 stop strings"),
        (Sampling(max_tokens=1, seed=2**63), 3, ConfigError, "64 bits"),
        (Sampling(max_tokens=2), 94, RolloutFailure, "do not fit 95"),
        (Sampling(max_tokens=1), 0, ConfigError, "empty prompt"),
    ],
)
def test_what_the_engine_cannot_do_is_never_sent(sampling, length, kind, message):
    server = Server()
    with pytest.raises(kind, match=message):
        ask(server, sampling=sampling, prompt=np.ones(length, np.int32))
    assert not server.asked


def test_a_cancelled_request_is_aborted_by_its_own_name():
    server = Server(5.0)

    async def run():
        async with connected(server) as policy:
            task = asyncio.create_task(sampled(policy, PROMPT, SAMPLING, session="r1"))
            while not server.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert server.aborted == [server.asked[0][0]["rid"]]


def test_a_request_that_took_too_long_is_aborted_too():
    server = Server(5.0)
    with pytest.raises(RolloutFailure) as caught:
        ask(server, seconds=0.2)
    assert caught.value.reason is Reason.ENGINE_TIMEOUT
    assert server.aborted == [server.asked[0][0]["rid"]]


def test_cached_tokens_of_several_prefills_are_not_the_prompts():
    assert ask(Server(reply(num_retractions=0))).cached_tokens == 2
    assert ask(Server(reply(num_retractions=1, cached_tokens=9))).cached_tokens is None
