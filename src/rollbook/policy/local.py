"""The embedded engine: llama.cpp inside this process, reached over loopback with plain (not streamed) replies.

Rules. How a generation is asked for is `rollbook.policy.pieces`. The server answers nobody but this client, and the
model is what the configuration takes it for, or it is stopped again. Calls beyond the slots wait here, and their wait
is reported as the engine's queue. New weights mean a new server in the place of the old one, between two pieces: each
token has the version that its piece was sampled from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import UsageError
from rollbook.policy.gate import WeightGate
from rollbook.policy.http import EngineAddress, HttpClient, HttpReply
from rollbook.policy.llamacpp_server import ENGINE, EmbeddedServer, ServerConfig
from rollbook.policy.llamacpp_wire import ModelMeta, check_sampling
from rollbook.policy.pieces import MAX_RESCORED, PIECE, PieceSampler
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.policy.remote import room_for
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["MAX_RESCORED", "PIECE", "LocalConfig", "LocalPolicy"]

DRAIN_POLL = 0.02
"""Seconds between two looks at whether the server is idle."""
PROBE_TIMEOUT = 600.0
"""Seconds for requests that sample nothing; the server answers them between two decoding steps."""
_NO_BOUND = 0
"""Connections: the slots bound what runs at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """What a `LocalPolicy` is built from."""

    name: str
    """The policy's name, e.g. ``local:smollm2-135m``."""
    weights: Path
    """The GGUF file."""
    stop_ids: frozenset[int]
    """Tokens that end a generation."""
    context_length: int = 4096
    """Tokens of prompt and reply together; at most what the model was trained for."""
    slots: int = 8
    """Sequences decoded at once; further calls wait."""
    threads: int = 1
    """Compute threads. More than one slows everything down on a busy machine."""
    timeout: float = 300.0
    """Seconds for one request to the server."""
    weights_hash: str = ""
    """sha256 of `weights` in hex, for the record; empty: not known."""
    float32: bool = False
    """Compute in float32 throughout, for weights that are stored so: logprobs then match a trainer's."""


class LocalPolicy:
    """Samples a GGUF model inside this process."""

    def __init__(self, config: LocalConfig) -> None:
        self._config = config
        self._info = PolicyInfo(
            name=config.name,
            engine=ENGINE,
            context_length=config.context_length,
            logprob_kind=LogprobKind.RAW,
            weights_hash=config.weights_hash,
        )
        self._server: EmbeddedServer | None = None
        self._http: HttpClient | None = None
        self._sampler: PieceSampler | None = None
        self._slots = asyncio.Semaphore(config.slots)
        self._starting = asyncio.Lock()
        self.gate = WeightGate()
        """What its requests go through; `rollbook.policy.local_control` shuts it."""

    @property
    def config(self) -> LocalConfig:
        """What it was built from."""
        return self._config

    @property
    def info(self) -> PolicyInfo:
        return self._info

    async def start(self) -> None:
        async with self._starting:
            if self._sampler is not None:
                return
            await self._serve()

    async def _serve(self) -> None:
        config = self._config
        shape = ServerConfig(
            weights=config.weights,
            context_length=config.context_length,
            slots=config.slots,
            threads=config.threads,
            float32=config.float32,
        )
        self._server = await asyncio.to_thread(EmbeddedServer, shape)
        self._http = await _client(self._server, config.timeout)
        try:
            vocabulary = await self._handshake(self._server, self._http)
        except BaseException:
            await self._release()
            raise
        self._sampler = PieceSampler(
            http=_Present(self), stop_ids=config.stop_ids, vocabulary=vocabulary, gate=self.gate
        )

    async def load(self, weights: Path, version: int) -> None:
        """Serve another GGUF file of the same model from now on, as `version`. The gate must be shut, so that no piece
        is under way. A rollout may begin before and sample after, so no hash of the weights is told from then on: each
        token has its version. Raises `ModelError`; the engine then runs no more."""
        async with self._starting:
            running = self._sampler is not None
            await self._release()
            self._config = replace(self._config, weights=weights, weights_hash="")
            self._info = replace(self._info, weights_hash="")
            if running:
                await self._serve()
            self.gate.version = version

    async def send(self, method: str, path: str, body: Any, headers: Mapping[str, str] | None) -> HttpReply:
        """One request to the server that runs now. Raises `RolloutFailure`."""
        if self._http is None:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the embedded engine is not running")
        return await self._http.send(method, path, body, headers=headers)

    @property
    def address(self) -> EngineAddress:
        """Of the server that runs now. Raises `RolloutFailure`."""
        if self._http is None:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the embedded engine is not running")
        return self._http.address

    async def _handshake(self, server: EmbeddedServer, http: HttpClient) -> int:
        """Nobody else gets in, and the model is what the configuration takes it for; returns its vocabulary's size."""
        stranger = HttpClient(EngineAddress(url=server.url))
        await stranger.open()
        try:
            status = (await stranger.send("GET", "/v1/models")).status
        finally:
            await stranger.close()
        if status != 401:
            raise UsageError(f"the embedded engine answers without its key (HTTP {status}); it was stopped")
        meta = (await http.get("/v1/models", seconds=PROBE_TIMEOUT)).decode(ModelMeta).data[0].meta
        if self._config.context_length > meta.n_ctx_train:
            raise UsageError(
                f"{self._config.name} was trained for {meta.n_ctx_train} tokens of context, not "
                f"{self._config.context_length}: ask for less"
            )
        return meta.n_vocab

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        check_sampling(sampling, self._config.stop_ids)
        limit = room_for(len(prompt), sampling, self._config.context_length)
        asked = time.perf_counter()
        await self.gate.opened()
        async with self._slots:
            queue = time.perf_counter() - asked
            if self._sampler is None:
                raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the embedded engine is not running")
            found = await self._sampler.sample(prompt, sampling, limit, session)
        return replace(found, queue=queue)

    async def close(self) -> None:
        async with self._starting:
            await self._release()

    async def _release(self) -> None:
        """Turn new requests away, let the pieces that the server still works on end, then stop it."""
        self._sampler = None
        http, self._http = self._http, None
        server, self._server = self._server, None
        if http is not None:
            await http.close()
        if server is None:
            return
        probe = await _client(server, PROBE_TIMEOUT)
        try:
            while await _busy(probe):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(DRAIN_POLL)
        finally:
            await probe.close()
        server.stop()


@dataclass(frozen=True, slots=True)
class _Present:
    """Sends to whichever server runs: a generation may outlive one."""

    policy: LocalPolicy

    @property
    def address(self) -> EngineAddress:
        return self.policy.address

    async def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        return await self.policy.send(method, path, body, headers)


async def _client(server: EmbeddedServer, timeout: float) -> HttpClient:  # noqa: ASYNC109 - of each later request
    http = HttpClient(EngineAddress(url=server.url, api_key=server.key, connections=_NO_BOUND, timeout=timeout))
    await http.open()
    return http


class _Slot(msgspec.Struct):
    is_processing: bool


async def _busy(http: HttpClient) -> bool:
    return any(slot.is_processing for slot in (await http.get("/slots")).decode(list[_Slot]))
