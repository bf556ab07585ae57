"""One turn over a text-only endpoint: messages go out, a message comes back, no token ids.

Order as in `rollbook.rollout.turn`. Limits count what the endpoint says it counted: the room in the context is known
only as far as its last prompt, so an overflow mostly comes as the endpoint's own refusal; a limit of tokens that an
endpoint without counts cannot hold is a broken contract. Tool calls are read as strictly as sampled ones, and go back
as they came. A reply that was aborted, or that a filter stopped, is no turn: its call is recorded, of its text nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from rollbook.policy.endpoint import TextCall, TextEndpoint, TextReply
from rollbook.render.calls import Attempt, CallReader, Refused, json_arguments
from rollbook.rollout.asking import Request, failing, of_policy, patiently
from rollbook.rollout.limits import Allowance
from rollbook.rollout.loaded import derive_seed
from rollbook.rollout.state import RolloutState
from rollbook.rollout.stopwatch import Part
from rollbook.trace import (
    Call,
    Ending,
    Finish,
    Message,
    Origin,
    ParseStatus,
    Reason,
    Role,
    RolloutFailure,
    ToolCall,
    ToolSpec,
)

__all__ = ["observe", "read_calls", "take_turn"]

_READER = CallReader()
"""Keeps compiled schemas, a bounded number."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What one request gave."""

    reply: TextReply
    request: Request
    wall: float
    """Seconds."""
    tries: int


async def take_turn(state: RolloutState, endpoint: TextEndpoint, observation: Sequence[Message]) -> Message:
    """One request and its reply, recorded. Raises `Stopped` at a limit and `RolloutFailure` where the endpoint
    failed."""
    await observe(state, observation)
    allowance = state.budget.allowance(_prompt_tokens(state), endpoint.info.context_length)
    if isinstance(allowance, Ending):
        state.stop(allowance)
    said = await patiently(state, partial(_once, state, endpoint, allowance))
    with state.watch.span(Part.CPU):
        message = _commit(state, said)
    if said.reply.finish is Finish.LENGTH:
        state.stop(Ending(allowance.reason, f"{said.reply.completion_tokens} tokens in one generation"))
    state.unanswered = message
    return message


async def observe(state: RolloutState, observation: Sequence[Message]) -> None:
    """Record messages that nothing is sampled behind."""
    state.unanswered = None
    for message in observation:
        origin = Origin.USER if message.role is Role.USER else Origin.ENVIRONMENT
        state.leaf = state.trace.graph.add(message, parent=state.leaf, origin=origin)


def _prompt_tokens(state: RolloutState) -> int:
    """What the next prompt has at least: the tokens of the last one, as far as the endpoint counted them."""
    return next((call.prompt_tokens for call in reversed(state.trace.calls) if call.prompt_tokens is not None), 0)


async def _once(state: RolloutState, endpoint: TextEndpoint, allowance: Allowance, tries: int) -> _Said:
    """One request."""
    graph, calls = state.trace.graph, state.trace.calls
    sampling = msgspec.structs.replace(
        state.sampling, max_tokens=allowance.tokens, seed=derive_seed(state.sampling.seed or 0, len(calls))
    )
    request = Request(sampling, state.watch.elapsed, tries)
    path: list[int] = graph.path(state.leaf).tolist()
    messages = [graph.messages[node] for node in path]
    with failing(state, request):
        with state.watch.span(Part.ENGINE):
            asked = partial(endpoint.reply, messages, state.tools.specs, sampling, state.trace.id)
            reply = await state.within_deadline(of_policy(asked))
        _check(state, reply)
    return _Said(reply, request, state.watch.elapsed - request.started, tries)


def _check(state: RolloutState, reply: TextReply) -> None:
    """Raises `RolloutFailure` for a reply that is no turn, or that the limits cannot count."""
    if reply.finish is Finish.ERROR:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the endpoint stopped the reply: {reply.engine_finish}")
    if reply.finish is Finish.ABORT:
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, f"the endpoint aborted: {reply.engine_finish}")
    if reply.completion_tokens is None and state.budget.limits.max_tokens is not None:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, "the endpoint counts no tokens, so Limits.max_tokens cannot hold")


def _commit(state: RolloutState, said: _Said) -> Message:
    """Enter one reply into the trace and make it durable."""
    trace, reply, after = state.trace, said.reply, state.leaf
    cut, prefix = reply.finish is Finish.LENGTH, f"call_{state.budget.turns}_"
    calls = read_calls(reply.calls, state.tools.specs, cut=cut, prefix=prefix)
    message = msgspec.structs.replace(reply.message, tool_calls=calls)
    state.leaf = trace.graph.add(message, parent=after, origin=Origin.POLICY)
    trace.add_call(
        Call(
            node=state.leaf,
            after=after,
            sampling=said.request.sampling,
            finish=reply.finish,
            engine_finish=reply.engine_finish,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            tries=said.tries,
            started=said.request.started,
            wall=said.wall,
        )
    )
    state.budget.turns += 1
    state.budget.tokens += reply.completion_tokens or 0
    state.store()
    return message


def read_calls(calls: Sequence[TextCall], tools: Sequence[ToolSpec], *, cut: bool, prefix: str) -> tuple[ToolCall, ...]:
    """The calls with their statuses. `cut`: the generation limit ended the reply. `prefix`: for the ids of those that
    came without one."""
    return tuple(_read(call, tools, cut, f"{prefix}{place}") for place, call in enumerate(calls))


def _read(call: TextCall, tools: Sequence[ToolSpec], cut: bool, call_id: str) -> ToolCall:
    read = _READER.read(partial(_attempt, call), b"", tools, call_id)
    status = ParseStatus.CUT if cut and read.status is ParseStatus.INVALID_JSON else read.status
    return msgspec.structs.replace(read, raw=call.arguments, status=status)


def _attempt(call: TextCall) -> Attempt:
    if call.name is None:
        raise Refused(ParseStatus.MISSING_NAME, "the tool call names no tool", native_id=call.id)
    return json_arguments(call.arguments, call.name, call.id)
