import json

import pytest

from rollbook.errors import ConfigError
from rollbook.policy.http import HttpReply
from rollbook.policy.llamacpp_wire import (
    ENGINE_SEED,
    Reply,
    check_sampling,
    completion_body,
    refusal_of,
    rescore_body,
)
from rollbook.trace.call import Sampling
from rollbook.trace.ending import Reason, RolloutFailure

SAMPLERS = {  # every sampler field of the server's own generation settings, with the value that leaves the model alone
    "temperature": 1.0, "dynatemp_range": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "top_n_sigma": -1.0,
    "xtc_probability": 0.0, "typical_p": 1.0, "repeat_last_n": 0, "repeat_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "grammar": "", "logit_bias": [], "stop": [],
}  # fmt: skip


def body(**changes):
    return completion_body([1, 2], Sampling(**changes), limit=5, seed=7, time_limit=2.0)


def reply(**changes):
    given = {
        "tokens": [5, 2], "stop_type": "eos", "truncated": False, "tokens_evaluated": 3, "tokens_predicted": 2,
        "timings": {"cache_n": 2, "prompt_n": 1, "prompt_ms": 1.0, "predicted_ms": 2.0},
        "completion_probabilities": [{"id": 5, "logprob": -1, "top_logprobs": [{"id": 9, "logprob": -2.5}]}],
    } | changes  # fmt: skip
    return answer(200, json.dumps(given).encode()).decode(Reply)


def answer(status, body):
    return HttpReply(status, body, None)


def test_the_default_request_leaves_the_distribution_alone():
    sent = body()
    assert {key: sent[key] for key in SAMPLERS} == SAMPLERS
    assert (sent["seed"], sent["n_predict"], sent["t_max_predict_ms"], sent["prompt"]) == (7, 5, 2000, [1, 2])
    assert sent["return_tokens"] is True
    assert sent["stream"] is False
    assert sent["post_sampling_probs"] is False


def test_each_setting_is_passed_on():
    sent = body(
        temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.2,
        frequency_penalty=0.3, stop=("x",), grammar="root ::= [a]",
    )  # fmt: skip
    names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    assert [sent[name] for name in names] == [0.5, 0.9, 4, 0.1, 1.1, 0.2, 0.3]
    assert (sent["repeat_last_n"], sent["stop"], sent["grammar"]) == (7, ["x"], "root ::= [a]")


def test_no_seed_lets_the_engine_choose():
    assert completion_body([1], Sampling(), limit=1, seed=None, time_limit=1.0)["seed"] == ENGINE_SEED


def test_rescoring_asks_for_one_token_and_the_list():
    sent = rescore_body([1, 2], 100, 1.0)
    assert (sent["n_predict"], sent["n_probs"], sent["temperature"]) == (1, 100, 1.0)


@pytest.mark.parametrize("sampling", [Sampling(stop_token_ids=(9,)), Sampling(seed=-1), Sampling(seed=ENGINE_SEED)])
def test_what_the_engine_cannot_do_is_refused(sampling):
    with pytest.raises(ConfigError, match=r"llama\.cpp"):
        check_sampling(sampling, frozenset({2}))


def test_the_models_own_stop_tokens_may_be_named():
    check_sampling(Sampling(stop_token_ids=(2,), seed=ENGINE_SEED - 1), frozenset({2, 3}))


def test_a_reply_is_read():
    found = reply()
    found.check(3, 2)
    assert found.entries == [(5, -1.0)]
    assert (found.listed(9), found.listed(8)) == (-2.5, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truncated": True}, "cut the prompt"),
        ({"tokens_evaluated": 2}, "3 prompt tokens were sent, the engine counts 2"),
        ({"timings": {"cache_n": 0, "prompt_n": 1, "prompt_ms": 0, "predicted_ms": 0}}, "worked on 1"),
        ({"tokens_predicted": 3}, "sampled 3 tokens and returned 2"),
    ],
)
def test_counts_that_do_not_agree_break_the_contract(changes, message):
    with pytest.raises(RolloutFailure, match=message) as caught:
        reply(**changes).check(3, 2)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


def test_the_servers_time_limit_is_a_timeout():
    with pytest.raises(RolloutFailure) as caught:
        reply(stop_type="limit").check(3, 9)
    assert caught.value.reason is Reason.ENGINE_TIMEOUT


@pytest.mark.parametrize("data", [b"", b"{}", b'{"tokens": "x"}', b"null"])
def test_an_unreadable_reply_breaks_the_contract(data):
    with pytest.raises(RolloutFailure, match="unreadable reply"):
        answer(200, data).decode(Reply)


def test_a_null_logprob_is_not_zero():
    with pytest.raises(RolloutFailure, match="unreadable reply"):
        reply(completion_probabilities=[{"id": 5, "logprob": None}])


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (400, "exceed_context_size_error", Reason.CONTEXT_OVERFLOW),
        (429, "x", Reason.RATE_LIMITED),
        (503, "unavailable_error", Reason.ENGINE_UNREACHABLE),
        (500, "server_error", Reason.ENGINE_UNREACHABLE),
    ],
)
def test_http_errors_have_reasons(status, kind, reason):
    failure = refusal_of(answer(status, json.dumps({"error": {"message": "m", "type": kind}}).encode()))
    assert isinstance(failure, RolloutFailure)
    assert failure.reason is reason


def test_a_refused_request_is_the_callers_mistake():
    refused = b'{"error": {"message": "failed to parse grammar", "type": "invalid_request_error"}}'
    failure = refusal_of(answer(400, refused))
    assert isinstance(failure, ConfigError)
    assert "grammar" in str(failure)


def test_an_error_without_json_still_says_something():
    assert "gateway" in str(refusal_of(answer(502, b"<html>bad gateway</html>")))
