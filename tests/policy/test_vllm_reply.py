"""Replies: what agrees with itself comes through unchanged, and one thing out of place refuses it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.http import HttpReply
from rollbook.policy.vllm_reply import completion_of, listed_logprobs, refusal_of
from rollbook.policy.vllm_wire import Route
from rollbook.trace import Finish, Reason, RolloutFailure, Sampling
from tests.policy.serving import reply_of
from tests.policy.test_vllm_wire import asked

PROMPT = [1, 2]
TOKENS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-9000, 0)), min_size=1, max_size=12)
ROUTES = pytest.mark.parametrize("route", list(Route))


def wire(route: Route, answer: dict[str, Any]) -> dict[str, Any]:
    generates = route is Route.GENERATE
    return reply_of({"token_ids" if generates else "prompt": PROMPT}, answer, generates)


def http(body: Any) -> HttpReply:
    return HttpReply(200, json.dumps(body).encode(), None)


@ROUTES
@given(tokens=TOKENS)
def test_ids_and_logprobs_come_through_bit_for_bit(route: Route, tokens: list[tuple[int, float]]) -> None:
    ids, values = [token for token, _ in tokens], [value for _, value in tokens]
    body = wire(route, {"token_ids": ids, "finish_reason": "length", "values": values})
    found = completion_of(http(body), route, asked(Sampling(), PROMPT, len(ids)))
    assert found.token_ids.tolist() == ids
    assert found.logprobs.tolist() == np.array(values, np.float32).tolist()
    assert found.finish is (Finish.STOP if ids[-1] == 9 else Finish.LENGTH)
    assert (found.prompt_tokens, found.prompt_ids.tolist() if found.prompt_ids is not None else None) == (2, PROMPT)


def _drop_logprob(choice: dict[str, Any], body: dict[str, Any]) -> None:
    del choice["logprobs"]["content" if "content" in choice["logprobs"] else "token_logprobs"][0]


def _drop_id(choice: dict[str, Any], body: dict[str, Any]) -> None:
    choice["token_ids"] = choice["token_ids"][1:] or None


def _count_more(choice: dict[str, Any], body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] += 1


def _two_choices(choice: dict[str, Any], body: dict[str, Any]) -> None:
    body["choices"].append(choice)


def _no_usage(choice: dict[str, Any], body: dict[str, Any]) -> None:
    body["usage"] = None


@ROUTES
@pytest.mark.parametrize("damage", [_drop_logprob, _drop_id, _count_more, _two_choices, _no_usage])
@given(tokens=TOKENS.filter(lambda tokens: len(tokens) > 1))
def test_one_thing_out_of_place(route: Route, damage: Any, tokens: list[tuple[int, float]]) -> None:
    ids, values = [token for token, _ in tokens], [value for _, value in tokens]
    body = wire(route, {"token_ids": ids, "finish_reason": "length", "values": values})
    damage(body["choices"][0], body)
    with pytest.raises(RolloutFailure) as caught:
        completion_of(http(body), route, asked(Sampling(), PROMPT, len(ids)))
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@ROUTES
@given(
    data=st.binary(max_size=60)
    | st.recursive(st.none() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_anything_else_is_refused(route: Route, data: bytes) -> None:
    for read in (
        lambda: completion_of(HttpReply(200, data, None), route, asked(Sampling())),
        lambda: listed_logprobs(HttpReply(200, data, None), route),
    ):
        with pytest.raises(RolloutFailure) as caught:
            read()
        assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize("keys", [{"a": -1.0}, {}])
def test_lists_without_ids(keys: dict[str, float]) -> None:
    body = {"choices": [{"logprobs": {"top_logprobs": [keys] if keys else []}}]}
    with pytest.raises(RolloutFailure, match="no logprobs by id"):
        listed_logprobs(http(body), Route.COMPLETIONS)


def test_an_overflow_is_told_by_its_words_and_its_status() -> None:
    message = json.dumps({"error": {"message": "This model's maximum context length is 8 tokens."}}).encode()
    overflow = refusal_of(HttpReply(400, message, None))
    assert isinstance(overflow, RolloutFailure)
    assert overflow.reason is Reason.CONTEXT_OVERFLOW
    other = refusal_of(HttpReply(500, message, None))
    assert isinstance(other, RolloutFailure)
    assert other.reason is Reason.ENGINE_UNREACHABLE
