"""Bodies of requests: whole, alike for equal samplings, and never without a field."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.vllm_wire import Asked, Route, check_sampling, probe_body, request_body
from rollbook.trace import LogprobKind, Sampling

SAMPLINGS = st.builds(
    Sampling,
    temperature=st.one_of(st.just(0.0), st.floats(0.01, 2.0)),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 100),
    min_p=st.floats(0.0, 0.9),
    repetition_penalty=st.floats(0.1, 2.0),
    presence_penalty=st.floats(-2.0, 2.0),
    frequency_penalty=st.floats(-2.0, 2.0),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop=st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
    stop_token_ids=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    grammar=st.none() | st.just('root ::= "a"'),
)
SHAPING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def asked(sampling: Sampling, prompt: list[int] | None = None, limit: int = 8) -> Asked:
    ids = prompt or [1, 2]
    return Asked(
        prompt=np.array(ids, np.int32),
        wire=msgspec.json.encode(ids),
        sampling=sampling,
        limit=limit,
        stop_ids=frozenset({9}),
        kind=LogprobKind.RAW,
    )


def sent(sampling: Sampling, route: Route, **more: Any) -> dict[str, Any]:
    body = msgspec.json.decode(msgspec.json.encode(request_body(asked(sampling, **more), "m", route)))
    return {**body, **body.get("sampling_params", {})}


@pytest.mark.parametrize("route", list(Route))
@given(sampling=SAMPLINGS, prompt=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_a_body_says_the_whole_sampling(route: Route, sampling: Sampling, prompt: list[int]) -> None:
    check_sampling(sampling)
    body = sent(sampling, route, prompt=prompt, limit=3)
    assert {name: body[name] for name in SHAPING} == {name: getattr(sampling, name) for name in SHAPING}
    assert (body["seed"], body["max_tokens"], body["model"]) == (sampling.seed, 3, "m")
    assert body["token_ids" if route is Route.GENERATE else "prompt"] == prompt
    assert body["stop_token_ids"] == sorted({9, *sampling.stop_token_ids})
    assert body["stop"] == list(sampling.stop)
    assert body["structured_outputs"] == (None if sampling.grammar is None else {"grammar": sampling.grammar})
    assert body["routed_experts_prompt_start"] == len(prompt) - 1


@pytest.mark.parametrize("route", list(Route))
def test_each_request_has_the_same_fields(route: Route) -> None:
    other = Sampling(temperature=0.5, seed=1, stop=("x",), grammar="g", top_k=3)
    assert sent(Sampling(), route).keys() == sent(other, route).keys()


@pytest.mark.parametrize("route", list(Route))
def test_a_probe_lists_more_and_leaves_other_bodies_alone(route: Route) -> None:
    before = sent(Sampling(), route)
    body = probe_body(asked(Sampling()), "m", route)
    assert body.get("sampling_params", body)["logprobs"] == 4
    assert sent(Sampling(), route) == before
    assert before["logprobs"] == 0
