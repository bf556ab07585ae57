"""SGLang over its own ``/generate`` route.

Rules. One sample is one request. The server is refused at the start where it would cut prompts silently, or has
sampling defaults that a request cannot undo. Each request has a name that no other request's name begins with, for an
abort takes every request whose name begins like its own: ``<rollout>.<client><n>.``, the separator at the end. A
request that is cancelled, or that its client gave up on, is aborted by that name: the server itself looks for a closed
connection only every few seconds. Versions are the engine's spans; where an older server gives one label only, it
counts if nothing changed between the last label before the request and the reply's.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

import numpy as np

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.experts import experts_of_shape
from rollbook.policy.http import HttpClient
from rollbook.policy.logprob_kind import LISTED, Listed, find_kind
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.policy.remote import (
    GREETING_SECONDS,
    RemoteClient,
    RemoteConfig,
    context_of,
    room_for,
    served_model,
    session_headers,
)
from rollbook.policy.sglang_wire import (
    ModelInfo,
    Reply,
    ServerInfo,
    check_defaults,
    check_sampling,
    generate_body,
    kind_for,
    probe_body,
    refusal_of,
)
from rollbook.policy.stopping import finish_of
from rollbook.policy.versions import spans_of, version_of
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["SglangPolicy"]

_Info = TypeVar("_Info")

ABORT_SECONDS = 2.0
"""How long an abort may hold up a cancellation."""


class SglangPolicy(RemoteClient):
    """Samples a model that an SGLang server runs."""

    def __init__(self, config: RemoteConfig, *, experts: tuple[int, int] | None = None) -> None:
        """`experts`: layers and experts a token, for a server that returns the routed experts: it leaves their shape
        out. None: they are not asked for."""
        super().__init__(config)
        self._experts = experts
        self._label: str | None = None
        self._client = secrets.token_hex(4)
        self._numbers = itertools.count()

    async def _greet(self, http: HttpClient) -> PolicyInfo:
        model = await served_model(http, self._config)
        server = await _ask(http, ("/server_info", "/get_server_info"), ServerInfo)
        weights = await _ask(http, ("/model_info", "/get_model_info"), ModelInfo)
        self._check_server(server, weights)
        self._label = weights.weight_version
        offered = [each for each in (model.max_model_len, server.max_req_input_len) if each is not None]
        version = f"SGLang {server.version}".strip()
        return PolicyInfo(
            name=self._config.name,
            engine=f"{version} (seeds not kept to)" if server.enable_deterministic_inference is False else version,
            context_length=context_of(self._config, min(offered, default=None)),
            logprob_kind=await find_kind(lambda sampling: self._probe(http, sampling)),
        )

    def _check_server(self, server: ServerInfo, weights: ModelInfo) -> None:
        name = self._config.name
        if server.allow_auto_truncate:
            raise UsageError(
                f"{name} cuts prompts that are too long without a word: start it without --allow-auto-truncate"
            )
        if not weights.is_generation:
            raise UsageError(f"{name} serves an embedding model, which generates nothing")
        if self._experts is not None and server.enable_return_routed_experts is False:
            raise UsageError(f"{name} does not return routed experts: start it with --enable-return-routed-experts")
        try:
            check_defaults(weights)
        except ConfigError as error:
            raise UsageError(f"{name}: {error}") from error

    async def _probe(self, http: HttpClient, sampling: Sampling) -> Listed:
        prompt = [min(self._config.stop_ids, default=1)]
        body = probe_body(prompt, sampling, listed=LISTED, rid=self._name("start"))
        reply = await http.send("POST", "/generate", body, seconds=GREETING_SECONDS)
        if reply.status != HTTPStatus.OK:
            raise refusal_of(reply)
        return Reply.of(reply).listed()

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        check_sampling(sampling)
        limit = room_for(len(prompt), sampling, self.info.context_length)
        known, told = self._label, self._link.version
        rid = self._name(session)
        body = generate_body(
            prompt.tolist(),
            sampling,
            limit=limit,
            stop_ids=self._config.stop_ids,
            rid=rid,
            experts=self._experts is not None,
        )
        reply = await self._post(body, rid, session)
        completion = self._completion(reply, sampling, limit)
        return replace(completion, versions=self._versions(reply, known, told))

    def _name(self, session: str) -> str:
        return f"{session}.{self._client}{next(self._numbers)}."

    async def _post(self, body: dict[str, Any], rid: str, session: str) -> Reply:
        http = self._link.http
        try:
            reply = await http.send("POST", "/generate", body, headers=session_headers(session))
        except asyncio.CancelledError:
            await _abort(http, rid)
            raise
        except RolloutFailure as gave_up:
            if gave_up.reason is Reason.ENGINE_TIMEOUT:
                await _abort(http, rid)
            raise
        if reply.status != HTTPStatus.OK:
            raise refusal_of(reply)
        return Reply.of(reply)

    def _completion(self, reply: Reply, sampling: Sampling, limit: int) -> Completion:
        meta, size = reply.meta_info, len(reply.output_ids)
        logprobs = reply.logprobs()
        finish = self._finish(reply, sampling, limit)
        experts = None
        if self._experts is not None and size:
            if meta.routed_experts is None:
                raise RolloutFailure(Reason.ENGINE_CONTRACT, "the reply brings no routed experts")
            experts = experts_of_shape(meta.routed_experts, size, self._experts)
        return Completion(
            token_ids=np.array(reply.output_ids, np.int32),
            logprobs=logprobs,
            logprob_kind=kind_for(self.info.logprob_kind, sampling),
            finish=finish,
            engine_finish=str(meta.finish_reason),
            prompt_tokens=meta.prompt_tokens,
            prompt_ids=None if reply.prompt_token_ids is None else np.array(reply.prompt_token_ids, np.int32),
            cached_tokens=reply.cached_tokens,
            routed_experts=experts,
            queue=meta.queue_time,
        )

    def _finish(self, reply: Reply, sampling: Sampling, limit: int) -> Finish:
        ids, reason = reply.output_ids, reply.meta_info.finish_reason
        return finish_of(
            reason.type,
            last=ids[-1] if ids else None,
            tokens=len(ids),
            limit=limit,
            ends=self._config.stop_ids.union(sampling.stop_token_ids),
            matched=None if isinstance(reason.matched, list) else reason.matched,
            stop=sampling.stop,
        )

    def _versions(self, reply: Reply, known: str | None, told: int | None) -> tuple[tuple[int, int], ...]:
        """`known`, `told`: the label and the version that stood when the request was sent."""
        meta, size = reply.meta_info, len(reply.output_ids)
        if meta.weight_version is not None:
            self._label = meta.weight_version
        if not size:
            return ()
        if meta.weight_versions is not None:
            return spans_of(((span.version, span.start, span.end) for span in meta.weight_versions), size)
        if meta.weight_version is None:
            return () if told is None else ((told, size),)
        version = version_of(meta.weight_version) if meta.weight_version == known else None
        return () if version is None else ((version, size),)


async def _abort(http: HttpClient, rid: str) -> None:
    """End one request at the engine; where that fails, the engine still sees the closed connection."""
    with suppress(RolloutFailure, UsageError):
        await http.send("POST", "/abort_request", {"rid": rid, "abort_all": False}, seconds=ABORT_SECONDS)


async def _ask(http: HttpClient, paths: Sequence[str], kind: type[_Info]) -> _Info:
    """The first of `paths` that the server has."""
    for path in paths[:-1]:
        reply = await http.send("GET", path, seconds=GREETING_SECONDS)
        if reply.status == HTTPStatus.OK:
            return reply.decode(kind)
        if reply.status != HTTPStatus.NOT_FOUND:
            break
    return (await http.get(paths[-1], seconds=GREETING_SECONDS)).decode(kind)
