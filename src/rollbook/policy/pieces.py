"""A generation of llama.cpp's server, asked for in pieces and put together: shared by the embedded engine and by a
remote server.

Rules. Ids and logprobs come from one reply and are aligned by id; what the engine leaves out is scored by a second
request to it, up to `MAX_RESCORED` tokens a reply, and beyond that the call is refused. The server goes on with a
plain request whose client has left, so a generation is asked for in pieces of `PIECE` tokens, each continuing the one
before from the cache: a cancelled generation ends with its piece. (Stop strings and grammars do not carry over a cut,
so those generations are asked for whole.) A piece has its own seed, made from the call's, so equal calls get equal
tokens where the engine serves one at a time: rounding depends on what else is in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np

from rollbook.policy.align import align, checked_logprob
from rollbook.policy.http import HttpClient
from rollbook.policy.inner_error import read_body
from rollbook.policy.llamacpp_wire import FINISHES, Reply, completion_body, refusal_of, rescore_body
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.policy.remote import session_headers
from rollbook.policy.stopping import checked_finish
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["MAX_RESCORED", "PIECE", "PieceSampler"]

MAX_RESCORED = 64
"""Tokens of one reply that may be scored by a second request."""
PIECE = 64
"""Tokens asked for at once; what a cancelled generation may still cost."""
FIRST_LIST = 1024
"""Alternatives asked for when rescoring, before the whole vocabulary is."""


@dataclass(slots=True)
class _Generation:
    """One call's pieces, put together."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[np.ndarray[Any, np.dtype[np.float32]]] = field(default_factory=list[Any])
    replies: list[Reply] = field(default_factory=list[Reply])


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSampler:
    """Samples over one server's ``/completion`` route."""

    http: HttpClient
    """Open."""
    stop_ids: frozenset[int]
    """Tokens that end a generation."""
    vocabulary: int
    """Ids that the model has."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, limit: int, session: str) -> Completion:
        """Up to `limit` tokens behind `prompt`; versions and the client's own queue are the caller's to add. Raises
        `RolloutFailure`."""
        start: list[int] = prompt.tolist()
        headers = session_headers(session)
        generation = await self._generate(start, sampling, limit, headers)
        logprobs = np.concatenate(generation.logprobs)
        rescored = np.flatnonzero(np.isnan(logprobs)).astype(np.int32)
        scores = await self._rescore(start, generation.tokens, rescored.tolist(), headers)
        for at, (value, _) in scores.items():
            logprobs[at] = value
        first, final = generation.replies[0], generation.replies[-1]
        return Completion(
            token_ids=np.array(generation.tokens, np.int32),
            logprobs=logprobs,
            rescored=rescored,
            logprob_kind=LogprobKind.RAW,
            finish=self._finish(generation, sampling, limit),
            engine_finish=final.stop_type,
            prompt_tokens=first.timings.cache_n + first.timings.prompt_n,
            cached_tokens=first.timings.cache_n,
            tries=len(generation.replies) + sum(requests for _, requests in scores.values()),
            prefill=sum(reply.timings.prompt_ms for reply in generation.replies) / 1000,
            decode=sum(reply.timings.predicted_ms for reply in generation.replies) / 1000,
        )

    def _finish(self, generation: _Generation, sampling: Sampling, limit: int) -> Finish:
        """Raises `RolloutFailure` (`engine_contract`), at the limit too where an id ended it that none of ours is."""
        word, last = generation.replies[-1].stop_type, generation.tokens[-1]
        said = FINISHES.get(word, Finish.ERROR)
        if said is Finish.STOP and last not in self.stop_ids:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine stopped by {word!r} behind id {last}")
        tokens = len(generation.tokens)
        return checked_finish(said, word, last=last, tokens=tokens, limit=limit, ends=self.stop_ids, stop=sampling.stop)

    async def _generate(
        self, prompt: list[int], sampling: Sampling, limit: int, headers: dict[str, str]
    ) -> _Generation:
        whole = bool(sampling.stop or sampling.grammar)
        done = _Generation()
        while True:
            count = limit if whole else min(PIECE, limit - len(done.tokens))
            seed = _piece_seed(sampling.seed, len(done.replies))
            sent = prompt + done.tokens
            body = completion_body(sent, sampling, limit=count, seed=seed, time_limit=self.http.address.timeout)
            reply = await self.post(body, headers)
            reply.check(len(sent), count)
            if not reply.tokens:
                raise RolloutFailure(Reason.ENGINE_CONTRACT, "the reply holds no tokens")
            done.replies.append(reply)
            done.tokens += reply.tokens
            done.logprobs.append(align(reply.tokens, reply.entries).logprobs)
            if reply.stop_type != "limit" or len(done.tokens) >= limit or reply.tokens[-1] in self.stop_ids:
                return done

    async def _rescore(
        self, prompt: list[int], tokens: list[int], missing: Sequence[int], headers: dict[str, str]
    ) -> dict[int, tuple[float, int]]:
        """The logprobs of `missing` positions, from the same engine, and how many requests each took. Raises
        `RolloutFailure` (`engine_contract`)."""
        if len(missing) > MAX_RESCORED:
            detail = f"the engine left out {len(missing)} of {len(tokens)} logprobs, more than {MAX_RESCORED}"
            raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
        return {at: await self.score(prompt + tokens[:at], tokens[at], headers) for at in missing}

    async def score(self, prefix: list[int], token: int, headers: dict[str, str] | None = None) -> tuple[float, int]:
        """The logprob of `token` behind `prefix`, and how many requests that took. Raises `RolloutFailure`
        (`engine_contract`)."""
        for requests, listed in enumerate((min(FIRST_LIST, self.vocabulary), self.vocabulary), 1):
            reply = await self.post(rescore_body(prefix, listed, self.http.address.timeout), headers)
            reply.check(len(prefix), 1)
            if (found := reply.listed(token)) is not None:
                return checked_logprob(found), requests
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine gives no logprob for id {token}")

    async def post(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
        """One request. Raises `RolloutFailure`, and `ConfigError` where the engine refuses what was asked."""
        reply = await self.http.send("POST", "/completion", body, headers=headers)
        if reply.status != HTTPStatus.OK:
            raise refusal_of(reply)
        return read_body(reply, Reply, refusal_of)


def _piece_seed(seed: int | None, piece: int) -> int | None:
    """The call's own seed for the first piece; later ones differ, or they would repeat the first one's draws."""
    return None if seed is None else (seed + piece * 0x9E3779B1) % (2**32 - 1)
