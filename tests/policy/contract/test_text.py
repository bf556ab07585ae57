"""Text-only endpoints have no ids to check: what is left of the contract, against the fake endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rollbook.errors import ConfigError
from rollbook.policy import EngineBusy
from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.testing import Dialect, FakeEngine, Fault, FaultPlan, TextAnswer
from rollbook.policy.testing.faults import ON_THE_WIRE
from rollbook.policy.text import TextPolicy
from rollbook.trace import Finish, Message, Role, RolloutFailure, Sampling
from tests.policy.contract.faults import OUTCOMES

ASKED = [Message(role=Role.USER, content="what is it")]
SAMPLING = Sampling(max_tokens=50, temperature=0.5, top_p=0.75, presence_penalty=0.5, frequency_penalty=0.25, seed=7)


def used(fake: FakeEngine, use: Callable[[TextPolicy], Awaitable[Any]], seconds: float = 30.0) -> Any:
    async def main() -> Any:
        address = EngineAddress(url=fake.url, timeout=seconds)
        policy = TextPolicy(RemoteConfig(name="text", address=address, stop_ids=frozenset(), model="fake"))
        await policy.start()
        try:
            return await use(policy)
        finally:
            await policy.close()

    return asyncio.run(main())


async def ask(policy: TextPolicy) -> Any:
    return await policy.reply(ASKED, [], SAMPLING, "s")


def test_a_reply_has_text_counts_and_its_finish() -> None:
    with FakeEngine(Dialect.OPENAI) as fake:
        reply = used(fake, ask)
        (entry,) = fake.log
    assert (reply.message.content, reply.finish) == ("1 messages", Finish.STOP)
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 2)
    assert entry.session == "s"
    sent = [entry.fields[name] for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed")]
    assert sent == [0.5, 0.75, 0.5, 0.25, 7]


def test_tool_calls_are_kept_as_they_came() -> None:
    def script(messages: Any, tools: Any, session: str) -> TextAnswer:
        return TextAnswer(tool_calls=[("look", '{"at": 1')])

    with FakeEngine(Dialect.OPENAI, text_script=script) as fake:
        reply = used(fake, ask)
    assert [(call.name, call.arguments) for call in reply.calls] == [("look", '{"at": 1')]


def test_a_limit_is_a_length() -> None:
    with FakeEngine(Dialect.OPENAI) as fake:
        reply = used(fake, lambda policy: policy.reply(ASKED, [], Sampling(max_tokens=1), "s"))
    assert reply.finish is Finish.LENGTH


def test_what_it_cannot_do_is_refused_before_a_request() -> None:
    async def main(policy: TextPolicy) -> None:
        for sampling in (Sampling(max_tokens=4, top_k=3), Sampling(max_tokens=4, min_p=0.5), Sampling()):
            with pytest.raises(ConfigError):
                await policy.reply(ASKED, [], sampling, "s")

    with FakeEngine(Dialect.OPENAI) as fake:
        used(fake, main)
        assert fake.log == []


@pytest.mark.parametrize("fault", sorted(ON_THE_WIRE))
def test_fault(fault: Fault) -> None:
    outcome = OUTCOMES[fault]
    plan = FaultPlan(sessions={"s": [fault]}, retry_after=7.5, slow=1.5)

    async def main(policy: TextPolicy) -> None:
        with pytest.raises(RolloutFailure) as caught:
            await ask(policy)
        assert caught.value.reason is outcome.reason
        assert isinstance(caught.value, EngineBusy) is outcome.busy
        if isinstance(caught.value, EngineBusy):
            assert caught.value.retry_after == (7.5 if outcome.retry_after else None)
        assert (await ask(policy)).finish is Finish.STOP

    with FakeEngine(Dialect.OPENAI, faults=plan) as fake:
        used(fake, main, 0.6 if fault is Fault.SLOW else 30.0)
        assert [entry.fault for entry in fake.log] == [fault, None]


def test_the_end_leaves_no_socket() -> None:
    with FakeEngine(Dialect.OPENAI) as fake:
        used(fake, ask)

        async def gone() -> bool:
            for _ in range(100):
                if not fake.connections:
                    return True
                await asyncio.sleep(0.01)
            return False

        assert asyncio.run(gone())
