"""The list of checks over every client against the fake engine."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.policy.testing import EngineShape, Latency
from rollbook.policy.testing.shape import letters
from tests.policy.contract.checks import CHECKS
from tests.policy.contract.clients import CLIENTS, Check, Client, Handle

PAIRS = [
    pytest.param(client, check, id=f"{client.name}-{check.name}")
    for client in CLIENTS
    for check in CHECKS
    if check.needs <= client.can
]
SLOW = {  # these need a long generation: its end is an id that the model never samples
    "a_cancelled_call_leaves_the_client_usable",
    "an_abort_gives_the_tokens_so_far",
    "new_weights_in_the_middle_give_two_spans",
}


@pytest.mark.parametrize(("client", "check"), PAIRS)
def test_check(client: Client, check: Check) -> None:
    shape = EngineShape(stop_ids=(900,) if check.name in SLOW else (2,), seed=3)
    latency = Latency(per_token=0.005) if check.name in SLOW else None
    with Handle.faked(client, shape, decode=letters, latency=latency) as handle:
        asyncio.run(check.run(handle))
        assert handle.fake is not None
        assert not [entry for entry in handle.fake.log if entry.ignored]


def test_each_client_is_held_to_something_of_every_kind() -> None:
    needed = frozenset(each for check in CHECKS for each in check.needs)
    assert needed <= frozenset(each for client in CLIENTS for each in client.can)
