"""vLLM's words, without a socket: what is refused, dropped and answered."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan
from tests.policy.testing.asking import asked

GENERATE, COMPLETE = "/inference/v1/generate", "/v1/completions"


def engine(**shape: Any) -> FakeEngine:
    return FakeEngine(Dialect.VLLM, shape=EngineShape(context_length=64, **shape))


def generate(fake: FakeEngine, ids: list[int] | None = None, **sampling: Any) -> tuple[int, Any]:
    params = {"max_tokens": 5, "logprobs": 0, **sampling}
    return asked(fake, GENERATE, {"token_ids": ids or [1, 3], "sampling_params": params, "return_token_ids": True})


def test_a_reply_has_ids_logprobs_counts_spans_and_an_echo() -> None:
    status, reply = generate(engine(stop_ids=(99,)), seed=1)
    (choice,) = reply["choices"]
    assert status == 200
    assert [each["token_id"] for each in choice["logprobs"]["content"]] == choice["token_ids"]
    assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": 5}]
    assert (choice["finish_reason"], choice["stop_reason"], reply["prompt_token_ids"]) == ("length", None, [1, 3])
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (2, 5)


@pytest.mark.parametrize(
    "body",
    [
        {"sampling_params": {}},
        {"token_ids": [], "sampling_params": {}},
        {"token_ids": [-1], "sampling_params": {}},
        {"token_ids": [1]},
        {"token_ids": [1], "sampling_params": {"top_p": 0}},
        {"token_ids": [1], "sampling_params": {"max_tokens": 0}},
        {"token_ids": [1], "sampling_params": {"logprobs": 21}},
        {"token_ids": [1], "sampling_params": {"presence_penalty": 2.5}},
        {"token_ids": [1], "sampling_params": {}, "stream": True},
        {"token_ids": ["a"], "sampling_params": {}},
    ],
)
def test_what_the_server_refuses_is_refused(body: dict[str, Any]) -> None:
    status, reply = asked(engine(), GENERATE, body)
    assert (status, reply["error"]["type"]) == (400, "BadRequestError")


def test_what_the_server_drops_is_named() -> None:
    fake = engine()
    assert asked(fake, GENERATE, {"token_ids": [1], "sampling_params": {"temp": 1, "seed": 1}, "n_probs": 1})[0] == 200
    assert asked(fake, COMPLETE, {"prompt": [1], "detokenize": False, "max_tokens": 2})[0] == 200
    assert [entry.ignored for entry in fake.log] == [("n_probs", "sampling_params.temp"), ("detokenize",)]


def test_another_model_is_not_found() -> None:
    assert asked(engine(), COMPLETE, {"prompt": [1], "model": "other"})[0] == 404


def test_a_prompt_without_room_is_refused_in_the_servers_words() -> None:
    status, reply = generate(engine(), list(range(64)))
    assert (status, reply["error"]["param"]) == (400, "input_tokens")
    assert "maximum context length is 64" in reply["error"]["message"]
    assert asked(engine(), COMPLETE, {"prompt": [1] * 60, "max_tokens": 5})[0] == 400
    assert len(generate(engine(stop_ids=(99,)), [1] * 60, max_tokens=9)[1]["choices"][0]["token_ids"]) == 4


def test_stop_reasons() -> None:
    fake = FakeEngine(Dialect.VLLM, script=lambda prompt, sampling, session: [5, 6, 7, 8])
    reasons = [
        (choice["token_ids"], choice["finish_reason"], choice["stop_reason"])
        for given in ({}, {"stop_token_ids": [6]}, {"stop": ["h"]}, {"max_tokens": 2})
        for choice in generate(fake, **given)[1]["choices"]
    ]
    assert reasons == [
        ([5, 6, 7, 8, 2], "stop", None),
        ([5, 6], "stop", 6),
        ([5, 6, 7], "stop", "h"),
        ([5, 6], "length", None),
    ]


def test_completions_give_columns() -> None:
    body = {"prompt": [1, 3], "max_tokens": 4, "logprobs": 2, "seed": 1, "return_token_ids": True}
    _, reply = asked(engine(stop_ids=(99,)), COMPLETE, {**body, "return_tokens_as_token_ids": True})
    (choice,) = reply["choices"]
    logprobs = choice["logprobs"]
    assert [f"token_id:{each}" for each in choice["token_ids"]] == logprobs["tokens"]
    assert all(2 <= len(each) <= 3 for each in logprobs["top_logprobs"])
    assert [each[name] for each, name in zip(logprobs["top_logprobs"], logprobs["tokens"], strict=True)] == logprobs[
        "token_logprobs"
    ]
    assert choice["prompt_token_ids"] == [1, 3]
    assert "weight_versions" not in choice


def test_both_routes_sample_the_same() -> None:
    fake = engine()
    _, first = generate(fake, seed=4)
    _, second = asked(fake, COMPLETE, {"prompt": [1, 3], "seed": 4, "max_tokens": 5, "return_token_ids": True})
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]


def test_the_route_for_ids_may_be_off() -> None:
    assert generate(engine(generate_route=False))[0] == 404


def test_routed_experts_are_an_array_file() -> None:
    _, reply = generate(engine(experts=(3, 2), stop_ids=(99,)), routed_experts_prompt_start=1)
    array = np.load(io.BytesIO(base64.b64decode(reply["choices"][0]["routed_experts"])))
    assert array.shape == (2 + 5 - 1 - 1, 3, 2)


def test_greetings_and_controls() -> None:
    fake = engine()
    assert asked(fake, "/v1/models")[1]["data"][0]["max_model_len"] == 64
    assert asked(fake, "/version")[1] == {"version": "0.33.0"}
    assert asked(fake, "/health") == (200, b"")
    assert asked(fake, "/is_paused")[1] == {"is_paused": False}
    assert asked(fake, "/pause?mode=odd", {})[0] == 400
    assert asked(fake, "/pause?mode=abort", {})[0] == 200
    assert generate(fake)[0] == 503
    assert asked(fake, "/resume", {})[0] == 200
    assert generate(fake)[0] == 200
    assert asked(fake, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": "x"}})[0] == 200
    assert asked(fake, "/collective_rpc", {"method": "reload_weights"})[0] == 500
    assert asked(fake, "/update_weight_version", {"new_version": "v3"})[1]["success"] is True
    assert asked(fake, "/weight_info")[1] == {"weight_version": "v3"}
    assert generate(fake)[1]["choices"][0]["weight_versions"][0]["version"] == "v3"
    assert asked(fake, "/reset_prefix_cache", {})[1] == {"success": True}
    assert asked(fake, "/abort_requests", {"request_ids": []})[1]["status"] == "aborted"
    assert asked(fake, "/nothing")[0] == 404


def test_a_zero_probability_and_nan_are_written_as_the_server_does() -> None:
    plan = FaultPlan(requests={0: Fault.SENTINEL})
    fake = FakeEngine(Dialect.VLLM, faults=plan, shape=EngineShape(stop_ids=(99,)))
    content = generate(fake)[1]["choices"][0]["logprobs"]["content"]
    assert [each["logprob"] == -9999.0 for each in content] == [False, False, True, False, False]
