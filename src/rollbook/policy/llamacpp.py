"""A llama.cpp server over its ``/completion`` route.

Rules. How a generation is asked for is `rollbook.policy.pieces`: in pieces, for the server goes on with a request whose
client has left. It says no version of its weights, so a version is only in a completion where one was told. Several
slots may share one cache: the context that the server states is then of one slot that has it to itself.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from rollbook.policy.http import HttpClient
from rollbook.policy.llamacpp_wire import ModelMeta, check_sampling, probe_body
from rollbook.policy.logprob_kind import LISTED, Listed, find_kind
from rollbook.policy.pieces import PieceSampler
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.policy.remote import GREETING_SECONDS, RemoteClient, RemoteConfig, context_of, room_for, served_model
from rollbook.trace.call import Sampling

__all__ = ["LlamacppPolicy"]


class _Defaults(msgspec.Struct):
    n_ctx: int


class _Props(msgspec.Struct):
    default_generation_settings: _Defaults
    build_info: str = ""


class LlamacppPolicy(RemoteClient):
    """Samples a model that a llama.cpp server runs."""

    def __init__(self, config: RemoteConfig) -> None:
        super().__init__(config)
        self._vocabulary = 0

    async def _greet(self, http: HttpClient) -> PolicyInfo:
        model = await served_model(http, self._config)
        props = (await http.get("/props", seconds=GREETING_SECONDS)).decode(_Props)
        listed = (await http.get("/v1/models", seconds=GREETING_SECONDS)).decode(ModelMeta)
        self._vocabulary = listed.vocabulary(model.id)
        return PolicyInfo(
            name=self._config.name,
            engine=f"llama.cpp {props.build_info}".strip(),
            context_length=context_of(self._config, props.default_generation_settings.n_ctx),
            logprob_kind=await find_kind(lambda sampling: self._probe(http, sampling)),
        )

    async def _probe(self, http: HttpClient, sampling: Sampling) -> Listed:
        prompt = [min(self._config.stop_ids, default=1)]
        body = probe_body(prompt, sampling, LISTED, GREETING_SECONDS)
        return (await self._sampler(http).post(body)).alternatives()

    def _sampler(self, http: HttpClient) -> PieceSampler:
        return PieceSampler(http=http, stop_ids=self._config.stop_ids, vocabulary=self._vocabulary)

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        check_sampling(sampling, self._config.stop_ids)
        limit = room_for(len(prompt), sampling, self.info.context_length)
        told = self._link.version
        found = await self._sampler(self._link.http).sample(prompt, sampling, limit, session)
        return replace(
            found,
            logprob_kind=self.info.logprob_kind,
            versions=() if told is None else ((told, len(found.token_ids)),),
        )
