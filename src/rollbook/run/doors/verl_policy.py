"""verl's own engines as a policy: its `LLMServerClient` takes token ids and gives token ids with logprobs.

Rules: logprobs are asked for with every request, and a reply without them is an `engine_contract` failure; their kind
is that of verl's default, ``logprobs_mode: processed_logprobs``. Versions are verl's global steps, where the reply says
that all its tokens are of one; a reply over two says no more than its first and last, so it counts as not known.
verl's client names no seed: each request is drawn anew. Nothing of verl is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from rollbook.errors import UsageError
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.trace import Finish, LogprobKind, Reason, Sampling
from rollbook.trace.ending import RolloutFailure

__all__ = ["ServerClient", "TokenReply", "VerlPolicy", "sampling_of"]


class TokenReply(Protocol):
    """What of verl's `TokenOutput` is used."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None
    extra_fields: dict[str, Any]


class ServerClient(Protocol):
    """What of verl's `LLMServerClient` is used."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenReply: ...


class VerlPolicy:
    """Samples through verl's client; verl brings the engines up and changes their weights."""

    def __init__(
        self, client: ServerClient, stop_ids: frozenset[int], *, context_length: int | None, name: str = "verl"
    ) -> None:
        """`stop_ids`: tokens that end a turn. `context_length`: tokens of prompt and reply; None: not known."""
        self._client, self._stop_ids = client, stop_ids
        self._info = PolicyInfo(
            name=name, engine="verl", context_length=context_length, logprob_kind=LogprobKind.PROCESSED
        )

    @property
    def info(self) -> PolicyInfo:
        return self._info

    async def start(self) -> None:
        """Nothing to bring up."""

    async def close(self) -> None:
        """Nothing to free: the engines are verl's."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        ends = self._stop_ids | set(sampling.stop_token_ids)
        reply = await self._client.generate(
            session, prompt_ids=prompt.tolist(), sampling_params=_parameters(sampling, ends)
        )
        ids = reply.token_ids
        if ids and reply.log_probs is None:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, "verl gave tokens without logprobs")
        if reply.stop_reason == "aborted":
            finish = Finish.ABORT
        else:
            finish = Finish.STOP if ids and ids[-1] in ends else Finish.LENGTH
        return Completion(
            token_ids=np.array(ids, np.int32),
            logprobs=np.array(reply.log_probs or [], np.float32),
            logprob_kind=LogprobKind.PROCESSED,
            finish=finish,
            engine_finish=reply.stop_reason or "",
            versions=_versions(reply.extra_fields, len(ids)),
        )


def _parameters(sampling: Sampling, ends: frozenset[int] | set[int]) -> dict[str, Any]:
    if sampling.stop or sampling.grammar is not None:
        raise UsageError("verl's engines are asked by token ids: leave out stop strings and grammar")
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": sorted(ends),
        "logprobs": True,
    }


def _versions(extra: Mapping[str, Any], tokens: int) -> tuple[tuple[int, int], ...]:
    first, last = extra.get("min_global_steps"), extra.get("max_global_steps")
    if not tokens or first is None or first != last:
        return ()
    return ((int(first), tokens),)


_FIELDS = ("temperature", "top_p", "top_k", "repetition_penalty")


def sampling_of(asked: Mapping[str, Any], sampling: Sampling) -> Sampling:
    """`sampling` with what verl asks for (its configuration's temperature, top_p, top_k, repetition_penalty)."""
    given = {name: asked[name] for name in _FIELDS if asked.get(name) is not None}
    if "top_k" in given:
        given["top_k"] = max(int(given["top_k"]), 0)  # verl says -1 for all
    changed: Sampling = msgspec.structs.replace(sampling, **given)
    return changed
