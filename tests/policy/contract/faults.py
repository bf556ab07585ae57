"""What each fault becomes: one typed failure, or a reply that says so; never a wrong completion.

Every check makes one call against one fault, holds that it took one request, and that the next call works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from rollbook.policy import Completion, EngineBusy, Policy
from rollbook.policy.testing import Dialect, Fault
from rollbook.trace import Finish, Reason, RolloutFailure, Sampling
from tests.policy.contract.clients import Can, Client, Handle
from tests.policy.held import sampled

__all__ = ["OUTCOMES", "Outcome", "holds", "struck"]

TOKENS = 12


@dataclass(frozen=True)
class Outcome:
    """What a call against a fault comes to."""

    reason: Reason | None = None
    """None: a completion."""
    busy: bool = False
    """The failure says that the same request may be made again."""
    retry_after: bool = False
    """And when."""
    reply: Callable[[Completion], bool] = lambda done: True
    """Where it is a completion: what is in it."""


def _aborted(done: Completion) -> bool:
    return done.finish is Finish.ABORT and len(done.token_ids) == TOKENS // 2


def _two_versions(done: Completion) -> bool:
    return done.versions == ((0, TOKENS // 2), (1, TOKENS // 2))


def _rescored(done: Completion) -> bool:
    return done.rescored.tolist() == [TOKENS // 2] and done.tries == 2


_CONTRACT = Outcome(Reason.ENGINE_CONTRACT)
_UNREACHABLE = Outcome(Reason.ENGINE_UNREACHABLE)
OUTCOMES: dict[Fault, Outcome] = {
    Fault.BUSY: Outcome(Reason.RATE_LIMITED, busy=True),
    Fault.BUSY_LATER: Outcome(Reason.RATE_LIMITED, busy=True, retry_after=True),
    Fault.UNAVAILABLE: Outcome(Reason.ENGINE_UNREACHABLE, busy=True),
    Fault.SERVER_ERROR: _UNREACHABLE,
    Fault.RESET: _UNREACHABLE,
    Fault.SLOW: Outcome(Reason.ENGINE_TIMEOUT),
    Fault.TRUNCATED: _UNREACHABLE,
    Fault.NO_LOGPROBS: _CONTRACT,
    Fault.FEW_LOGPROBS: _CONTRACT,
    Fault.WRONG_COUNT: _CONTRACT,
    Fault.WRONG_PROMPT_COUNT: _CONTRACT,
    Fault.NAN: _CONTRACT,
    Fault.SENTINEL: _CONTRACT,
    Fault.CUT_PROMPT: _CONTRACT,
    Fault.ALTERED_IDS: _CONTRACT,
    Fault.ABORT: Outcome(reply=_aborted),
    Fault.UPDATE: Outcome(reply=_two_versions),
}
_ELSEWHERE = {Can.RESCORED: {Fault.FEW_LOGPROBS: Outcome(reply=_rescored)}}


def struck(client: Client) -> list[Fault]:
    """The faults that this client's engine can have."""
    none = {Fault.ABORT, Fault.UPDATE, Fault.ALTERED_IDS} if client.dialect is Dialect.LLAMACPP else set[Fault]()
    return [fault for fault in Fault if fault not in none]


def expected(client: Client, fault: Fault) -> Outcome:
    """What `fault` comes to for this client."""
    for can in client.can:
        if fault in (other := _ELSEWHERE.get(can, {})):
            return other[fault]
    return OUTCOMES[fault]


async def holds(handle: Handle, fault: Fault) -> None:
    """One call meets `fault` as its first request; it becomes what is expected, and the next call is right."""
    outcome = expected(handle.client, fault)
    fake = handle.fake
    assert fake is not None
    async with handle.policy(seconds=0.6 if fault is Fault.SLOW else 30.0) as policy:
        before = len(fake.log)
        done = await _call(handle, policy, outcome)
        entries = fake.log[before:]
        assert [entry.fault for entry in entries] == [fault, *[None] * (len(entries) - 1)]
        assert len(entries) == (1 if done is None else done.tries)
        if done is not None:
            assert outcome.reply(done), done
        sampling = Sampling(max_tokens=TOKENS, seed=1)
        after = await sampled(policy, handle.ids, sampling, session="struck")
        assert len(after.token_ids) == TOKENS


async def _call(handle: Handle, policy: Policy, outcome: Outcome) -> Completion | None:
    sampling = Sampling(max_tokens=TOKENS, seed=1)
    prompt = np.array(handle.prompt, np.int32)
    if outcome.reason is None:
        return await sampled(policy, prompt, sampling, session="struck")
    with pytest.raises(RolloutFailure) as caught:
        await sampled(policy, prompt, sampling, session="struck")
    assert caught.value.reason is outcome.reason, caught.value
    assert isinstance(caught.value, EngineBusy) is outcome.busy
    if isinstance(caught.value, EngineBusy):
        assert caught.value.retry_after == (7.5 if outcome.retry_after else None)
    return None
