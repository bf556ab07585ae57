"""verl's client as a policy: what it is asked, and what is made of its replies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.policy.protocol import Completion, check_completion
from rollbook.run.doors.verl_policy import VerlPolicy, sampling_of
from rollbook.trace import Finish, LogprobKind, RolloutFailure, Sampling

PROMPT = np.array([3, 4, 5], np.int32)
STOP = 9


@dataclass
class Reply:
    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = "completed"
    extra_fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class Client:
    reply: Reply
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Reply:
        self.asked.append({"request_id": request_id, "prompt_ids": prompt_ids, **sampling_params})
        return self.reply


def ask(reply: Reply, sampling: Sampling | None = None) -> tuple[Completion, dict[str, Any]]:
    client, sampling = Client(reply), sampling or Sampling(max_tokens=8)
    policy = VerlPolicy(client, frozenset({STOP}), context_length=64)
    made = asyncio.run(policy.sample(PROMPT, sampling, session="r0"))
    if len(made.token_ids):
        check_completion(made, PROMPT, sampling)
    return made, client.asked[0]


def test_ids_go_in_and_ids_with_logprobs_come_out() -> None:
    made, asked = ask(Reply([7, STOP], [-0.5, -0.25], extra_fields={"min_global_steps": 4, "max_global_steps": 4}))
    assert asked["request_id"] == "r0"
    assert asked["prompt_ids"] == [3, 4, 5]
    assert (asked["max_tokens"], asked["temperature"], asked["top_k"], asked["logprobs"]) == (8, 1.0, -1, True)
    assert asked["stop_token_ids"] == [STOP]
    assert made.token_ids.tolist() == [7, STOP]
    assert made.logprobs.tolist() == [-0.5, -0.25]
    assert made.versions == ((4, 2),)
    assert (made.finish, made.logprob_kind) == (Finish.STOP, LogprobKind.PROCESSED)


@pytest.mark.parametrize(
    ("reply", "finish", "versions"),
    [
        (Reply([7, 8], [-1.0, -1.0]), Finish.LENGTH, ()),
        (Reply([7], [-1.0], "aborted", {"min_global_steps": 1, "max_global_steps": 2}), Finish.ABORT, ()),
        (Reply([], None, "aborted", {"min_global_steps": 1, "max_global_steps": 1}), Finish.ABORT, ()),
        (Reply([STOP], [-1.0], None, {"min_global_steps": 0, "max_global_steps": 0}), Finish.STOP, ((0, 1),)),
    ],
)
def test_the_finish_comes_from_the_ids_and_a_version_only_where_it_is_one(
    reply: Reply, finish: Finish, versions: tuple[tuple[int, int], ...]
) -> None:
    made, _ = ask(reply)
    assert (made.finish, made.versions) == (finish, versions)


def test_tokens_without_logprobs_break_the_contract() -> None:
    with pytest.raises(RolloutFailure, match="without logprobs"):
        ask(Reply([7, STOP]))


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=8, stop=("x",)), Sampling(max_tokens=8, grammar="g")])
def test_what_verl_cannot_be_asked_is_refused(sampling: Sampling) -> None:
    with pytest.raises(UsageError, match="leave out stop strings and grammar"):
        ask(Reply([7], [-1.0]), sampling)


def test_verls_configuration_says_how_to_sample() -> None:
    own = Sampling(seed=3, min_p=0.1)
    made = sampling_of(
        {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}, own
    )
    assert made == Sampling(seed=3, min_p=0.1, temperature=0.7, top_p=0.9)
    assert sampling_of({"top_k": 5, "temperature": None}, own).top_k == 5
