"""Calls and the sampling transform."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.errors import ConfigError
from rollbook.trace import Call, Finish, Sampling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.0),
        ("min_p", -0.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("max_tokens", 0),
    ],
)
def test_a_sampling_that_makes_no_sense_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        Sampling(**{field: value})


@pytest.mark.parametrize(
    ("fields", "changes", "truncates"),
    [
        ({}, False, False),
        ({"seed": 1, "max_tokens": 3, "stop": ("x",), "stop_token_ids": (2,)}, False, False),
        ({"temperature": 0.5}, True, False),
        ({"temperature": 0.0}, True, False),
        ({"top_p": 0.9}, True, True),
        ({"top_k": 5}, True, True),
        ({"min_p": 0.1}, True, True),
        ({"repetition_penalty": 1.1}, True, True),
        ({"presence_penalty": 0.1}, True, True),
        ({"frequency_penalty": 0.1}, True, True),
        ({"grammar": "root ::= x"}, True, True),
    ],
)
def test_what_changes_the_distribution(fields: dict[str, Any], changes: bool, truncates: bool) -> None:
    sampling = Sampling(**fields)
    assert (sampling.changes_distribution, sampling.truncates) == (changes, truncates)


def test_what_the_engine_did_not_say_is_none() -> None:
    call = Call(sampling=Sampling(), finish=Finish.STOP)
    assert (call.node, call.logprob_kind, call.prompt_tokens, call.completion_tokens) == (None, None, None, None)
    assert (call.cached_tokens, call.queue, call.prefill, call.decode) == (None, None, None, None)
