"""One turn's sampling: the requests that it takes, and what each came to.

Rules: one request is one call of the record, a failed one too, but for those that the engine turned away for load: they
are waited out (the engine's slots close for everybody, Retry-After is the least wait) and counted as tries of the
request that got through. A request that failed in transit is made again out of one budget, which all attempts of a
scheduled rollout share, so it adds to the retries of whole attempts and multiplies with nothing; a broken contract is
never asked again. What the engine aborted (a weight update) goes on behind its own tokens as a further segment of
the same turn; behind an end-of-turn token nothing can follow, and under stop strings or a grammar, which do not carry
over a cut, the turn is asked again from the start.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RollbookError, boundary
from rollbook.policy.protocol import Completion, EngineBusy, TokenIds, check_completion
from rollbook.policy.stopping import check_stop_string, checked_finish
from rollbook.rollout.backoff import jittered
from rollbook.rollout.limits import Allowance
from rollbook.rollout.loaded import derive_seed
from rollbook.rollout.state import RolloutState
from rollbook.rollout.stopwatch import Part
from rollbook.trace import Call, Finish, Reason, RolloutFailure, Sampling
from rollbook.trace.columns import Column

__all__ = ["Answer", "Request", "Segment", "ask", "failing", "joined", "of_policy", "patiently", "record_failure"]

_Got = TypeVar("_Got")
_Item = TypeVar("_Item", bound=np.generic)

IN_TRANSIT = frozenset({Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT})
"""Failures of a request that say nothing of the next one."""
EMPTY_ABORTS = 8
"""So many aborts in a row without a token are an engine that is going away."""
MAX_SEGMENTS = 256
"""So many aborts within one turn are no weight updates."""


class _PolicyError(RollbookError):
    """Something that is no error of ours came out of a policy."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was sent."""

    sampling: Sampling
    started: float
    """Seconds since the rollout began."""
    tries: int = 1
    """Requests that it took, those that the engine turned away included."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What one request gave."""

    completion: Completion
    finish: Finish
    request: Request
    wall: float
    """Seconds."""
    tries: int
    """Requests that it took, those that the engine turned away included."""


@dataclass(slots=True)
class Answer:
    """The segments of one turn, in order."""

    segments: list[Segment] = field(default_factory=list[Segment])
    failure: BaseException | None = None
    """What broke off behind the last segment, a deadline or a cancellation too; None: the turn is whole."""

    @property
    def token_ids(self) -> TokenIds:
        """All sampled ids: int32, shape (tokens,)."""
        return joined([each.completion.token_ids for each in self.segments])

    @property
    def finish(self) -> Finish:
        """How the last segment ended."""
        return self.segments[-1].finish


async def ask(state: RolloutState, prompt: Column, allowance: Allowance) -> Answer:
    """Sample one turn behind `prompt`, up to `allowance`; the ids of a segment that is continued are added to it.
    Raises `RolloutFailure` where nothing was sampled."""
    answer, left, empty = Answer(), allowance.tokens, 0
    while True:
        try:
            once = partial(_once, state, prompt.view, Allowance(left, allowance.reason), len(answer.segments))
            segment = await patiently(state, once)
            if _starts_again(state, segment):
                continue
        except (RollbookError, asyncio.CancelledError) as failure:
            if not answer.segments:
                raise
            answer.failure = failure
            return answer
        sampled = len(segment.completion.token_ids)
        answer.segments.append(segment)
        left -= sampled
        empty = 0 if sampled else empty + 1
        if segment.finish is not Finish.ABORT:
            return answer
        if left == 0:
            return _cut(answer)
        if empty == EMPTY_ABORTS or len(answer.segments) == MAX_SEGMENTS or _ends_turn(state, segment):
            often = f"the engine aborted {len(answer.segments)} times: {segment.completion.engine_finish}"
            answer.failure = RolloutFailure(Reason.ENGINE_UNREACHABLE, often)
            return answer
        prompt.extend(segment.completion.token_ids)
        if empty:
            with state.watch.span(Part.LIMITER):
                await asyncio.sleep(jittered(empty, random.random()))  # noqa: S311 (a wait, no secret)


def joined(parts: Sequence[npt.NDArray[_Item]]) -> npt.NDArray[_Item]:
    """What the segments of a turn gave, in order; of one alone no copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _cut(answer: Answer) -> Answer:
    """The engine aborted right at the limit: the limit cut the turn."""
    last = answer.segments[-1]
    answer.segments[-1] = Segment(last.completion, Finish.LENGTH, last.request, last.wall, last.tries)
    return answer


def _ends_turn(state: RolloutState, segment: Segment) -> bool:
    """An abort behind an end-of-turn token is no normal end, and nothing can follow that token."""
    ids = segment.completion.token_ids
    stops = state.loaded.renderer.info.stop_ids.union(state.sampling.stop_token_ids)
    return len(ids) > 0 and int(ids[-1]) in stops


def _starts_again(state: RolloutState, segment: Segment) -> bool:
    """True where the engine aborted and nothing can go on behind its tokens: they are given up, out of the budget of
    request retries. Raises `RolloutFailure` where that is used up."""
    sampling, error = segment.request.sampling, "aborted; a stop string or grammar does not carry over the cut"
    aborted = segment.finish is Finish.ABORT and len(segment.completion.token_ids) > 0
    if not aborted or not (sampling.stop or sampling.grammar is not None):
        return False
    record_failure(state, segment.request, error)
    if state.retries.left < 1:
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, error)
    state.retries.left -= 1
    return True


async def patiently(state: RolloutState, once: Callable[[int], Awaitable[_Got]]) -> _Got:
    """One request that gets through: waits while the engine is busy, and asks again after a failure in transit.
    `once` makes it, and is told how many requests it takes with those that were turned away."""
    engine, refused, failed = state.resources.engine, 0, 0
    while True:
        try:
            with state.watch.span(Part.LIMITER):
                async with engine.slot():
                    with state.watch.span(Part.CPU):
                        return await once(refused + 1)
        except EngineBusy as busy:
            engine.pause(max(busy.retry_after or 0.0, jittered(refused, random.random())))  # noqa: S311
            refused += 1
        except RolloutFailure as failure:
            if failure.reason not in IN_TRANSIT or state.stopped is not None or state.retries.left < 1:
                raise
            state.retries.left -= 1
            with state.watch.span(Part.LIMITER):
                await asyncio.sleep(jittered(failed, random.random()))  # noqa: S311
            failed, refused = failed + 1, 0


async def _once(state: RolloutState, prompt: TokenIds, allowance: Allowance, earlier: int, tries: int) -> Segment:
    """One request."""
    seed = derive_seed(state.sampling.seed or 0, len(state.trace.calls) + earlier)
    sampling = msgspec.structs.replace(state.sampling, max_tokens=allowance.tokens, seed=seed)
    request = Request(sampling, state.watch.elapsed, tries)
    with failing(state, request):
        with state.watch.span(Part.ENGINE):
            asked = partial(state.loaded.policy.sample, prompt, sampling, session=state.trace.id)
            completion = await state.within_deadline(of_policy(asked))
        wall = state.watch.elapsed - request.started
        check_completion(completion, prompt, sampling)
        # The engine's own queue is no time of the rollout's; it cannot have been longer than the call.
        state.budget.seconds -= min(max(completion.queue or 0.0, 0.0), wall)
        finish = _finish(state, completion, allowance)
    state.watch.add_engine(queue=completion.queue, prefill=completion.prefill, decode=completion.decode)
    return Segment(completion, finish, request, wall, tries + completion.tries - 1)


async def of_policy(request: Callable[[], Awaitable[_Got]]) -> _Got:
    """What a policy replies. An error of its own code is a failure like another: its call is recorded, and it loses no
    earlier segment."""
    with boundary("the policy", _PolicyError):
        return await request()


@contextmanager
def failing(state: RolloutState, request: Request) -> Generator[None]:
    """Records a request that fails, or that a deadline or a cancellation cuts off, as a call without a node; one that
    the engine turned away for load is none."""
    try:
        yield
    except EngineBusy:
        raise
    except RollbookError as error:
        record_failure(state, request, str(error))
        raise
    except asyncio.CancelledError:
        record_failure(state, request, "cancelled while it ran")
        raise


def record_failure(state: RolloutState, request: Request, error: str) -> None:
    """Enter a request that gave nothing."""
    if state.trace.sealed:
        return  # an agent left this step running behind the end of its rollout
    state.trace.add_call(
        Call(
            after=state.leaf,
            sampling=request.sampling,
            finish=Finish.ERROR,
            tries=request.tries,
            error=error,
            started=request.started,
            wall=state.watch.elapsed - request.started,
        )
    )


def _finish(state: RolloutState, completion: Completion, allowance: Allowance) -> Finish:
    """Why the generation stopped, by its tokens. Raises `RolloutFailure` (`engine_contract`) where they do not bear
    out what the engine says."""
    ids, info = completion.token_ids, state.loaded.renderer.info
    if len(ids) and int(ids.max()) >= info.vocab_size:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"id {ids.max()} is not in the vocabulary of {info.vocab_size}")
    finish = checked_finish(
        completion.finish,
        completion.engine_finish,
        last=int(ids[-1]) if len(ids) else None,
        tokens=len(ids),
        limit=allowance.tokens,
        ends=info.stop_ids.union(state.sampling.stop_token_ids),
        stop=state.sampling.stop,
    )
    if finish is Finish.STOP_STRING:
        check_stop_string(state.sampling.stop, ids, state.loaded.renderer.decode)
    return finish
