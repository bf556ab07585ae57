"""vLLM over HTTP: one request, one plain (not streamed) reply.

Rules: nothing is retried or waited for here; each failure is raised once, as its cause. What the server says of itself
(model, context, version, kind of logprobs, which route it offers) is asked at the start. A cancelled call closes its
connection, and vLLM then aborts the request. An abort by the engine is a reply, with the tokens so far.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec
import numpy as np

from rollbook.policy.http import HttpClient
from rollbook.policy.logprob_kind import PROBES, kind_of
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds, check_completion
from rollbook.policy.remote import (
    GREETING_SECONDS,
    RemoteClient,
    RemoteConfig,
    context_of,
    room_for,
    served_model,
    session_headers,
)
from rollbook.policy.vllm_reply import completion_of, listed_logprobs, refusal_of
from rollbook.policy.vllm_wire import Asked, Route, check_sampling, probe_body, request_body
from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["Route", "VllmPolicy"]

_NOT_OFFERED = (
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
)


class _Version(msgspec.Struct):
    version: str


class VllmPolicy(RemoteClient):
    """Samples a model that a vLLM server runs."""

    def __init__(self, config: RemoteConfig, *, route: Route | None = None) -> None:
        """`route`: None takes the one made for ids where it is offered."""
        super().__init__(config)
        self._forced = route
        self._route = Route.GENERATE
        self._model = ""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        asked = self._asked(prompt, sampling, room_for(len(prompt), sampling, self.info.context_length), self.info)
        check_sampling(sampling)
        body = request_body(asked, self._model, self._route)
        reply = await self._link.http.send("POST", self._route, body, headers=session_headers(session))
        if reply.status != HTTPStatus.OK:
            raise refusal_of(reply)
        return completion_of(reply, self._route, asked)

    def _asked(self, prompt: TokenIds, sampling: Sampling, limit: int, info: PolicyInfo | None) -> Asked:
        return Asked(
            prompt=prompt,
            wire=msgspec.json.encode(prompt.tolist()),
            sampling=sampling,
            limit=limit,
            stop_ids=self._config.stop_ids,
            kind=LogprobKind.UNKNOWN if info is None else info.logprob_kind,
            version=self._link.version,
        )

    async def _greet(self, http: HttpClient) -> PolicyInfo:
        model = await served_model(http, self._config)
        version = (await http.get("/version", seconds=GREETING_SECONDS)).decode(_Version).version
        self._model = model.id
        self._route = Route.GENERATE if self._forced is None else self._forced
        plain = await self._listed(http, PROBES[0])
        if plain is None:
            self._route = Route.COMPLETIONS
            plain = await self._listed(http, PROBES[0])
        tempered, cut = [await self._listed(http, probe) for probe in PROBES[1:]]
        return PolicyInfo(
            name=self._config.name,
            engine=f"vLLM {version} ({self._route})",
            context_length=context_of(self._config, model.max_model_len),
            logprob_kind=kind_of(plain or {}, tempered or {}, cut or {}),
        )

    async def _listed(self, http: HttpClient, probe: Sampling) -> dict[int, float] | None:
        """What the server lists for one token; None where it does not offer the route and another may be tried."""
        prompt = np.array([min(self._config.stop_ids, default=0)], np.int32)
        asked = self._asked(prompt, probe, 1, None)
        body = probe_body(asked, self._model, self._route)
        reply = await http.send("POST", self._route, body, seconds=GREETING_SECONDS)
        if reply.status in _NOT_OFFERED and self._route is Route.GENERATE and self._forced is None:
            return None
        if reply.status != HTTPStatus.OK:
            raise refusal_of(reply)
        check_completion(completion_of(reply, self._route, asked), prompt, probe)
        return listed_logprobs(reply, self._route)
