"""What goes over the wire, for every client."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.policy import Completion
from rollbook.policy.testing import Dialect, EngineShape, Latency
from rollbook.trace import LogprobKind
from tests.policy.contract.clients import CLIENTS, Check, Client, Handle
from tests.policy.contract.wire import WIRE_CHECKS, the_kind_is_the_one_that_came

PAIRS = [pytest.param(client, check, id=f"{client.name}-{check.name}") for client in CLIENTS for check in WIRE_CHECKS]
KINDS = [
    pytest.param(client, kind, id=f"{client.name}-{kind}")
    for client in CLIENTS
    for kind in (LogprobKind.RAW, LogprobKind.TEMPERATURE, LogprobKind.PROCESSED)
    if client.dialect is not Dialect.LLAMACPP
]


def run(client: Client, check: Check, kind: LogprobKind | None = None) -> None:
    shape = EngineShape(seed=3, logprob_kind=kind, stop_ids=(900,))
    with Handle.faked(client, shape) as handle:
        asyncio.run(check.run(handle))


@pytest.mark.parametrize(("client", "check"), PAIRS)
def test_check(client: Client, check: Check) -> None:
    run(client, check)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_times_of_a_request_are_read(client: Client) -> None:
    latency = Latency(queue=0.02, prefill=0.03, per_token=0.001)
    with Handle.faked(client, EngineShape(timings=True, stop_ids=(900,)), latency=latency) as handle:

        async def main() -> Completion:
            async with handle.policy() as policy:
                return await handle.greedy(policy, 10)

        done = asyncio.run(main())
    told = (done.queue, done.prefill, done.decode)
    expected = {
        Dialect.VLLM: (0.02, 0.03, 0.01),
        Dialect.SGLANG: (0.02, None, None),
        Dialect.LLAMACPP: (None, 0.03, 0.01),
    }[client.dialect]
    assert [value is None for value in told] == [value is None for value in expected]
    assert all(abs((value or 0) - (wanted or 0)) < 1e-6 for value, wanted in zip(told, expected, strict=True))


@pytest.mark.parametrize(("client", "kind"), KINDS)
def test_each_kind_is_found_out(client: Client, kind: LogprobKind) -> None:
    run(client, Check(the_kind_is_the_one_that_came), kind)
