"""One question to a judge, through the policy protocol: rendered, sampled, held to the token contract, read strictly.

Order: a slot of the resource ``judge`` is taken for each request; an engine that is busy is waited out, and closes the
slots for everybody; a request that failed in transit is made again, so often as was asked for; nothing else is ever
asked again. What comes back is a reply or a `JudgeFailed` with its kind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import msgspec

from rollbook.errors import ModelError, RollbookError, boundary
from rollbook.policy.endpoint import TextEndpoint
from rollbook.policy.protocol import EngineBusy, check_completion
from rollbook.policy.stopping import checked_finish
from rollbook.rewards.scorers.judgement import JudgeError, JudgeFailed, Judges, Speaker
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.message import Message

__all__ = ["Asked", "Reply", "ask"]

BUSY_SECONDS = 1.0
"""The wait where an engine is busy and does not say for how long."""
MAX_BUSY = 60
"""So many refusals in a row are an engine that cannot be reached."""
_KINDS = {
    Reason.ENGINE_TIMEOUT: JudgeError.TIMEOUT,
    Reason.ENGINE_UNREACHABLE: JudgeError.UNREACHABLE,
    Reason.RATE_LIMITED: JudgeError.UNREACHABLE,
    Reason.ENGINE_CONTRACT: JudgeError.CONTRACT,
    Reason.CONTEXT_OVERFLOW: JudgeError.TOO_LONG,
}
_IN_TRANSIT = (JudgeError.TIMEOUT, JudgeError.UNREACHABLE)


class _PolicyError(RollbookError):
    """Something that is no error of ours came out of a judge's policy."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a judge said."""

    message: Message
    finish: Finish
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(slots=True)
class Asked:
    """How the asking went, kept up while it goes on."""

    tries: int = 0
    seconds: float = 0.0


async def ask(
    speaker: Speaker,
    messages: Sequence[Message],
    sampling: Sampling,
    *,
    session: str,
    seconds: float,
    retries: int,
    judges: Judges | None,
    asked: Asked,
) -> Reply:
    """Ask and get a reply. `seconds`: of one request. `retries`: requests that are made again after a failure in
    transit. Raises `JudgeFailed`."""
    left, busy = retries, 0
    while True:
        wait = 0.0
        try:
            async with AsyncExitStack() as stack:
                if judges is not None:
                    await stack.enter_async_context(judges.slot())
                return await _timed(speaker, messages, sampling, session, seconds, asked)
        except EngineBusy as refused:
            busy += 1
            if busy >= MAX_BUSY:
                raise JudgeFailed(JudgeError.UNREACHABLE, f"turned away {busy} times: {refused.detail}") from refused
            wait = BUSY_SECONDS if refused.retry_after is None else refused.retry_after
        except JudgeFailed as failure:
            if failure.kind not in _IN_TRANSIT or not left:
                raise
            left -= 1
        if wait and judges is not None:
            judges.pause(wait)
        elif wait:
            await asyncio.sleep(wait)


async def _timed(
    speaker: Speaker, messages: Sequence[Message], sampling: Sampling, session: str, seconds: float, asked: Asked
) -> Reply:
    """One request within its time, with every failure but a busy engine as a `JudgeFailed`."""
    started = time.monotonic()
    asked.tries += 1
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await _once(speaker, messages, sampling, session)
    except TimeoutError:
        raise JudgeFailed(JudgeError.TIMEOUT, f"no reply within {seconds:g} s") from None
    except (JudgeFailed, EngineBusy):
        raise
    except RolloutFailure as failure:
        raise JudgeFailed(_KINDS.get(failure.reason, JudgeError.BROKEN), failure.detail) from failure
    except ModelError as error:
        raise JudgeFailed(JudgeError.TEMPLATE, error) from error
    except RollbookError as error:
        raise JudgeFailed(JudgeError.BROKEN, error) from error
    finally:
        asked.seconds += time.monotonic() - started


async def _once(speaker: Speaker, messages: Sequence[Message], sampling: Sampling, session: str) -> Reply:
    with boundary("the judge", _PolicyError):
        if speaker.text is not None:
            reply = await _of_text(speaker.text, messages, sampling, session)
        else:
            reply = await _of_tokens(speaker, messages, sampling, session)
    if reply.finish is Finish.ABORT:
        raise JudgeFailed(JudgeError.UNREACHABLE, "the engine aborted the reply")
    return reply


async def _of_text(endpoint: TextEndpoint, messages: Sequence[Message], sampling: Sampling, session: str) -> Reply:
    got = await endpoint.reply(messages, (), sampling, session)
    if got.finish is Finish.ERROR:
        raise JudgeFailed(JudgeError.REFUSED, f"the endpoint stopped the reply: {got.engine_finish}")
    if got.calls:
        raise JudgeFailed(JudgeError.MALFORMED, "it calls a tool; it was offered none")
    return Reply(got.message, got.finish, got.prompt_tokens, got.completion_tokens)


async def _of_tokens(speaker: Speaker, messages: Sequence[Message], sampling: Sampling, session: str) -> Reply:
    renderer = speaker.renderer
    rendering = renderer.open(messages, ())
    prompt = rendering.token_ids
    sampling = _within(speaker, sampling, len(prompt))
    done = await speaker.policy.sample(prompt, sampling, session=session)
    check_completion(done, prompt, sampling)
    ids = done.token_ids
    finish = checked_finish(
        done.finish,
        done.engine_finish,
        last=int(ids[-1]) if len(ids) else None,
        tokens=len(ids),
        limit=sampling.max_tokens or 0,
        ends=renderer.info.stop_ids.union(sampling.stop_token_ids),
        stop=sampling.stop,
    )
    parsed = renderer.parse(
        ids,
        (),
        inside_reasoning=rendering.inside_reasoning,
        cut=finish in (Finish.LENGTH, Finish.ABORT),
        call_prefix="judge_",
    )
    return replace(Reply(parsed.message, finish), prompt_tokens=len(prompt), completion_tokens=len(ids))


def _within(speaker: Speaker, sampling: Sampling, prompt: int) -> Sampling:
    """No more tokens than the context has room for. Raises `JudgeFailed` where it has none."""
    length = speaker.policy.info.context_length
    if length is None:
        return sampling
    room = length - prompt
    if room < 1:
        raise JudgeFailed(JudgeError.TOO_LONG, f"the question of {prompt} tokens leaves no room in {length}")
    return msgspec.structs.replace(sampling, max_tokens=min(sampling.max_tokens or room, room))
