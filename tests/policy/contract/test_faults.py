"""Every fault against every client."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.policy.testing import Dialect, EngineShape, Fault, FaultPlan
from rollbook.policy.testing.faults import ON_THE_WIRE
from tests.policy.contract.clients import CLIENTS, Client, Handle
from tests.policy.contract.faults import OUTCOMES, TOKENS, holds, struck

PAIRS = [pytest.param(client, fault, id=f"{client.name}-{fault}") for client in CLIENTS for fault in struck(client)]


@pytest.mark.parametrize(("client", "fault"), PAIRS)
def test_fault(client: Client, fault: Fault) -> None:
    shape = EngineShape(stop_ids=(900,), seed=3)
    plan = FaultPlan(sessions={"struck": [fault]}, retry_after=7.5, slow=1.5)
    with Handle.faked(client, shape, faults=plan) as handle:
        asyncio.run(holds(handle, fault))


def test_every_fault_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(Fault)
    assert all(set(ON_THE_WIRE) <= set(struck(client)) for client in CLIENTS)
    assert set().union(*(struck(client) for client in CLIENTS)) == set(Fault)
    assert TOKENS % 2 == 0
    assert {client.dialect for client in CLIENTS} == set(Dialect) - {Dialect.OPENAI}
