"""One HTTP client for one engine: a bounded pool of connections, and failures as typed causes.

Rules: one call here is one request; whoever asks decides whether to ask again. An answer that says "not now" (429, 503)
is `EngineBusy`, with the engine's own Retry-After; no answer in time is `engine_timeout`; no connection, a connection
that breaks, a body that ends early and every other 5xx are `engine_unreachable`; other refusals are a wrong request, so
a `ConfigError`. Nothing of what is sent in headers appears in an error, also where the engine repeats it.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import inf
from time import time
from typing import Any, TypeVar

import aiohttp
import msgspec

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.address import check_key, redacted, url_problem
from rollbook.policy.protocol import EngineBusy
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["EngineAddress", "HttpClient", "HttpReply", "NoSuchRoute", "check_descriptors", "error_of", "failure_of"]

_Type = TypeVar("_Type")

KEPT_SECONDS = 4.0
"""How long an idle connection is kept: uvicorn, below vLLM and SGLang, closes one after 5, and a request that is
sent at that moment is lost."""
OTHER_DESCRIPTORS = 128
"""File descriptors that a process may need beside its connections."""
_NO_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
LEAST_SECRET = 8
"""Characters of a key that is looked for in errors; a shorter one (``none``, ``EMPTY``) guards nothing."""
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """Where an engine is and how it is reached."""

    url: str
    """Without a trailing slash."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; never recorded, never shown."""
    connections: int = 1024
    """Open at once; further requests wait for one. 0: no bound."""
    timeout: float = 600.0
    """Seconds from request to the end of its reply, the engine's queue included."""
    connect_timeout: float = 10.0
    """Seconds for a connection to open; a queue at the engine comes after it."""
    max_reply: int = 256 << 20
    """Bytes of one reply that are read; more is no reply."""

    def __post_init__(self) -> None:
        if problem := url_problem(self.url):
            raise ConfigError(f"{redacted(self.url)!r} {problem}")
        check_key(self.api_key)
        bounds = (self.timeout, self.connect_timeout, self.max_reply)
        if self.connections < 0 or not all(0 < each < inf for each in bounds):  # a timeout of 0 would be none
            raise ConfigError(
                "an engine's timeouts and bytes of a reply are finite numbers above 0, connections not below"
            )


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back, whatever its status."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds; None where the engine does not say."""
    secret: str | None = field(default=None, repr=False)
    """The key that was sent: where the reply repeats it, it stays out of errors."""

    def decode(self, kind: type[_Type]) -> _Type:
        """Read the JSON body. Raises `RolloutFailure` (`engine_contract`)."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"unreadable reply: {error}") from error


class _ErrorBody(msgspec.Struct):
    message: str = ""
    type: str = ""
    param: str | None = None


class _ErrorReply(msgspec.Struct):
    error: _ErrorBody | str


class HttpClient:
    """Requests to one engine from one event loop."""

    def __init__(self, address: EngineAddress) -> None:
        self.address = address
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the pool; nothing is sent. Calling it twice does nothing. Raises `ConfigError` (`check_descriptors`)."""
        if self._session is None:
            check_descriptors(self.address.connections)
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self.address.api_key is not None:
                headers["Authorization"] = f"Bearer {self.address.api_key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(limit=self.address.connections, keepalive_timeout=KEPT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )

    async def close(self) -> None:
        """Close every connection, which cancels what runs on them. Calling it twice does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> HttpReply:
        """One request, one reply of any status; `body` goes as JSON. `seconds`: instead of the address's timeout.

        Raises `RolloutFailure` where no reply came, and `ConfigError` for what no request can hold.
        """
        if self._session is None:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the client of the engine is closed")
        within = self.address.timeout if seconds is None else seconds
        limit = aiohttp.ClientTimeout(total=within, sock_connect=self.address.connect_timeout)
        data = None if body is None else _json(body)
        try:
            async with self._session.request(
                method, self.address.url + path, data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as reply:
                body = await _read(reply, self.address.max_reply)
                wait = _retry_after(reply.headers.get("Retry-After"))
                return HttpReply(reply.status, body, wait, self.address.api_key)
        except aiohttp.ConnectionTimeoutError as error:
            detail = f"no connection within {self.address.connect_timeout:g} s"
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, detail) from error
        except TimeoutError as error:
            raise RolloutFailure(Reason.ENGINE_TIMEOUT, f"no reply within {within:g} s") from error
        except aiohttp.InvalidURL as error:
            raise UsageError(f"{self.address.url} is not a URL") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self.address) from error

    async def post(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None, seconds: float | None = None
    ) -> HttpReply:
        """A POST whose reply is 200; every other status is raised as its cause."""
        reply = await self.send("POST", path, body, headers=headers, seconds=seconds)
        if reply.status != HTTPStatus.OK:
            raise failure_of(reply)
        return reply

    async def get(self, path: str, *, seconds: float | None = None) -> HttpReply:
        """As `post`, a GET."""
        reply = await self.send("GET", path, seconds=seconds)
        if reply.status != HTTPStatus.OK:
            raise failure_of(reply)
        return reply


class NoSuchRoute(ConfigError):
    """The server has no route of that name: it is another kind of server, or an older one."""


def failure_of(reply: HttpReply) -> Exception:
    """The failure that an HTTP status stands for."""
    message, _ = error_of(reply)
    detail = f"HTTP {reply.status}: {message}"
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return EngineBusy(Reason.RATE_LIMITED, detail, reply.retry_after)
    if reply.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return EngineBusy(Reason.ENGINE_UNREACHABLE, detail, reply.retry_after)
    if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RolloutFailure(Reason.ENGINE_UNREACHABLE, detail)
    if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return UsageError(f"the engine refuses access ({detail})")
    refused = f"the engine refused the request ({detail})"
    return NoSuchRoute(refused) if reply.status in _NO_ROUTE else ConfigError(refused)


def error_of(reply: HttpReply) -> tuple[str, str]:
    """(message, type) of an error reply, bounded; the body's first characters where it has no known form."""
    try:
        error = msgspec.json.decode(reply.body, type=_ErrorReply).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _without(reply.secret, reply.body[:4096].decode("utf-8", "replace"))[:200], ""
    message, kind = (error, "") if isinstance(error, str) else (error.message, error.type)
    return _without(reply.secret, message)[:500], _without(reply.secret, kind)[:100]


def _without(secret: str | None, text: str) -> str:
    return text if secret is None or len(secret) < LEAST_SECRET else text.replace(secret, "(the key)")


def _json(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise ConfigError(f"a request cannot hold what was asked for: {error}") from error


def check_descriptors(connections: int) -> None:
    """See that this process may open so many connections; raises the soft limit of descriptors where that helps.

    Raises `ConfigError` where the hard limit is below.
    """
    needed = connections + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{connections} connections need about {needed} file descriptors and this process may have {hard}: raise "
            f"the limit (ulimit -n), or allow at most {max(hard - OTHER_DESCRIPTORS, 0)} connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def _read(reply: aiohttp.ClientResponse, most: int) -> bytes:
    """The body. What is compressed may be of any size, whatever the header says, so it is counted as it comes."""
    size = reply.content_length
    if size is not None and "Content-Encoding" not in reply.headers:
        if size > most:
            raise _too_large(most)
        return await reply.read()
    parts: list[bytes] = []
    read = 0
    async for part in reply.content.iter_any():
        read += len(part)
        if read > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> RolloutFailure:
    return RolloutFailure(Reason.ENGINE_CONTRACT, f"a reply of more than {most >> 20} MiB")


def _unreachable(error: Exception, address: EngineAddress) -> Exception:
    number = error.errno if isinstance(error, OSError) else None
    if number in _OUT_OF_DESCRIPTORS:
        return ConfigError(
            f"no file descriptor is left for a connection to {address.url}: raise the limit (ulimit -n) or run fewer "
            f"rollouts at once; up to {address.connections} connections are allowed"
        )
    return RolloutFailure(Reason.ENGINE_UNREACHABLE, str(error)[:500] or type(error).__name__)


def _retry_after(value: str | None) -> float | None:
    """Seconds, from a number or an HTTP date (RFC 9110, section 10.2.3)."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        try:
            return parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, OverflowError):
            return None
