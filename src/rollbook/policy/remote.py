"""What every client of a remote engine does alike: connect, choose the model, hold the room in the context.

Rules: a client talks to one server from one event loop; what the server says of itself is asked once, at the start, and
whatever goes wrong there is a `UsageError` with a remedy. A request that cannot fit is refused before it is sent. A
version that the trainer tells is the one of the requests that are sent from then on, never of those under way.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from string import punctuation
from urllib.parse import quote

import msgspec

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.http import EngineAddress, HttpClient, NoSuchRoute
from rollbook.policy.protocol import EngineBusy, PolicyInfo, RemotePolicy
from rollbook.trace.call import Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = [
    "Link",
    "Linked",
    "RemoteClient",
    "RemoteConfig",
    "ServedModel",
    "ServedModels",
    "context_of",
    "room_for",
    "served_model",
    "session_headers",
]

GREETING_SECONDS = 30.0
"""How long one question at the start may take."""
MOST_CONTEXT = 2**31 - 1
"""Tokens of a context, at most."""
_IN_HEADERS = punctuation.replace("%", "") + " "


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """What a client of a remote engine is built from."""

    name: str
    """The policy's name, e.g. ``vllm:http://127.0.0.1:8000``."""
    address: EngineAddress
    stop_ids: frozenset[int]
    """Tokens that end a turn: the renderer's."""
    model: str | None = None
    """The served model's name; None: the only one that is served."""
    context_length: int | None = None
    """Tokens of prompt and reply together; None: as the engine says; a number: at most that."""


class ServedModel(msgspec.Struct, frozen=True):
    """One row of ``/v1/models``."""

    id: str
    """The name to ask for."""
    max_model_len: int | None = None
    """Tokens of prompt and reply together; None where the engine does not say here."""
    parent: str | None = None
    """The model that an adapter belongs to; None for a base model."""


class ServedModels(msgspec.Struct, frozen=True):
    """The reply of ``/v1/models``."""

    data: list[ServedModel]


class Link:
    """The connection of one client: opened by one greeting, closed once, both safe to repeat."""

    def __init__(self, config: RemoteConfig) -> None:
        self.config = config
        self.version: int | None = None
        """The policy version that requests sent from now on get where the engine gives none; None: nobody told one."""
        self._client = HttpClient(config.address)
        self._info: PolicyInfo | None = None
        self._changing = asyncio.Lock()

    @property
    def http(self) -> HttpClient:
        """Refuses to send before the greeting and after the end."""
        return self._client

    @property
    def info(self) -> PolicyInfo:
        """What the greeting found. Raises `UsageError` before it."""
        if self._info is None:
            raise UsageError(f"{self.config.name} is not connected: call start() first")
        return self._info

    async def start(self, greet: Callable[[HttpClient], Awaitable[PolicyInfo]]) -> None:
        """Open the client and let `greet` ask the engine. Raises `UsageError`; then nothing is left open."""
        async with self._changing:
            if self._info is not None:
                return
            await self._client.open()
            try:
                self._info = await greet(self._client)
            except (RolloutFailure, NoSuchRoute) as failure:
                await self._client.close()
                raise UsageError(f"{self.config.name}: {_remedy(failure)}") from failure
            except BaseException:
                await self._client.close()
                raise

    async def close(self) -> None:
        """Close every connection, which makes the engine drop what runs on them."""
        async with self._changing:
            self._info = None
            await self._client.close()


class Linked(ABC):
    """What is reached over one link, and known by its greeting."""

    def __init__(self, config: RemoteConfig) -> None:
        self._config = config
        self._link = Link(config)

    @property
    def info(self) -> PolicyInfo:
        return self._link.info

    async def start(self) -> None:
        await self._link.start(self._greet)

    async def close(self) -> None:
        await self._link.close()

    @abstractmethod
    async def _greet(self, http: HttpClient) -> PolicyInfo:
        """Ask the engine what it is. Raises `RolloutFailure` and `UsageError`."""


class RemoteClient(Linked, RemotePolicy):
    """What the clients of engines that take ids share; each adds its greeting and its `sample`."""

    def tell_version(self, version: int | None) -> None:
        """The policy version of the requests that are sent from now on, for an engine that gives none; None: not
        known."""
        self._link.version = version


def _remedy(failure: RolloutFailure | NoSuchRoute) -> str:
    if isinstance(failure, NoSuchRoute):
        return (
            f"it is no such kind of engine, {failure}: see that the name fits it (vllm:, sglang:, llamacpp: or text:)"
        )
    if isinstance(failure, EngineBusy):
        return f"the engine is not ready ({failure.detail}): wait until it is up, or resume it if it was paused"
    match failure.reason:
        case Reason.ENGINE_UNREACHABLE | Reason.ENGINE_TIMEOUT:
            return f"the engine cannot be reached ({failure.detail}): see that it runs, and the address"
        case _:
            return (
                f"the engine does not answer as this kind of engine does ({failure.detail}): see that the name fits it"
            )


async def served_model(http: HttpClient, config: RemoteConfig) -> ServedModel:
    """The model to ask for, out of ``/v1/models``. Raises `UsageError` where it is not served or not the only one."""
    listed = (await http.get("/v1/models", seconds=GREETING_SECONDS)).decode(ServedModels).data
    names = ", ".join(model.id for model in listed) or "none"
    if config.model is not None:
        for model in listed:
            if model.id == config.model:
                return model
        raise UsageError(f"{config.name} does not serve {config.model!r}; it serves {names}")
    bases = [model for model in listed if model.parent is None] or listed
    if len(bases) != 1:
        raise UsageError(f"{config.name} serves {names}: say which model is meant")
    return bases[0]


def context_of(config: RemoteConfig, offered: int | None) -> int:
    """The context length to hold: what the engine offers, or less where the configuration does. Raises `UsageError`."""
    lengths = [length for length in (offered, config.context_length) if length is not None]
    if not lengths:
        raise UsageError(f"{config.name} does not say its context length: set one")
    if not all(0 < length <= MOST_CONTEXT for length in lengths):
        said = f"{offered} by the engine, {config.context_length} by the configuration"
        raise UsageError(f"{config.name}: no context has such a length ({said}): see how the engine was started")
    if lengths[-1] > lengths[0]:
        raise UsageError(f"{config.name} offers {offered} tokens of context, not {config.context_length}: ask for less")
    return lengths[-1]


def room_for(prompt_tokens: int, sampling: Sampling, context_length: int | None) -> int:
    """The most tokens to ask for. Raises `RolloutFailure` (`context_overflow`) where they do not fit, and
    `ConfigError` for an empty prompt or a context that is not known."""
    if not prompt_tokens:
        raise ConfigError("an empty prompt cannot be continued")
    if context_length is None:
        raise ConfigError("the context length is not known: set one")
    room = context_length - prompt_tokens
    limit = room if sampling.max_tokens is None else sampling.max_tokens
    if limit > room or limit < 1:
        detail = f"{prompt_tokens} prompt tokens and {limit} new ones do not fit {context_length}"
        raise RolloutFailure(Reason.CONTEXT_OVERFLOW, detail)
    return limit


def session_headers(session: str) -> dict[str, str]:
    """Names the rollout: for routers that keep a session on one replica, and for the engine's own log. What a header
    cannot hold goes as in a URL."""
    return {"X-Session-ID": quote(session, _IN_HEADERS, errors="surrogatepass")}
