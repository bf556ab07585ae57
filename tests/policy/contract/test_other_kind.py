"""Every client at a server of another kind: a name that does not fit is told at the start."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.errors import UsageError
from rollbook.policy.testing import Dialect, FakeEngine
from tests.policy.contract.clients import CLIENTS, Client
from tests.policy.serving import remote

PAIRS = [
    pytest.param(client, dialect, id=f"{client.name}-{dialect}")
    for client in CLIENTS
    for dialect in (Dialect.VLLM, Dialect.SGLANG, Dialect.LLAMACPP)
    if client.dialect is not dialect
]


@pytest.mark.parametrize(("client", "dialect"), PAIRS)
def test_a_client_at_another_kind_of_engine_says_so(client: Client, dialect: Dialect) -> None:
    with FakeEngine(dialect) as fake:
        policy = client.build(remote(fake.url))
        with pytest.raises(UsageError, match=r"no such kind of engine.*HTTP 404.*name fits it \(vllm:, sglang:"):
            asyncio.run(policy.start())
