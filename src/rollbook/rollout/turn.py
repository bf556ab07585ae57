"""One turn: show the policy an observation, sample, read the reply strictly, record it.

Order: observations are recorded before any limit is looked at, so the last one is never lost; a request goes out
only where turns, time, tokens and context allow it; the reply is in the trace, and durable, before anything acts on
it. A reply that a limit cut, or that the engine aborted, is recorded and executes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from rollbook.policy.protocol import Completion, TokenIds, check_completion
from rollbook.render.protocol import RenderedMessage, Rendering, Turn
from rollbook.rollout.limits import Allowance
from rollbook.rollout.loaded import derive_seed
from rollbook.rollout.state import RolloutState, Stopped
from rollbook.rollout.stopwatch import Part
from rollbook.trace import (
    ROOT,
    Call,
    Ending,
    Finish,
    Message,
    Origin,
    Reason,
    Role,
    RolloutFailure,
    RunKind,
    Sampling,
    make_runs,
)

__all__ = ["observe", "take_turn"]


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply with its request and times."""

    completion: Completion
    finish: Finish
    sampling: Sampling
    started: float
    """Seconds since the rollout began."""
    wall: float


async def take_turn(state: RolloutState, observation: Sequence[Message]) -> Message:
    """One request and its reply, recorded. Raises `Stopped` at a limit and `RolloutFailure` where the engine
    failed."""
    rendering = observe(state, observation)
    prompt = np.concatenate((state.trace.graph.path_ids(state.leaf), rendering.prompt_ids))
    allowance = state.budget.allowance(len(prompt), state.loaded.policy.info.context_length)
    if isinstance(allowance, Ending):
        state.stop(allowance)
    reply = await _sample(state, prompt, allowance)
    with state.watch.span(Part.CPU):
        message = _commit(state, reply, rendering)
    if reply.finish is Finish.LENGTH:
        state.stop(Ending(allowance.reason, f"{len(reply.completion.token_ids)} tokens in one generation"))
    if reply.finish is Finish.ABORT:
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, f"the engine aborted: {reply.completion.engine_finish}")
    return message


def observe(state: RolloutState, observation: Sequence[Message]) -> Rendering:
    """Render and record messages that the policy did not write."""
    graph, renderer, specs = state.trace.graph, state.loaded.renderer, state.tools.specs
    with state.watch.span(Part.CPU):
        if state.leaf == ROOT:
            rendering = renderer.open(observation, specs)
            state.trace.head = msgspec.structs.replace(state.trace.head, tools_rendered=rendering.tools_rendered)
        else:
            last_id = int(graph[state.leaf].token_ids[-1])
            rendering = renderer.extend(Turn(last_id=last_id), observation, specs)
        for rendered in rendering.messages:
            state.leaf = graph.add(
                rendered.message,
                parent=state.leaf,
                origin=_origin(rendered),
                token_ids=rendered.token_ids,
                runs=rendered.runs,
            )
    return rendering


def _origin(rendered: RenderedMessage) -> Origin:
    if rendered.added:
        return Origin.SYNTHETIC
    return Origin.USER if rendered.message.role is Role.USER else Origin.ENVIRONMENT


async def _sample(state: RolloutState, prompt: TokenIds, allowance: Allowance) -> _Reply:
    """One request. A failed one is recorded as a call without a node."""
    calls = len(state.trace.calls)
    sampling = msgspec.structs.replace(
        state.sampling, max_tokens=allowance.tokens, seed=derive_seed(state.sampling.seed or 0, calls)
    )
    with state.watch.span(Part.LIMITER):
        async with state.engine.slot():
            started = state.watch.elapsed
            try:
                with state.watch.span(Part.ENGINE):
                    request = state.loaded.policy.sample(prompt, sampling, session=state.trace.id)
                    completion = await state.within_deadline(request)
                check_completion(completion, prompt, sampling)
                finish = _finish(state, completion, allowance)
            except (RolloutFailure, Stopped) as error:
                wall = state.watch.elapsed - started
                state.trace.add_call(
                    Call(
                        after=state.leaf,
                        sampling=sampling,
                        finish=Finish.ERROR,
                        error=str(error),
                        started=started,
                        wall=wall,
                    )
                )
                raise
            wall = state.watch.elapsed - started
    state.watch.add_engine(queue=completion.queue, prefill=completion.prefill, decode=completion.decode)
    state.budget.seconds -= completion.queue or 0.0
    return _Reply(completion, finish, sampling, started, wall)


def _finish(state: RolloutState, completion: Completion, allowance: Allowance) -> Finish:
    """Why the generation stopped, by its tokens: an engine's word alone is not believed."""
    matched = completion.finish is Finish.STOP_STRING and bool(state.sampling.stop)
    if matched or completion.finish not in (Finish.STOP, Finish.STOP_STRING):
        return completion.finish
    ids = completion.token_ids
    if int(ids[-1]) in state.loaded.renderer.info.stop_ids.union(state.sampling.stop_token_ids):
        return Finish.STOP
    if len(ids) >= allowance.tokens:
        return Finish.LENGTH
    raise RolloutFailure(
        Reason.ENGINE_CONTRACT, f"finish '{completion.engine_finish}' without an end-of-turn token (last id {ids[-1]})"
    )


def _commit(state: RolloutState, reply: _Reply, rendering: Rendering) -> Message:
    """Enter one reply into the trace and make it durable."""
    completion, scaffold = reply.completion, rendering.prompt_ids
    ids = completion.token_ids
    parsed = state.loaded.renderer.parse(
        ids,
        state.tools.specs,
        inside_reasoning=rendering.inside_reasoning,
        cut=reply.finish in (Finish.LENGTH, Finish.ABORT),
        call_prefix=f"call_{state.budget.turns}_",
    )
    call = Call(
        node=len(state.trace.graph) if len(ids) else None,
        after=state.leaf,
        sampling=reply.sampling,
        logprob_kind=completion.logprob_kind,
        finish=reply.finish,
        engine_finish=completion.engine_finish,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=len(ids),
        cached_tokens=completion.cached_tokens,
        tries=completion.tries,
        started=reply.started,
        wall=reply.wall,
        queue=completion.queue,
        prefill=completion.prefill,
        decode=completion.decode,
    )
    index = state.trace.add_call(call)
    if len(ids):
        state.leaf = state.trace.graph.add(
            parsed.message,
            parent=state.leaf,
            origin=Origin.POLICY,
            token_ids=np.concatenate((scaffold, ids)),
            runs=make_runs((RunKind.SCAFFOLD, len(scaffold)), (RunKind.SAMPLED, len(ids))),
            logprobs=completion.logprobs,
            rescored=completion.rescored,
            versions=make_runs(*completion.versions),
            segments=make_runs((index, len(ids))),
        )
    state.budget.turns += 1
    state.budget.tokens += len(ids)
    state.store()
    return parsed.message
