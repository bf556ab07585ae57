"""The list of checks that every client holds against the fake engine, over real ones."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.policy import Policy
from rollbook.policy.http import EngineAddress
from rollbook.policy.weights import swap_weights
from rollbook.trace import Message, Role
from tests.policy.contract.checks import CHECKS
from tests.policy.contract.clients import CLIENTS, Can, Check, Handle
from tests.slow.engines.conftest import Engine
from tests.slow.engines.models import EngineModels
from tests.slow.engines.servers import ENGINE_CONTEXT

QUESTION = (
    "Write a long story about a ship that sails north in winter, about its captain, its cook and the boy who keeps the "
    "lamp, about the weather of every day and what they say of it at night, and do not come to an end soon."
)


class Patient(Handle):
    """A real engine on a busy machine is slow."""

    def make(self, *, seconds: float = 60.0, context_length: int | None = None) -> Policy:
        return super().make(seconds=10 * seconds, context_length=context_length)


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_check(engine: Engine, check: Check, models: EngineModels) -> None:
    client = next(each for each in CLIENTS if each.name == engine.kind)
    if not check.needs <= client.can:
        pytest.skip("the engine has no such thing")
    if Can.VERSIONS in check.needs and engine.kind == "vllm-completions":
        pytest.skip("this route tells no versions")
    renderer = engine.loaded().renderer
    handle = Patient(
        client=client,
        url=engine.url,
        stop_ids=renderer.info.stop_ids,
        prompt=renderer.open([Message(role=Role.USER, content=QUESTION)], ()).token_ids.tolist(),
        context_length=ENGINE_CONTEXT,
        can=client.can,
        decode=renderer.decode,
        underway=1.5,
        long=160,
        weights=models.changed,
    )
    try:
        asyncio.run(check.run(handle))
    finally:
        if Can.CONTROL in check.needs:
            asyncio.run(own_weights(handle, models))


async def own_weights(handle: Handle, models: EngineModels) -> None:
    """Whatever a check did to the weights, the next one finds the model's own."""
    assert handle.client.control is not None
    control = handle.client.control(EngineAddress(url=handle.url))
    await control.open()
    try:
        await swap_weights(control, models.hf, 0)
    finally:
        await control.close()
