"""One turn: show the policy an observation, sample, read the reply strictly, record it.

Order: observations are recorded before any limit ends the rollout, so the last one is never lost; a request goes out
only where turns, time, tokens and context allow it; the reply is in the trace, and durable, before anything acts on
it. A reply that a limit cut, or that the engine aborted, is recorded and executes nothing. A reply that breaks the
token contract is an error: its call is recorded, of its tokens nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import accumulate, zip_longest

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.envs import compute
from rollbook.errors import ModelError, RecordError
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.render.context import Extension, Past, Rewrite, go_on
from rollbook.render.protocol import RenderedMessage, Rendering
from rollbook.rollout.asking import Answer, Segment, ask, joined, record_failure
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
    Runs,
    make_runs,
)

__all__ = ["observe", "take_turn"]

LONG = 16_384
"""Characters of an observation; rendering more takes over ten milliseconds."""


async def take_turn(state: RolloutState, observation: Sequence[Message]) -> Message:
    """One request and its reply, recorded. Raises `Stopped` at a limit and `RolloutFailure` where the engine
    failed."""
    with state.watch.span(Part.CPU):
        await state.resources.turnstile.turn()
        step = await _rendered(state, observation, state.context)
    allowance = state.budget.allowance(_prompt_tokens(state, step), state.loaded.policy.info.context_length)
    if isinstance(allowance, Ending):
        await _record_last(state, observation, step)
        state.stop(allowance)
    with state.watch.span(Part.CPU):
        _record(state, step)
        rendering = step.rendering
        prompt = state.trace.graph.path_column(state.leaf, rendering.prompt_ids)
    answer = await ask(state, prompt, allowance)
    with state.watch.span(Part.CPU):
        try:
            await state.resources.turnstile.turn()
        finally:
            message = _commit(state, answer, rendering)
    if answer.failure is not None:
        raise answer.failure
    if answer.finish is Finish.LENGTH:
        state.stop(Ending(allowance.reason, f"{len(answer.token_ids)} tokens in one generation"))
    state.unanswered = message
    return message


async def observe(state: RolloutState, observation: Sequence[Message]) -> None:
    """Render and record messages that nothing is sampled behind: the path that holds the last turn goes on."""
    with state.watch.span(Part.CPU):
        _record(state, await _rendered(state, observation, ContextPolicy.KEEP))


async def _record_last(state: RolloutState, observation: Sequence[Message], step: Extension | Rewrite) -> None:
    """As `observe`, of what was rendered for a request that does not go out."""
    if isinstance(step, Rewrite):
        await observe(state, observation)
    else:
        with state.watch.span(Part.CPU):
            _record(state, step)


async def _rendered(state: RolloutState, observation: Sequence[Message], policy: ContextPolicy) -> Extension | Rewrite:
    """A long observation is rendered in a thread: on the loop it would hold every other rollout up."""
    state.unanswered = None
    with _keeping_refused(state, observation):
        if sum(len(message.content) for message in observation) < LONG:
            return _render(state, observation, policy)
        return await compute(_render, state, observation, policy)


@contextmanager
def _keeping_refused(state: RolloutState, observation: Sequence[Message]) -> Generator[None]:
    """A conversation that the template refuses is kept as messages without tokens, and ends the rollout."""
    try:
        yield
    except ModelError as error:
        for message in observation:
            state.leaf = state.trace.graph.add(message, parent=state.leaf, origin=_origin(message))
        raise RolloutFailure(Reason.TEMPLATE_REFUSED, error) from error


def _render(state: RolloutState, observation: Sequence[Message], policy: ContextPolicy) -> Extension | Rewrite:
    """Changes nothing: a rollout that is cancelled meanwhile is sealed beside a thread that still renders."""
    graph, renderer, specs, leaf = state.trace.graph, state.loaded.renderer, state.tools.specs, state.leaf
    if leaf == ROOT:
        return Extension(renderer.open(observation, specs))
    past = Past(
        last_id=int(graph[leaf].token_ids[-1]),
        tools=specs,
        nodes=lambda: [graph[node] for node in graph.path(leaf).tolist()],
    )
    return go_on(renderer, past, observation, specs, policy)


def _prompt_tokens(state: RolloutState, step: Extension | Rewrite) -> int:
    """The length of the prompt that `step` leads to."""
    graph, leaf = state.trace.graph, state.leaf
    if isinstance(step, Rewrite):
        leaf = int(graph.path(leaf)[step.shared - 1]) if step.shared else ROOT
    new = sum(len(each.token_ids) for each in step.rendering.messages) + len(step.rendering.prompt_ids)
    return graph.path_length(leaf) + new


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


def _commit(state: RolloutState, answer: Answer, rendering: Rendering) -> Message:
    """Enter one turn into the trace and make it durable; nothing of one that breaks the record's rules."""
    trace, ids = state.trace, answer.token_ids
    parsed = state.loaded.renderer.parse(
        ids,
        state.tools.specs,
        inside_reasoning=rendering.inside_reasoning,
        cut=answer.finish in (Finish.LENGTH, Finish.ABORT),
        call_prefix=f"call_{state.budget.turns}_",
    )
    after, node = state.leaf, None
    if len(ids):
        try:
            state.leaf = node = _add_node(state, parsed.message, answer, rendering.prompt_ids)
        except RecordError as error:
            for segment in answer.segments:
                record_failure(state, segment.request, str(error))
            raise RolloutFailure(Reason.ENGINE_CONTRACT, str(error)) from error
    for segment in answer.segments:
        trace.add_call(_call(segment, node, after))
    state.budget.turns += 1
    state.budget.tokens += len(ids)
    state.store()
    return parsed.message


def _add_node(state: RolloutState, message: Message, answer: Answer, scaffold: TokenIds) -> int:
    replies = [segment.completion for segment in answer.segments]
    ids = answer.token_ids
    starts = accumulate((len(reply.token_ids) for reply in replies), initial=0)
    # Versions that only some segments tell are not told.
    told = all(reply.versions or not len(reply.token_ids) for reply in replies)
    call = len(state.trace.calls)
    return state.trace.graph.add(
        message,
        parent=state.leaf,
        origin=Origin.POLICY,
        token_ids=np.concatenate((scaffold, ids)),
        runs=make_runs((RunKind.SCAFFOLD, len(scaffold)), (RunKind.SAMPLED, len(ids))),
        logprobs=joined([reply.logprobs for reply in replies]),
        rescored=joined([reply.rescored + start for reply, start in zip(replies, starts, strict=False)]),
        versions=_one_list([run for reply in replies for run in reply.versions] if told else []),
        segments=make_runs(*((call + at, len(reply.token_ids)) for at, reply in enumerate(replies))),
        routed_experts=_experts(replies),
    )


def _experts(replies: Sequence[Completion]) -> npt.NDArray[np.uint16] | None:
    """The routing of all segments; where one of them lacks it, the turn has none."""
    told = [reply.routed_experts for reply in replies if len(reply.token_ids)]
    known = [each for each in told if each is not None]
    return joined(known) if known and len(known) == len(told) else None


def _one_list(versions: Sequence[tuple[int, int]]) -> Runs:
    """One run list over all segments."""
    joined: list[tuple[int, int]] = []
    for version, count in versions:
        before = joined.pop()[1] if joined and joined[-1][0] == version else 0
        joined.append((version, before + count))
    return make_runs(*joined)


def _call(segment: Segment, node: int | None, after: int) -> Call:
    completion, request = segment.completion, segment.request
    return Call(
        node=node if len(completion.token_ids) else None,
        after=after,
        sampling=request.sampling,
        logprob_kind=completion.logprob_kind,
        finish=segment.finish,
        engine_finish=completion.engine_finish,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=len(completion.token_ids),
        cached_tokens=completion.cached_tokens,
        tries=segment.tries,
        started=request.started,
        wall=segment.wall,
        queue=completion.queue,
        prefill=completion.prefill,
        decode=completion.decode,
    )
