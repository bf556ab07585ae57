"""SGLang's wire form."""

import pytest

from rollbook.policy.sglang_wire import (
    FinishReason,
    generate_body,
    kind_for,
)
from rollbook.trace.call import LogprobKind, Sampling

# Every sampling parameter of SGLang 0.5.23 that shapes a generation, with the value that leaves the model alone.
NEUTRAL = {
    "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "min_new_tokens": 0, "n": 1, "stop": [], "stop_regex": None, "ebnf": None, "regex": None,
    "json_schema": None, "structural_tag": None, "ignore_eos": False, "skip_special_tokens": False,
    "spaces_between_special_tokens": False, "no_stop_trim": True, "stop_token_ids": [3, 9], "max_new_tokens": 7,
    "sampling_seed": 5,
}  # fmt: skip


def body(sampling):
    return generate_body([1], sampling, limit=7, stop_ids=frozenset({9}), rid="r.1.", experts=False)


def test_the_default_request_leaves_the_distribution_alone_and_says_everything():
    sent = body(Sampling(seed=5, stop_token_ids=(3,)))
    assert sent["sampling_params"] == NEUTRAL
    assert (sent["return_logprob"], sent["logprob_start_len"], sent["return_text_in_logprobs"]) == (True, -1, False)
    assert (sent["return_prompt_token_ids"], sent["stream"]) == (True, False)
    assert "return_routed_experts" not in sent


def test_each_setting_reaches_its_field():
    sent = body(Sampling(temperature=0.5, top_k=4, top_p=0.9, min_p=0.1, stop=("a",), grammar="g"))["sampling_params"]
    assert (sent["temperature"], sent["top_k"], sent["top_p"], sent["min_p"]) == (0.5, 4, 0.9, 0.1)
    assert (sent["stop"], sent["ebnf"]) == (["a"], "g")


def test_the_engines_own_words_are_kept():
    assert str(FinishReason("stop", 9)) == "stop: 9"
    assert str(FinishReason("length")) == "length"
    assert str(FinishReason("abort", message="paused")) == "abort: paused"


TEMPERATURE, RAW, PROCESSED, UNKNOWN = (
    LogprobKind.TEMPERATURE, LogprobKind.RAW, LogprobKind.PROCESSED, LogprobKind.UNKNOWN,
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "sampling", "kind"),
    [
        (TEMPERATURE, Sampling(temperature=0.5), TEMPERATURE),
        (TEMPERATURE, Sampling(temperature=0.0), RAW),  # greedy requests are not divided by their temperature
        (TEMPERATURE, Sampling(temperature=0.5, top_k=1), RAW),
        (TEMPERATURE, Sampling(temperature=0.0, presence_penalty=1.0), UNKNOWN),
        (TEMPERATURE, Sampling(presence_penalty=1.0), PROCESSED),  # penalties come before the temperature
        (TEMPERATURE, Sampling(presence_penalty=1.0, top_p=0.9), UNKNOWN),
        (RAW, Sampling(grammar="g"), UNKNOWN),
        (RAW, Sampling(temperature=0.5), RAW),
        (PROCESSED, Sampling(presence_penalty=1.0, top_k=5), PROCESSED),
    ],
)
def test_the_kind_of_one_call(found, sampling, kind):
    assert kind_for(found, sampling) is kind
