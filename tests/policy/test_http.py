"""The HTTP client against real sockets: every answer and every silence is one typed cause."""

from __future__ import annotations

import asyncio
import gzip
import resource
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy import EngineBusy
from rollbook.policy.http import EngineAddress, HttpClient, check_descriptors
from rollbook.trace import Reason, RolloutFailure
from tests.policy.serving import Handler, serving

ROOT = Path(__file__).parents[2]


def call(handler: Handler, use: Callable[[HttpClient], Awaitable[Any]], **address: Any) -> Any:
    async def main() -> Any:
        async with serving(handler) as url:
            client = HttpClient(EngineAddress(url=url, **address))
            await client.open()
            try:
                return await use(client)
            finally:
                await client.close()

    return asyncio.run(main())


async def post(client: HttpClient) -> Any:
    return await client.post("/x", {"a": 1})


def answering(status: int, body: str = "{}", **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers=headers)

    return handler


def failure(handler: Handler, **address: Any) -> RolloutFailure:
    with pytest.raises(RolloutFailure) as caught:
        call(handler, post, **address)
    return caught.value


@pytest.mark.parametrize(
    ("status", "reason", "busy"),
    [
        (429, Reason.RATE_LIMITED, True),
        (503, Reason.ENGINE_UNREACHABLE, True),
        (500, Reason.ENGINE_UNREACHABLE, False),
        (502, Reason.ENGINE_UNREACHABLE, False),
        (504, Reason.ENGINE_UNREACHABLE, False),
    ],
)
def test_statuses_that_are_failures(status: int, reason: Reason, busy: bool) -> None:
    found = failure(answering(status, '{"error": {"message": "why", "type": "t"}}'))
    assert (found.reason, isinstance(found, EngineBusy)) == (reason, busy)
    assert found.detail == f"HTTP {status}: why"


@pytest.mark.parametrize(("status", "kind"), [(400, ConfigError), (404, ConfigError), (422, ConfigError)])
def test_a_wrong_request(status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"HTTP {status}: why"):
        call(answering(status, '{"error": "why"}'), post)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_access_shows_no_key(status: int) -> None:
    with pytest.raises(UsageError, match="refuses access") as caught:
        call(answering(status, "no"), post, api_key="secret-key")
    assert "secret-key" not in repr(caught.value) + repr(EngineAddress(url="http://u", api_key="secret-key"))


def test_a_redirect_is_not_followed() -> None:
    with pytest.raises(ConfigError, match="HTTP 302"):
        call(answering(302, "", Location="http://127.0.0.1:9/"), post)


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("3", 3, 3),
        ("0.5", 0.5, 0.5),
        ("-3", 0, 0),
        ("1e9", 3600, 3600),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, least: float, most: float) -> None:
    found = failure(answering(429, **{"Retry-After": header}))
    assert isinstance(found, EngineBusy)
    assert found.retry_after is not None
    assert least <= found.retry_after <= most


def test_retry_after_may_be_a_date_to_come() -> None:
    in_ten_minutes = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    found = failure(answering(429, **{"Retry-After": in_ten_minutes}))
    assert isinstance(found, EngineBusy)
    assert found.retry_after is not None
    assert 300 <= found.retry_after <= 601


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"Retry-After": "nan"}])
def test_no_retry_after(headers: dict[str, str]) -> None:
    found = failure(answering(503, **headers))
    assert isinstance(found, EngineBusy)
    assert found.retry_after is None


def test_what_is_sent() -> None:
    async def echo(request: web.Request) -> web.Response:
        told = [request.method, request.path, (await request.read()).decode(), request.headers.get("Authorization")]
        return web.json_response([*told, request.headers["X"], request.headers["Accept-Encoding"]])

    async def use(client: HttpClient) -> Any:
        return (await client.post("/x", {"a": [1, 2]}, headers={"X": "y"})).decode(list[str])

    assert call(echo, use, api_key="k") == ["POST", "/x", '{"a":[1,2]}', "Bearer k", "y", "identity"]


def test_a_reply_in_pieces_and_one_that_is_no_json() -> None:
    async def pieces(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        for piece in (b"[1,", b"2]"):
            await reply.write(piece)
        return reply

    assert call(pieces, post).decode(list[int]) == [1, 2]
    for body in ("[1", "[" * 5000, "nan"):
        with pytest.raises(RolloutFailure, match="unreadable") as caught:
            call(answering(200, body), post).decode(list[Any])
        assert caught.value.reason is Reason.ENGINE_CONTRACT


# Replies that do not come, or not whole.


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


def test_a_slow_first_byte() -> None:
    found = failure(slow, timeout=0.05)
    assert (found.reason, found.detail) == (Reason.ENGINE_TIMEOUT, "no reply within 0.05 s")


def test_a_slow_rest() -> None:
    async def rest(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Length": "10"})
        await reply.prepare(request)
        await reply.write(b"12345")
        await asyncio.sleep(5)
        return reply

    assert failure(rest, timeout=0.1).reason is Reason.ENGINE_TIMEOUT


@pytest.mark.parametrize("chunked", [True, False])
def test_a_truncated_body(chunked: bool) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={} if chunked else {"Content-Length": "10"})
        await reply.prepare(request)
        await reply.write(b"12345")
        assert request.transport is not None
        request.transport.close()
        return reply

    assert failure(cut).reason is Reason.ENGINE_UNREACHABLE


def test_a_reset() -> None:
    async def reset(request: web.Request) -> web.Response:
        assert request.transport is not None
        linger = request.transport.get_extra_info("socket")
        linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        request.transport.abort()
        return web.Response()

    assert failure(reset).reason is Reason.ENGINE_UNREACHABLE


def test_nobody_listens() -> None:
    async def main() -> None:
        client = HttpClient(EngineAddress(url="http://127.0.0.1:9"))
        await client.open()
        with pytest.raises(RolloutFailure) as caught:
            await client.get("/x")
        assert caught.value.reason is Reason.ENGINE_UNREACHABLE
        await client.close()
        await client.close()
        with pytest.raises(RolloutFailure, match="is closed"):
            await client.get("/x")

    asyncio.run(main())


def test_a_connection_that_does_not_open() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # room for one connection that nobody accepts; more get no answer
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())

        async def main() -> None:
            client = HttpClient(EngineAddress(url=f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout=0.1))
            await client.open()
            with pytest.raises(RolloutFailure, match=r"no connection within 0\.1 s") as caught:
                await client.get("/x")
            assert caught.value.reason is Reason.ENGINE_UNREACHABLE
            await client.close()

        asyncio.run(main())


def test_no_url() -> None:
    with pytest.raises(UsageError, match="is not a URL"):
        EngineAddress(url="http://")
    for wrong in ({"timeout": 0.0}, {"connect_timeout": float("nan")}, {"connections": -1}, {"max_reply": 0}):
        with pytest.raises(ConfigError, match="above 0"):
            EngineAddress(url="http://u", **wrong)


@pytest.mark.parametrize("kind", ["whole", "pieces", "compressed"])
def test_a_reply_that_is_too_large(kind: str) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        match kind:
            case "whole":
                return web.Response(body=b"x" * (3 << 20))
            case "compressed":
                packed = gzip.compress(b"x" * (3 << 20))
                return web.Response(body=packed, headers={"Content-Encoding": "gzip"})
            case _:
                reply = web.StreamResponse()
                await reply.prepare(request)
                for _ in range(3):
                    await reply.write(b"x" * (1 << 20))
                return reply

    found = failure(large, max_reply=1 << 20)
    assert (found.reason, found.detail) == (Reason.ENGINE_CONTRACT, "a reply of more than 1 MiB")


def test_more_calls_than_connections_wait_for_one() -> None:
    open_now, peak = 0, 0

    async def count(request: web.Request) -> web.Response:
        nonlocal open_now, peak
        open_now += 1
        peak = max(peak, open_now)
        await asyncio.sleep(0.005)
        open_now -= 1
        return web.Response()

    async def many(client: HttpClient) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(client.post("/x", None))

    call(count, many, connections=4)
    assert peak == 4


# File descriptors.


def limited(code: str, soft: int, hard: int) -> list[str]:
    """What `code` prints in a process with these limits of descriptors."""
    head = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


CHECK = """
from rollbook.errors import ConfigError
from rollbook.policy.http import check_descriptors
try:
    check_descriptors(1000)
except ConfigError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_soft_limit_is_raised_where_the_hard_one_allows() -> None:
    assert limited(CHECK, 256, 2048) == ["1128"]
    assert limited(CHECK, 1500, 2048) == ["1500"]


def test_too_few_descriptors_are_refused_with_the_remedy() -> None:
    error, soft = limited(CHECK, 200, 256)
    assert error.startswith("1000 connections need about 1128 file descriptors and this process may have 256: ")
    assert error.endswith("or allow at most 128 connections")
    assert soft == "200"


def test_enough_descriptors_change_nothing() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    check_descriptors(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize(
    "value", ["Mon, 99999999999999999999 Jan 2026 00:00:00 GMT", "1 Jan 2026 0:0:0 +9999999999999"]
)
def test_a_wait_that_no_clock_can_hold_is_none(value: str) -> None:
    found = failure(answering(503, **{"Retry-After": value}))
    assert isinstance(found, EngineBusy)
    assert found.retry_after is None


@pytest.mark.parametrize(
    "body", ['{"error": {"message": "no: SECRET!", "type": "SECRET"}}', "<p>SECRET</p>", '{"error":"SECRET"}']
)
def test_a_key_that_the_engine_repeats_stays_out_of_the_error(body: str) -> None:
    key = "sekret-key-1"
    with pytest.raises(RolloutFailure) as caught:
        call(answering(500, body.replace("SECRET", key)), post, api_key=key)
    assert "(the key)" in str(caught.value)
    assert key not in str(caught.value)


def test_what_no_request_can_hold_is_said() -> None:
    with pytest.raises(ConfigError, match="a request cannot hold"):
        call(answering(200), lambda client: client.post("/x", {"a": "\ud800"}))
