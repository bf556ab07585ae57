"""What every client of a remote engine does alike."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import EngineBusy, PolicyInfo
from rollbook.policy.http import HttpClient
from rollbook.policy.remote import Link, context_of, room_for, session_headers
from rollbook.trace import LogprobKind, Reason, RolloutFailure, Sampling
from tests.policy.serving import remote

CONFIG = remote("http://127.0.0.1:9", name="vllm:x")
INFO = PolicyInfo(name="vllm:x", engine="e", context_length=8, logprob_kind=LogprobKind.RAW)


@pytest.mark.parametrize(("tokens", "asked", "limit"), [(3, 5, 5), (3, None, 5), (7, None, 1)])
def test_room(tokens: int, asked: int | None, limit: int) -> None:
    assert room_for(tokens, Sampling(max_tokens=asked), 8) == limit


@pytest.mark.parametrize(("tokens", "asked"), [(3, 6), (8, None), (9, 1)])
def test_no_room(tokens: int, asked: int | None) -> None:
    with pytest.raises(RolloutFailure, match="do not fit 8") as caught:
        room_for(tokens, Sampling(max_tokens=asked), 8)
    assert caught.value.reason is Reason.CONTEXT_OVERFLOW


def test_an_empty_prompt() -> None:
    with pytest.raises(ConfigError, match="empty prompt"):
        room_for(0, Sampling(), 8)


def test_a_context_that_is_not_known_has_no_room() -> None:
    with pytest.raises(ConfigError, match="not known"):
        room_for(1, Sampling(max_tokens=1), None)


def test_context_lengths() -> None:
    assert context_of(CONFIG, 8) == 8
    assert context_of(remote("http://u", context_length=4), 8) == 4
    assert context_of(remote("http://u", context_length=4), None) == 4
    with pytest.raises(UsageError, match="offers 8 tokens of context, not 9"):
        context_of(remote("http://u", context_length=9), 8)
    with pytest.raises(UsageError, match="set one"):
        context_of(CONFIG, None)
    for length in (0, -1, 2**31):
        with pytest.raises(UsageError, match="no context has such a length"):
            context_of(CONFIG, length)
        with pytest.raises(UsageError, match="no context has such a length"):
            context_of(remote("http://u", context_length=length), 2**31 - 1)


def test_the_session_is_named() -> None:
    assert session_headers("r0") == {"X-Session-ID": "r0"}
    assert session_headers("a/b:c-1.2") == {"X-Session-ID": "a/b:c-1.2"}
    assert session_headers("a\nb\0\u4e2d") == {"X-Session-ID": "a%0Ab%00%E4%B8%AD"}
    assert session_headers("\ud800")["X-Session-ID"].isascii()


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (EngineBusy(Reason.ENGINE_UNREACHABLE, "HTTP 503: paused"), "is not ready .HTTP 503: paused."),
        (RolloutFailure(Reason.ENGINE_UNREACHABLE, "refused"), "cannot be reached .refused."),
        (RolloutFailure(Reason.ENGINE_TIMEOUT, "30 s"), "cannot be reached .30 s."),
        (RolloutFailure(Reason.ENGINE_CONTRACT, "unreadable"), "does not answer as this kind .* name fits it"),
        (ConfigError("other"), "other"),
    ],
)
def test_a_greeting_that_fails_names_the_remedy_and_leaves_nothing_open(failure: Exception, problem: str) -> None:
    async def main() -> None:
        link = Link(CONFIG)

        async def fail(http: HttpClient) -> PolicyInfo:
            raise failure

        async def greet(http: HttpClient) -> PolicyInfo:
            return INFO

        with pytest.raises(UsageError, match=problem):
            await link.start(fail)
        with pytest.raises(RolloutFailure, match="closed"):
            await link.http.get("/x")
        await link.start(greet)
        assert link.info is INFO
        await link.start(fail)
        await link.close()

    asyncio.run(main())


def test_two_starts_at_once_greet_once() -> None:
    greetings = 0

    async def main() -> None:
        link = Link(CONFIG)

        async def greet(http: HttpClient) -> PolicyInfo:
            nonlocal greetings
            greetings += 1
            await asyncio.sleep(0)
            return INFO

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(link.start(greet))
        await link.close()
        with pytest.raises(UsageError, match="call start"):
            _ = link.info

    asyncio.run(main())
    assert greetings == 1
