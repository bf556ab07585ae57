"""What goes over the wire: every setting is sent, nothing that the server would drop, and nothing that it cannot do."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.errors import ConfigError
from rollbook.policy.testing import Dialect, LogEntry
from rollbook.policy.testing.log import prompt_digest
from rollbook.policy.testing.model import TinyModel
from rollbook.trace import LogprobKind, Sampling
from tests.policy.contract.clients import Check, Handle
from tests.policy.held import sampled

__all__ = ["WIRE_CHECKS"]

UNUSUAL = Sampling(
    temperature=0.75, top_p=0.875, top_k=7, min_p=0.0625, repetition_penalty=1.25, presence_penalty=0.5,
    frequency_penalty=-0.25, seed=77, max_tokens=9, stop=("zzzz",),
)  # fmt: skip
SPELLED = {
    Dialect.SGLANG: {"max_tokens": "max_new_tokens", "seed": "sampling_seed"},
    Dialect.LLAMACPP: {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"},
}
REFUSED = {
    "vllm": (Sampling(temperature=0.001), Sampling(presence_penalty=3.0), Sampling(seed=-1), Sampling(stop=("",))),
    "sglang": (Sampling(frequency_penalty=2.5), Sampling(repetition_penalty=2.5), Sampling(stop=("a",) * 33)),
    "llamacpp": (Sampling(stop_token_ids=(5,)), Sampling(seed=2**32 - 1)),
}


def _last(handle: Handle) -> LogEntry:
    assert handle.fake is not None
    return handle.fake.log[-1]


async def every_setting_is_sent(handle: Handle) -> None:
    async with handle.policy() as policy:
        await sampled(policy, handle.ids, UNUSUAL, session="wire")
    entry = _last(handle)
    sent: dict[str, Any] = entry.fields.get("sampling_params") or entry.fields
    spelled = SPELLED.get(handle.client.dialect, {})
    for name, value in msgspec.json.decode(msgspec.json.encode(UNUSUAL)).items():
        if name not in ("grammar", "stop_token_ids"):
            assert sent[spelled.get(name, name)] == value, name
    if handle.client.dialect is not Dialect.LLAMACPP:
        assert sent["stop_token_ids"] == sorted(handle.stop_ids)
    assert entry.ignored == ()
    assert entry.status == 200


async def the_neutral_request_leaves_the_distribution_alone(handle: Handle) -> None:
    """The fake's own reading of the request is the one that the server's defaults give: no field is left to them."""
    async with handle.policy() as policy:
        done = await sampled(policy, handle.ids, Sampling(max_tokens=30, seed=12), session="wire")
    model, last, total = TinyModel(64, 3), handle.prompt[-1], 0.0
    for token, logprob in zip(done.token_ids.tolist(), done.logprobs.tolist(), strict=True):
        choice = model.choice(last, 0, Sampling())
        assert abs(choice.raw[token] - logprob) < 1e-4
        total += logprob
        last = token
    assert total < 0


async def the_prompt_is_what_was_sent(handle: Handle) -> None:
    async with handle.policy() as policy:
        await sampled(policy, handle.ids, Sampling(max_tokens=3, seed=1), session="who-1")
    entry = _last(handle)
    assert entry.prompt_digest == prompt_digest(handle.prompt)
    assert entry.session == "who-1"


async def what_it_cannot_do_is_refused_before_a_request(handle: Handle) -> None:
    assert handle.fake is not None
    refused = REFUSED[handle.client.dialect]
    async with handle.policy() as policy:
        before = len(handle.fake.log)
        for sampling in refused:
            asked = msgspec.structs.replace(sampling, max_tokens=4)
            with pytest.raises(ConfigError):
                await sampled(policy, handle.ids, asked, session="wire")
        assert len(handle.fake.log) == before


async def the_kind_is_the_one_that_came(handle: Handle) -> None:
    """With a temperature, the reported logprob is of the distribution that the kind names."""
    sampling = Sampling(temperature=0.5, max_tokens=12, seed=9)
    async with handle.policy() as policy:
        kind = policy.info.logprob_kind
        done = await sampled(policy, handle.ids, sampling, session="wire")
    assert handle.fake is not None
    assert kind is handle.fake.front.engine.settings.kind
    model, last = TinyModel(64, 3), handle.prompt[-1]
    for token, logprob in zip(done.token_ids.tolist(), done.logprobs.tolist(), strict=True):
        choice = model.choice(last, 0, sampling)
        assert abs(choice.logprobs(kind)[token] - logprob) < 1e-4
        assert abs(choice.logprobs(_other(kind))[token] - logprob) > 1e-6
        last = token


def _other(kind: LogprobKind) -> LogprobKind:
    return LogprobKind.TEMPERATURE if kind is LogprobKind.RAW else LogprobKind.RAW


async def prompts_of_many_lengths_are_counted(handle: Handle) -> None:
    async with handle.policy() as policy:
        for size in (1, 2, 63, 64, 65, 1000):
            prompt = np.resize(handle.ids, size)
            done = await sampled(policy, prompt, Sampling(max_tokens=2, seed=1), session="wire")
            assert done.prompt_tokens == size


WIRE_CHECKS = tuple(
    map(
        Check,
        (
            every_setting_is_sent,
            the_neutral_request_leaves_the_distribution_alone,
            the_prompt_is_what_was_sent,
            what_it_cannot_do_is_refused_before_a_request,
            the_kind_is_the_one_that_came,
            prompts_of_many_lengths_are_counted,
        ),
    )
)
