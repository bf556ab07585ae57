"""Each rule of the token contract alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollbook.policy.protocol import Completion, check_completion
from rollbook.trace import Finish, LogprobKind, Reason, RolloutFailure, Sampling

PROMPT = np.array([1, 2, 3], np.int32)
FINE: dict[str, Any] = {
    "token_ids": np.array([5, 6], np.int32),
    "logprobs": np.array([-1, -2], np.float32),
    "rescored": np.array([1], np.int32),
    "versions": ((3, 1), (4, 1)),
    "prompt_tokens": 3,
}
NOTHING = {
    "token_ids": FINE["token_ids"][:0],
    "logprobs": FINE["logprobs"][:0],
    "rescored": FINE["rescored"][:0],
    "versions": (),
}


def completion(finish: Finish = Finish.STOP, **fields: Any) -> Completion:
    return Completion(**{**FINE, **fields}, logprob_kind=LogprobKind.RAW, finish=finish)


def ids(*values: int) -> Any:
    return np.array(values, np.int32)


def logprobs(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    "good",
    [
        completion(),
        completion(versions=(), prompt_tokens=None, rescored=ids()),
        completion(logprobs=logprobs(1e-4, -2)),
        completion(routed_experts=np.zeros((2, 3, 4), np.uint16)),
        completion(Finish.ABORT, **NOTHING),
        completion(Finish.ERROR, **NOTHING),
    ],
)
def test_a_reply_that_keeps_the_contract(good: Completion) -> None:
    check_completion(good, PROMPT, Sampling(max_tokens=2))


BROKEN: dict[str, dict[str, Any]] = {
    "ids are int64": {"token_ids": np.array([5, 6])},
    "logprobs are float64": {"logprobs": np.array([-1.0, -2.0])},
    "2 ids but 1 logprobs": {"logprobs": logprobs(-1)},
    "not finite": {"logprobs": logprobs(-1, -np.inf)},
    "above 0": {"logprobs": logprobs(-1, 0.01)},
    "a token id is negative": {"token_ids": ids(5, -6)},
    "2 tokens, more than the 1 asked for": {"limit": 1},
    "counted 4 prompt tokens, 3 were sent": {"prompt_tokens": 4},
    "versions cover 1 of 2": {"versions": ((3, 1),)},
    "a version or its count is none": {"versions": ((3, 3), (4, -1))},
    "rescored positions do not rise within": {"rescored": ids(2)},
    "the reply holds no tokens": NOTHING,
}


@pytest.mark.parametrize("problem", BROKEN)
def test_each_rule_refuses_what_breaks_it(problem: str) -> None:
    fields = dict(BROKEN[problem])
    sampling = Sampling(max_tokens=fields.pop("limit", 2))
    with pytest.raises(RolloutFailure, match=problem) as caught:
        check_completion(completion(**fields), PROMPT, sampling)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize(
    "experts", [np.zeros((2, 3, 4), np.uint8), np.zeros((2, 3), np.uint16), np.zeros((3, 3, 4), np.uint16), [[[1]]] * 2]
)
def test_routed_experts_stand_for_each_token(experts: Any) -> None:
    with pytest.raises(RolloutFailure, match="routed experts") as caught:
        check_completion(completion(routed_experts=experts), PROMPT, Sampling())
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize("stray", [ids(-1), ids(1, 1), ids(1, 0), ids(0, 2)])
def test_rescored_positions_rise_within_the_reply(stray: Any) -> None:
    with pytest.raises(RolloutFailure, match="rescored"):
        check_completion(completion(rescored=stray), PROMPT, Sampling())
