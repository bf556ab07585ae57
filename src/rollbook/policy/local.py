"""The embedded engine: llama.cpp inside this process, reached over loopback with plain (not streamed) replies.

Rules. Ids and logprobs come from one reply and are aligned by id; what the engine leaves out is scored by a second
request to it, up to `MAX_RESCORED` tokens a reply, and beyond that the call is refused. The server goes on with a
plain request whose client has left, so a generation is asked for in pieces of `PIECE` tokens, each continuing the one
before from the cache: a cancelled generation ends with its piece. (Stop strings and grammars do not carry over a cut,
so those generations are asked for whole.) A piece has its own seed, made from the call's, so equal calls get equal
tokens where the engine serves one at a time: rounding depends on what else is in its batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.align import align, checked_logprob
from rollbook.policy.llamacpp_server import ENGINE, EmbeddedServer, ServerConfig
from rollbook.policy.llamacpp_wire import (
    ModelMeta,
    Reply,
    check_sampling,
    completion_body,
    finish_of,
    http_failure,
    rescore_body,
)
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds, check_completion
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["MAX_RESCORED", "PIECE", "LocalConfig", "LocalPolicy"]

MAX_RESCORED = 64
"""Tokens of one reply that may be scored by a second request."""
PIECE = 64
"""Tokens asked for at once; what a cancelled generation may still cost."""
WEIGHTS_VERSION = 0
"""The policy version of all its tokens: the weights never change while the engine runs."""
DRAIN_POLL = 0.02
"""Seconds between two looks at whether the server is idle."""
PROBE_TIMEOUT = 600.0
"""Seconds for requests that sample nothing; the server answers them between two decoding steps."""
FIRST_LIST = 1024
"""Alternatives asked for when rescoring, before the whole vocabulary is."""


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


@dataclass(slots=True)
class _Generation:
    """One call's pieces, put together."""

    tokens: list[int] = field(default_factory=list[int])
    entries: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    logprobs: list[np.ndarray[Any, np.dtype[np.float32]]] = field(default_factory=list[Any])
    replies: list[Reply] = field(default_factory=list[Reply])


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
        self._http: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(config.slots)
        self._vocabulary = 0
        self._starting = asyncio.Lock()

    @property
    def info(self) -> PolicyInfo:
        return self._info

    async def start(self) -> None:
        async with self._starting:
            if self._http is not None:
                return
            config = self._config
            shape = ServerConfig(
                weights=config.weights,
                context_length=config.context_length,
                slots=config.slots,
                threads=config.threads,
            )
            self._server = await asyncio.to_thread(EmbeddedServer, shape)
            self._http = _client(self._server)
            try:
                await self._handshake(self._server, self._http)
            except BaseException:
                await self._release()
                raise

    async def _handshake(self, server: EmbeddedServer, http: aiohttp.ClientSession) -> None:
        """Nobody else gets in, and the model is what the configuration takes it for."""
        async with aiohttp.ClientSession() as stranger, stranger.get(f"{server.url}/v1/models") as reply:
            if reply.status != 401:
                raise UsageError(f"the embedded engine answers without its key (HTTP {reply.status}); it was stopped")
        async with http.get("/v1/models") as reply:
            meta = msgspec.json.decode(await reply.read(), type=ModelMeta).data[0].meta
        if self._config.context_length > meta.n_ctx_train:
            raise UsageError(
                f"{self._config.name} was trained for {meta.n_ctx_train} tokens of context, not "
                f"{self._config.context_length}: ask for less"
            )
        self._vocabulary = meta.n_vocab

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        del session  # the server itself gives a request the slot whose cache begins like its prompt
        check_sampling(sampling, self._config.stop_ids)
        limit = self._limit(len(prompt), sampling)
        asked = time.perf_counter()
        async with self._slots:
            queue = time.perf_counter() - asked
            generation = await self._generate(prompt.tolist(), sampling, limit)
            logprobs = np.concatenate(generation.logprobs)
            rescored = np.flatnonzero(np.isnan(logprobs)).astype(np.int32)
            scores = await self._rescore(prompt.tolist(), generation.tokens, rescored.tolist())
        for at, (value, _) in scores.items():
            logprobs[at] = value
        first, final = generation.replies[0], generation.replies[-1]
        completion = Completion(
            token_ids=np.array(generation.tokens, np.int32),
            logprobs=logprobs,
            rescored=rescored,
            logprob_kind=LogprobKind.RAW,
            finish=finish_of(final.stop_type, generation.tokens[-1], self._config.stop_ids),
            engine_finish=final.stop_type,
            versions=((WEIGHTS_VERSION, len(generation.tokens)),),
            prompt_tokens=first.timings.cache_n + first.timings.prompt_n,
            cached_tokens=first.timings.cache_n,
            tries=len(generation.replies) + sum(requests for _, requests in scores.values()),
            queue=queue,
            prefill=sum(reply.timings.prompt_ms for reply in generation.replies) / 1000,
            decode=sum(reply.timings.predicted_ms for reply in generation.replies) / 1000,
        )
        check_completion(completion, prompt, sampling)
        return completion

    def _limit(self, prompt_tokens: int, sampling: Sampling) -> int:
        room = self._config.context_length - prompt_tokens
        limit = room if sampling.max_tokens is None else sampling.max_tokens
        if not prompt_tokens:
            raise ConfigError("an empty prompt cannot be continued")
        if limit > room or limit < 1:
            detail = f"{prompt_tokens} prompt tokens and {limit} new ones do not fit {self._config.context_length}"
            raise RolloutFailure(Reason.CONTEXT_OVERFLOW, detail)
        return limit

    async def _generate(self, prompt: list[int], sampling: Sampling, limit: int) -> _Generation:
        whole = bool(sampling.stop or sampling.grammar)
        done = _Generation()
        while True:
            count = limit if whole else min(PIECE, limit - len(done.tokens))
            seed = _piece_seed(sampling.seed, len(done.replies))
            sent = prompt + done.tokens
            body = completion_body(sent, sampling, limit=count, seed=seed, time_limit=self._config.timeout)
            reply = await self._post(body)
            reply.check(len(sent), count)
            if not reply.tokens:
                raise RolloutFailure(Reason.ENGINE_CONTRACT, "the reply holds no tokens")
            done.replies.append(reply)
            done.tokens += reply.tokens
            done.logprobs.append(align(reply.tokens, reply.entries).logprobs)
            if reply.stop_type != "limit" or len(done.tokens) >= limit or reply.tokens[-1] in self._config.stop_ids:
                return done

    async def _rescore(
        self, prompt: list[int], tokens: list[int], missing: Sequence[int]
    ) -> dict[int, tuple[float, int]]:
        """The logprobs of `missing` positions, from the same engine, and how many requests each took. Raises
        `RolloutFailure` (`engine_contract`)."""
        if len(missing) > MAX_RESCORED:
            detail = f"the engine left out {len(missing)} of {len(tokens)} logprobs, more than {MAX_RESCORED}"
            raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
        return {at: await self._score(prompt + tokens[:at], tokens[at]) for at in missing}

    async def _score(self, prefix: list[int], token: int) -> tuple[float, int]:
        for requests, listed in enumerate((min(FIRST_LIST, self._vocabulary), self._vocabulary), 1):
            reply = await self._post(rescore_body(prefix, listed, self._config.timeout))
            reply.check(len(prefix), 1)
            if (found := reply.listed(token)) is not None:
                return checked_logprob(found), requests
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine gives no logprob for id {token}")

    async def _post(self, body: dict[str, Any]) -> Reply:
        if self._http is None:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the embedded engine is not running")
        limit = aiohttp.ClientTimeout(total=self._config.timeout)
        try:
            async with self._http.post("/completion", data=msgspec.json.encode(body), timeout=limit) as reply:
                data = await reply.read()
        except TimeoutError as error:
            raise RolloutFailure(Reason.ENGINE_TIMEOUT, f"no reply within {self._config.timeout} s") from error
        except aiohttp.ClientError as error:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, str(error) or repr(error)) from error
        if reply.status != 200:
            raise http_failure(reply.status, data)
        return Reply.decode(data)

    async def close(self) -> None:
        async with self._starting:
            await self._release()

    async def _release(self) -> None:
        """Turn new requests away, let the pieces that the server still works on end, then stop it."""
        http, self._http = self._http, None
        server, self._server = self._server, None
        if http is not None:
            await http.close()
        if server is None:
            return
        async with _client(server) as probe:
            while await _busy(probe):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(DRAIN_POLL)
        server.stop()


def _client(server: EmbeddedServer) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        server.url,
        headers={"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT),
        connector=aiohttp.TCPConnector(limit=0),
    )


class _Slot(msgspec.Struct):
    is_processing: bool


async def _busy(http: aiohttp.ClientSession) -> bool:
    async with http.get("/slots") as reply:
        return any(slot.is_processing for slot in msgspec.json.decode(await reply.read(), type=list[_Slot]))


def _piece_seed(seed: int | None, piece: int) -> int | None:
    """The call's own seed for the first piece; later ones differ, or they would repeat the first one's draws."""
    return None if seed is None else (seed + piece * 0x9E3779B1) % (2**32 - 1)
