"""SGLang's words, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan
from tests.policy.testing.asking import asked


def engine(**shape: Any) -> FakeEngine:
    return FakeEngine(Dialect.SGLANG, shape=EngineShape(context_length=64, **{"stop_ids": (99,), **shape}))


def generate(fake: FakeEngine, body: dict[str, Any] | None = None, **sampling: Any) -> tuple[int, Any]:
    params = {"max_new_tokens": 5, **sampling}
    return asked(fake, "/generate", {"input_ids": [1, 3], "sampling_params": params, **(body or {})})


def test_a_reply_has_ids_beside_their_logprobs() -> None:
    status, reply = generate(engine(), {"return_logprob": True, "top_logprobs_num": 2, "return_prompt_token_ids": True})
    meta = reply["meta_info"]
    assert status == 200
    assert [token for _, token, _ in meta["output_token_logprobs"]] == reply["output_ids"]
    assert [len(each) for each in meta["output_top_logprobs"]] == [2] * 5
    assert meta["finish_reason"] == {"type": "length", "length": 5}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["weight_version"]) == (2, 5, "default")
    assert reply["prompt_token_ids"] == [1, 3]
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": meta["completion_tokens"]}]
    assert "output_token_logprobs" not in generate(engine())[1]["meta_info"]


@pytest.mark.parametrize(
    ("body", "sampling"),
    [
        ({}, {"top_k": 0}),
        ({}, {"top_p": 0.0}),
        ({}, {"repetition_penalty": 2.5}),
        ({}, {"max_new_tokens": 0}),
        ({}, {"max_new_tokens": 63}),
        ({"input_ids": [1] * 64}, {}),
        ({"input_ids": []}, {}),
        ({"input_ids": [True]}, {}),
    ],
)
def test_what_the_server_refuses_is_refused(body: dict[str, Any], sampling: dict[str, Any]) -> None:
    status, reply = generate(engine(), body, **sampling)
    assert status == 400
    assert "message" in reply["error"]


def test_an_unknown_sampling_field_is_the_schemas_refusal_and_one_of_the_request_is_dropped() -> None:
    fake = engine()
    status, reply = generate(fake, max_tokens=3)
    assert (status, reply["error"][:26]) == (400, "unknown field `max_tokens`")
    assert generate(fake, {"prompt_ids": [1]})[0] == 200
    assert fake.log[-1].ignored == ("prompt_ids",)


def test_the_limit_is_128_where_none_is_given() -> None:
    fake = FakeEngine(Dialect.SGLANG, shape=EngineShape(stop_ids=(99,)))
    assert len(asked(fake, "/generate", {"input_ids": [1]})[1]["output_ids"]) == 128


def test_finish_reasons() -> None:
    fake = FakeEngine(Dialect.SGLANG, script=lambda prompt, sampling, session: [5, 6, 7, 8])
    found = [generate(fake, **given)[1]["meta_info"]["finish_reason"] for given in ({}, {"stop": "h"})]
    assert found == [{"type": "stop", "matched": 2}, {"type": "stop", "matched": "h"}]


def test_new_weights_in_the_middle_give_spans() -> None:
    fake = FakeEngine(Dialect.SGLANG, faults=FaultPlan(requests={0: Fault.UPDATE}), shape=EngineShape(stop_ids=(99,)))
    meta = generate(fake, max_new_tokens=6)[1]["meta_info"]
    assert meta["weight_versions"] == [
        {"version": "default", "start": 0, "end": 3},
        {"version": "step-1", "start": 3, "end": 6},
    ]
    assert meta["weight_version"] == "step-1"


def test_greetings_and_controls() -> None:
    fake = engine()
    assert asked(fake, "/get_model_info")[1]["weight_version"] == "default"
    assert asked(fake, "/get_server_info")[1]["context_length"] == 64
    assert asked(fake, "/v1/models")[1]["data"][0]["max_model_len"] == 64
    assert asked(fake, "/health")[0] == 200
    assert asked(fake, "/pause_generation", {"mode": "odd"})[0] == 400
    assert asked(fake, "/pause_generation", {"mode": "retract"})[0] == 200
    assert asked(fake, "/continue_generation", {})[0] == 200
    disk = {"model_path": "/weights", "weight_version": "v4"}
    assert asked(fake, "/update_weights_from_disk", disk)[1]["success"] is True
    assert asked(fake, "/update_weights_from_disk", {})[0] == 400
    assert asked(fake, "/get_model_info")[1]["weight_version"] == "v4"
    assert asked(fake, "/update_weight_version", {"new_version": "v5"})[1]["new_version"] == "v5"
    assert asked(fake, "/flush_cache", {})[0] == 200
    assert asked(fake, "/abort_request", {"rid": "nobody"})[0] == 200
