"""A generation of llama.cpp's server, asked for in pieces and put together: shared by the embedded engine and by a
remote server.

Rules. Ids and logprobs come from one reply and are aligned by id; what the engine leaves out is scored by a second
request to it, up to `MAX_RESCORED` tokens a reply, and beyond that the call is refused. The server goes on with a
plain request whose client has left, so a generation is asked for in pieces of `PIECE` tokens, each continuing the one
before from the cache: a cancelled generation ends with its piece. (Stop strings and grammars do not carry over a cut,
so those generations are asked for whole.) A piece has its own seed, made from the call's, so equal calls get equal
tokens where the engine serves one at a time: rounding depends on what else is in its batch. With a gate, each piece has
the version that it was let in with, and a missing logprob is scored by the weights that sampled the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import numpy as np

from rollbook.policy.align import align, checked_logprob
from rollbook.policy.gate import Aborted, WeightGate
from rollbook.policy.http import EngineAddress, HttpReply
from rollbook.policy.inner_error import read_body
from rollbook.policy.llamacpp_wire import FINISHES, Reply, completion_body, refusal_of, rescore_body
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.policy.remote import session_headers
from rollbook.policy.stopping import checked_finish
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["MAX_RESCORED", "PIECE", "PieceSampler", "Sender"]

MAX_RESCORED = 64
"""Tokens of one reply that may be scored by a second request."""
PIECE = 64
"""Tokens asked for at once; what a cancelled generation may still cost."""
FIRST_LIST = 1024
"""Alternatives asked for when rescoring, before the whole vocabulary is."""


class Sender(Protocol):
    """What sends a request: `HttpClient`, or what stands before one."""

    @property
    def address(self) -> EngineAddress: ...

    async def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> HttpReply: ...


@dataclass(slots=True)
class _Generation:
    """One call's pieces, put together."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[np.ndarray[Any, np.dtype[np.float32]]] = field(default_factory=list[Any])
    replies: list[Reply] = field(default_factory=list[Reply])
    versions: list[int | None] = field(default_factory=list[int | None])
    """Of each reply; None: there is no gate that knows it."""
    rescored: list[int] = field(default_factory=list[int])
    rescoring: int = 0
    """Requests that scored them."""
    aborted: bool = False

    def spans(self) -> tuple[tuple[int, int], ...]:
        """(version, tokens) of the replies; empty where no version is known."""
        found: list[tuple[int, int]] = []
        for version, reply in zip(self.versions, self.replies, strict=True):
            if version is None:
                return ()
            before = found.pop()[1] if found and found[-1][0] == version else 0
            found.append((version, before + len(reply.tokens)))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSampler:
    """Samples over one server's ``/completion`` route."""

    http: Sender
    """Open."""
    stop_ids: frozenset[int]
    """Tokens that end a generation."""
    vocabulary: int
    """Ids that the model has."""
    gate: WeightGate | None = None
    """Through which each piece goes; None: the weights never change, or nobody here knows of it."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, limit: int, session: str) -> Completion:
        """Up to `limit` tokens behind `prompt`; versions and the client's own queue are the caller's to add. Raises
        `RolloutFailure`."""
        start: list[int] = prompt.tolist()
        headers = session_headers(session)
        async with nullcontext() if self.gate is None else self.gate.generation():
            done = await self._generate(start, sampling, limit, headers)
        if not done.replies:
            return Completion(
                token_ids=np.zeros(0, np.int32),
                logprobs=np.zeros(0, np.float32),
                logprob_kind=LogprobKind.RAW,
                finish=Finish.ABORT,
            )
        first, final = done.replies[0], done.replies[-1]
        return Completion(
            token_ids=np.array(done.tokens, np.int32),
            logprobs=np.concatenate(done.logprobs),
            rescored=np.array(done.rescored, np.int32),
            logprob_kind=LogprobKind.RAW,
            finish=Finish.ABORT if done.aborted else self._finish(done, sampling, limit),
            engine_finish=final.stop_type,
            versions=done.spans(),
            prompt_tokens=first.timings.cache_n + first.timings.prompt_n,
            cached_tokens=first.timings.cache_n,
            tries=len(done.replies) + done.rescoring,
            prefill=sum(reply.timings.prompt_ms for reply in done.replies) / 1000,
            decode=sum(reply.timings.predicted_ms for reply in done.replies) / 1000,
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
            try:
                async with self._let_in() as version:
                    reply = await self.post(body, headers)
                    reply.check(len(sent), count)
                    if not reply.tokens:
                        raise RolloutFailure(Reason.ENGINE_CONTRACT, "the reply holds no tokens")
                    logprobs = await self._rescored(sent, reply, headers, done)
            except Aborted:
                done.aborted = True
                return done
            done.replies.append(reply)
            done.tokens += reply.tokens
            done.logprobs.append(logprobs)
            done.versions.append(version)
            if reply.stop_type != "limit" or len(done.tokens) >= limit or reply.tokens[-1] in self.stop_ids:
                return done

    def _let_in(self) -> AbstractAsyncContextManager[int | None]:
        return nullcontext() if self.gate is None else self.gate.piece()

    async def _rescored(
        self, sent: list[int], reply: Reply, headers: dict[str, str], done: _Generation
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The reply's logprobs; those that it left out are asked for, from the same engine, and noted in `done`.
        Raises `RolloutFailure` (`engine_contract`)."""
        logprobs = align(reply.tokens, reply.entries).logprobs
        missing: list[int] = np.flatnonzero(np.isnan(logprobs)).tolist()
        if len(missing) + len(done.rescored) > MAX_RESCORED:
            detail = (
                f"the engine left out {len(missing) + len(done.rescored)} of {len(done.tokens) + len(reply.tokens)} "
                f"logprobs, more than {MAX_RESCORED}"
            )
            raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
        for at in missing:
            logprobs[at], requests = await self.score(sent + reply.tokens[:at], reply.tokens[at], headers)
            done.rescored.append(len(done.tokens) + at)
            done.rescoring += requests
        return logprobs

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
