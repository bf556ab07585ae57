"""A plain HTTP client, and the fake without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec

from rollbook.policy.testing import FakeEngine
from rollbook.policy.testing.ask import Reply, Request


async def send(
    url: str, path: str, body: Any = None, *, session: str = "", method: str | None = None
) -> tuple[int, Any, dict[str, str]]:
    """(status, body, headers) of one request over a connection of its own."""
    async with aiohttp.ClientSession() as client:
        verb = method or ("GET" if body is None else "POST")
        async with client.request(verb, url + path, json=body, headers={"X-Session-ID": session}) as reply:
            data = await reply.read()
            return reply.status, msgspec.json.decode(data) if data[:1] in b"{[" and data else data, dict(reply.headers)


def asked(engine: FakeEngine, path: str, body: Any = None, *, session: str = "t", method: str | None = None) -> Any:
    """(status, body) straight from the front, without a socket."""
    path, _, query = path.partition("?")
    request = Request(
        method or ("GET" if body is None else "POST"),
        path,
        dict(each.split("=") for each in query.split("&") if each),
        {"x-session-id": session},
        b"" if body is None else msgspec.json.encode(body),
    )
    reply: Reply = asyncio.run(engine.front(request))
    return reply.status, msgspec.json.decode(reply.body) if reply.body[:1] in (b"{", b"[") else reply.body
