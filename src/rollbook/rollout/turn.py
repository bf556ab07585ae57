"""One turn: show the policy an observation, sample, read the reply strictly, record it.

Order: observations are recorded before any limit ends the rollout, so the last one is never lost; a request goes out
only where turns, time, tokens and context allow it; the reply is in the trace, and durable, before anything acts on
it. A reply that a limit cut, or that the engine aborted, is recorded and executes nothing. A reply that breaks the
token contract is an error: its call is recorded, of its tokens nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import msgspec
import numpy as np

from rollbook.errors import ModelError, RecordError, RollbookError
from rollbook.policy.protocol import Completion, TokenIds, check_completion
from rollbook.render.context import Extension, Past, Rewrite, go_on
from rollbook.render.protocol import RenderedMessage, Rendering
from rollbook.rollout.limits import Allowance
from rollbook.rollout.loaded import derive_seed
from rollbook.rollout.state import RolloutState
from rollbook.rollout.stopwatch import Part
from rollbook.trace import (
    ROOT,
    Call,
    ContextPolicy,
    Edge,
    EdgeLabel,
    Ending,
    Finish,
    Fork,
    Message,
    NodeRef,
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
class _Request:
    """One request as it was sent."""

    sampling: Sampling
    started: float
    """Seconds since the rollout began."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply with its request and times."""

    completion: Completion
    finish: Finish
    request: _Request
    wall: float


async def take_turn(state: RolloutState, observation: Sequence[Message]) -> Message:
    """One request and its reply, recorded. Raises `Stopped` at a limit and `RolloutFailure` where the engine
    failed."""
    with state.watch.span(Part.CPU):
        step = _render(state, observation, state.context)
    allowance = state.budget.allowance(_prompt_tokens(state, step), state.loaded.policy.info.context_length)
    if isinstance(allowance, Ending):
        observe(state, observation)
        state.stop(allowance)
    with state.watch.span(Part.CPU):
        _record(state, step)
        rendering = step.rendering
        prompt = np.concatenate((state.trace.graph.path_ids(state.leaf), rendering.prompt_ids))
    with state.watch.span(Part.LIMITER):
        async with state.resources.engine.slot():
            with state.watch.span(Part.CPU):
                reply = await _sample(state, prompt, allowance)
    with state.watch.span(Part.CPU):
        message = _commit(state, reply, rendering)
    if reply.finish is Finish.LENGTH:
        state.stop(Ending(allowance.reason, f"{len(reply.completion.token_ids)} tokens in one generation"))
    if reply.finish is Finish.ABORT:
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, f"the engine aborted: {reply.completion.engine_finish}")
    state.unanswered = message
    return message


def observe(state: RolloutState, observation: Sequence[Message]) -> None:
    """Render and record messages that nothing is sampled behind: the path that holds the last turn goes on."""
    with state.watch.span(Part.CPU):
        _record(state, _render(state, observation, ContextPolicy.KEEP))


def _render(state: RolloutState, observation: Sequence[Message], policy: ContextPolicy) -> Extension | Rewrite:
    """A conversation that the template refuses is kept as messages without tokens, and ends the rollout."""
    graph, renderer, specs = state.trace.graph, state.loaded.renderer, state.tools.specs
    state.unanswered = None
    try:
        if state.leaf == ROOT:
            return Extension(renderer.open(observation, specs))
        leaf = state.leaf
        past = Past(
            last_id=int(graph[leaf].token_ids[-1]),
            tools=specs,
            nodes=lambda: [graph[node] for node in graph.path(leaf).tolist()],
        )
        return go_on(renderer, past, observation, specs, policy)
    except ModelError as error:
        for message in observation:
            state.leaf = graph.add(message, parent=state.leaf, origin=_origin(message))
        raise RolloutFailure(Reason.TEMPLATE_REFUSED, error) from error


def _prompt_tokens(state: RolloutState, step: Extension | Rewrite) -> int:
    """The length of the prompt that `step` leads to."""
    graph, leaf = state.trace.graph, state.leaf
    if isinstance(step, Rewrite):
        leaf = int(graph.path(leaf)[step.shared - 1]) if step.shared else ROOT
    new = sum(len(each.token_ids) for each in step.rendering.messages) + len(step.rendering.prompt_ids)
    return len(graph.path_ids(leaf)) + new


def _record(state: RolloutState, step: Extension | Rewrite) -> None:
    """Enter what was rendered: observations, and where history was written anew the branch that it makes."""
    graph, rendering = state.trace.graph, step.rendering
    if state.leaf == ROOT:
        state.trace.head = msgspec.structs.replace(state.trace.head, tools_rendered=rendering.tools_rendered)
    old: list[int] = []
    fork: Fork | None = None
    if isinstance(step, Rewrite):
        path: list[int] = graph.path(state.leaf).tolist()
        old, fork = path[step.shared :], step.fork
        state.leaf = path[step.shared - 1] if step.shared else ROOT
    for rendered, target in zip_longest(rendering.messages, old):
        state.leaf = graph.add(
            rendered.message,
            parent=state.leaf,
            origin=_origin_of(state, rendered, target),
            token_ids=rendered.token_ids,
            runs=rendered.runs,
            fork=fork,
        )
        fork = None
        if target is not None:
            state.trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(state.leaf), target=NodeRef(target)))
    for note in rendering.notes:
        state.trace.note("render", note)


def _origin_of(state: RolloutState, rendered: RenderedMessage, target: int | None) -> Origin:
    if rendered.added or (target is not None and rendered.message.role is Role.ASSISTANT):
        return Origin.SYNTHETIC
    return _origin(rendered.message) if target is None else state.trace.graph.origin(target)


def _origin(message: Message) -> Origin:
    return Origin.USER if message.role is Role.USER else Origin.ENVIRONMENT


async def _sample(state: RolloutState, prompt: TokenIds, allowance: Allowance) -> _Reply:
    """One request. One that failed, or that a deadline or a cancellation cut off, is recorded as a call without a
    node."""
    seed = derive_seed(state.sampling.seed or 0, len(state.trace.calls))
    sampling = msgspec.structs.replace(state.sampling, max_tokens=allowance.tokens, seed=seed)
    request = _Request(sampling, state.watch.elapsed)
    try:
        with state.watch.span(Part.ENGINE):
            completion = await state.within_deadline(
                state.loaded.policy.sample(prompt, sampling, session=state.trace.id)
            )
        wall = state.watch.elapsed - request.started
        check_completion(completion, prompt, sampling)
        # The engine's own queue is no time of the rollout's; it cannot have been longer than the call.
        state.budget.seconds -= min(max(completion.queue or 0.0, 0.0), wall)
        finish = _finish(state, completion, allowance)
    except RollbookError as error:
        _record_failure(state, request, str(error))
        raise
    except asyncio.CancelledError:
        _record_failure(state, request, "cancelled while it ran")
        raise
    state.watch.add_engine(queue=completion.queue, prefill=completion.prefill, decode=completion.decode)
    return _Reply(completion, finish, request, wall)


def _record_failure(state: RolloutState, request: _Request, error: str) -> None:
    if state.trace.sealed:
        return  # an agent left this step running behind the end of its rollout
    state.trace.add_call(
        Call(
            after=state.leaf,
            sampling=request.sampling,
            finish=Finish.ERROR,
            error=error,
            started=request.started,
            wall=state.watch.elapsed - request.started,
        )
    )


def _finish(state: RolloutState, completion: Completion, allowance: Allowance) -> Finish:
    """Why the generation stopped, by its tokens: an engine's word alone is not believed.

    Raises `RolloutFailure` (`engine_contract`) where the tokens do not bear it out.
    """
    ids, info = completion.token_ids, state.loaded.renderer.info
    if len(ids) and int(ids.max()) >= info.vocab_size:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"id {ids.max()} is not in the vocabulary of {info.vocab_size}")
    match completion.finish:
        case Finish.ABORT:
            return Finish.ABORT
        case Finish.ERROR:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"an error came as a reply: {completion.engine_finish}")
        case _ if int(ids[-1]) in info.stop_ids.union(state.sampling.stop_token_ids):
            return Finish.STOP
        case Finish.STOP_STRING if state.sampling.stop:
            return Finish.STOP_STRING
        case _ if len(ids) >= allowance.tokens:
            return Finish.LENGTH
        case finish:
            raise RolloutFailure(
                Reason.ENGINE_CONTRACT,
                f"finish '{completion.engine_finish}' ({finish}) behind {len(ids)} of {allowance.tokens} tokens, the "
                f"last id {ids[-1]} ends no turn",
            )


def _commit(state: RolloutState, reply: _Reply, rendering: Rendering) -> Message:
    """Enter one reply into the trace and make it durable; nothing of one that breaks the record's rules."""
    completion, trace = reply.completion, state.trace
    ids = completion.token_ids
    parsed = state.loaded.renderer.parse(
        ids,
        state.tools.specs,
        inside_reasoning=rendering.inside_reasoning,
        cut=reply.finish in (Finish.LENGTH, Finish.ABORT),
        call_prefix=f"call_{state.budget.turns}_",
    )
    after, node = state.leaf, None
    if len(ids):
        try:
            state.leaf = node = _add_node(state, parsed.message, completion, rendering.prompt_ids)
        except RecordError as error:
            _record_failure(state, reply.request, str(error))
            raise RolloutFailure(Reason.ENGINE_CONTRACT, str(error)) from error
    trace.add_call(_call(reply, node, after))
    state.budget.turns += 1
    state.budget.tokens += len(ids)
    state.store()
    return parsed.message


def _add_node(state: RolloutState, message: Message, completion: Completion, scaffold: TokenIds) -> int:
    ids = completion.token_ids
    return state.trace.graph.add(
        message,
        parent=state.leaf,
        origin=Origin.POLICY,
        token_ids=np.concatenate((scaffold, ids)),
        runs=make_runs((RunKind.SCAFFOLD, len(scaffold)), (RunKind.SAMPLED, len(ids))),
        logprobs=completion.logprobs,
        rescored=completion.rescored,
        versions=make_runs(*completion.versions),
        segments=make_runs((len(state.trace.calls), len(ids))),
    )


def _call(reply: _Reply, node: int | None, after: int) -> Call:
    completion, request = reply.completion, reply.request
    return Call(
        node=node,
        after=after,
        sampling=request.sampling,
        logprob_kind=completion.logprob_kind,
        finish=reply.finish,
        engine_finish=completion.engine_finish,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=len(completion.token_ids),
        cached_tokens=completion.cached_tokens,
        tries=completion.tries,
        started=request.started,
        wall=reply.wall,
        queue=completion.queue,
        prefill=completion.prefill,
        decode=completion.decode,
    )
