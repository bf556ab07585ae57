import math
import pickle

import msgspec
import numpy as np
import pytest

from rollbook.policy import Completion, EngineBusy, check_completion
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

PROMPT = np.array([1, 2, 3], np.int32)


def completion(**changes):
    given = {
        "token_ids": np.array([5, 6], np.int32),
        "logprobs": np.array([-0.5, 0.0], np.float32),
        "logprob_kind": LogprobKind.RAW,
        "finish": Finish.LENGTH,
    } | changes
    return Completion(**given)


@pytest.mark.parametrize("changes", [{}, {"prompt_tokens": 3}, {"versions": ((4, 1), (5, 1))}])
def test_a_sound_reply_passes(changes):
    check_completion(completion(**changes), PROMPT, Sampling(max_tokens=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprobs": np.array([-0.5], np.float32)}, "2 ids but 1 logprobs"),
        ({"logprobs": np.array([-0.5, np.nan], np.float32)}, "not finite"),
        ({"logprobs": np.array([-0.5, -np.inf], np.float32)}, "not finite"),
        ({"logprobs": np.array([-0.5, 0.1], np.float32)}, "above 0"),
        ({"token_ids": np.array([5, -1], np.int32)}, "negative"),
        ({"prompt_tokens": 4}, "counted 4 prompt tokens, 3 were sent"),
        ({"versions": ((1, 1),)}, "versions cover 1 of 2"),
        ({"token_ids": np.zeros(0, np.int32), "logprobs": np.zeros(0, np.float32)}, "no tokens"),
        ({"token_ids": [5, 6]}, "no flat arrays"),
        ({"logprobs": None}, "no flat arrays"),
        ({"logprobs": np.zeros((2, 2), np.float32)}, "no flat arrays"),
        ({"rescored": None}, "no flat arrays"),
        ({"rescored": np.zeros(1)}, "rescored positions are float64"),
        ({"logprob_kind": "likely"}, "Invalid enum value 'likely'"),
        ({"finish": None}, "no completion: .*finish"),
        ({"engine_finish": None}, "no completion: .*engine_finish"),
        ({"versions": None}, "no completion: .*versions"),
        ({"versions": ((1.5, 2),)}, "no completion: .*versions"),
        ({"versions": ((2**40, 2),)}, "no completion: .*versions"),
        ({"prompt_tokens": 3.0}, "no completion: .*prompt_tokens"),
        ({"cached_tokens": np.int64(1)}, "no completion: .*cached_tokens"),
        ({"tries": "2"}, "no completion: .*tries"),
        ({"queue": "1"}, "no completion: .*queue"),
        ({"queue": np.nan}, "no completion: .*queue"),
        ({"decode": np.inf}, "no completion: .*decode"),
        ({"prefill": -1.0}, "no completion: .*prefill"),
        ({"cached_tokens": -1}, "no completion: .*cached_tokens"),
        ({"cached_tokens": 2**70}, "prompt tokens came from the cache"),
        ({"tries": 0}, "no completion: .*tries"),
        ({"engine_finish": "x" * 1001}, "no completion: .*engine_finish"),
        ({"token_ids": np.zeros(3, np.int32), "logprobs": np.zeros(3, np.float32)}, "more than the 2"),
    ],
)
def test_each_break_is_an_engine_contract_failure(changes, message):
    with pytest.raises(RolloutFailure, match=message) as caught:
        check_completion(completion(**changes), PROMPT, Sampling(max_tokens=2))
    assert caught.value.reason is Reason.ENGINE_CONTRACT


def test_sampling_is_plain_data():
    sampling = Sampling(seed=3, stop=("x",))
    assert msgspec.json.decode(msgspec.json.encode(sampling), type=Sampling) == sampling


@pytest.mark.parametrize("reply", [None, "text", {"token_ids": [1]}])
def test_what_is_no_completion_breaks_the_contract(reply):
    with pytest.raises(RolloutFailure, match="no completion") as caught:
        check_completion(reply, PROMPT, Sampling())
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize(
    ("said", "kept"), [(None, None), (math.nan, None), (-1.0, 0.0), (-math.inf, 0.0), (0.5, 0.5), (math.inf, 3600.0)]
)
def test_a_wait_is_a_number_of_seconds_that_can_be_waited(said, kept):
    busy = EngineBusy(Reason.RATE_LIMITED, "429", said)
    assert busy.retry_after == kept
    assert pickle.loads(pickle.dumps(busy)).retry_after == kept
