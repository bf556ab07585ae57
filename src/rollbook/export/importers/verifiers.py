"""verifiers' records: episodes and traces of version 1, and the result rows of version 0.

Sources: PrimeIntellect-ai/verifiers @ a60a606e (0.4.0), `verifiers/v1/trace.py`, `graph.py`, `episode.py` (a line is
`Episode.to_record()` or `Trace.to_record()`), and `verifiers/legacy/utils/save_utils.py` (`state_to_output`, a line of
``results.jsonl``).

Convention of version 1: a trace is a message graph like ours, so its nodes become nodes: `token_ids` with `mask` (what
the model sampled), `is_content` where the renderer said it, `logprobs` one a sampled token. Ids are kept where every
sampled node has them; else the trace is text-only. A fork has no reason in the record: two replies to one prompt are a
``retry``, a further root is a ``new_root``, anything else counts as ``edited_history``. `rewards` are weighted; where
one was not scored there is no total, and without rewards there is none. Model calls carry sampling settings that may be
the provider's own, so no call is made of them; usage is added up in the metrics.

Endings: `max_turns`, the token limits and `context_length` are what they say; `agent_completed` is
``submitted/final_answer``, ``length_cut/generation_limit`` where the last reply was cut; `user_closed` is
``submitted/user_stop``; `error` is told by the type of the last error. A task's own stop condition does not say what it
means: not recorded, with its name as the detail.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from rollbook.export.importers.book import UNKNOWN, Book, content_id, numbers, reward_of
from rollbook.export.importers.legacy_verifiers import LegacyRow, legacy_trace
from rollbook.export.importers.messages import chat_message, origin_of, tool_specs
from rollbook.export.importers.rows import BadRow, Row, as_record, json_lines
from rollbook.export.importers.spans import float32s, int32s
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.node import ROOT, Fork, ForkReason
from rollbook.trace.record import Agent
from rollbook.trace.runs import NO_RUNS, RunKind, compress_runs
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["episode_traces", "rows", "traces"]

_STOPS = {
    "max_turns": Reason.MAX_TURNS,
    "max_input_tokens": Reason.MAX_TOKENS,
    "max_output_tokens": Reason.MAX_TOKENS,
    "max_total_tokens": Reason.MAX_TOKENS,
    "context_length": Reason.CONTEXT_OVERFLOW,
    "agent_completed": Reason.FINAL_ANSWER,
    "user_closed": Reason.USER_STOP,
}
_ERRORS = {
    "ProviderError": Reason.ENGINE_UNREACHABLE,
    "ToolsetError": Reason.TOOL_SERVER,
    "SandboxError": Reason.SANDBOX_LOST,
    "EnvError": Reason.ENV_SETUP,
    "TaskError": Reason.ENV_SETUP,
}


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    message: dict[str, Any]
    parent: int | None = None
    sampled: bool = False
    token_ids: list[int] = []
    mask: list[bool] = []
    is_content: list[bool] = []
    logprobs: list[float] = []


class _Reward(msgspec.Struct, frozen=True, kw_only=True):
    score: float
    weight: float = 1.0


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    message: str = ""


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None


class _TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, Any] = {}
    key: str | None = None
    hash: str | None = None


class _AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "agent"
    trainable: bool = True
    config: _AgentConfig = _AgentConfig()


class _Trace(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    task: _TaskRow
    nodes: list[_Node]
    agent: _Agent = _Agent()
    tools: list[Any] = []
    calls: list[_Call] = []
    rewards: dict[str, _Reward | None] = {}
    metrics: dict[str, float | None] = {}
    stop_condition: str | None = None
    errors: list[_Error] = []


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""


class _Episode(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    traces: list[_Trace]
    env: _Named = _Named()
    group: _Named | None = None


def rows(path: Path) -> Iterator[Row]:
    """One row for each line."""
    return json_lines(path)


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The traces of one line: those of an episode, or the one that it is."""
    if isinstance(plain, dict) and "example_id" in plain and "completion" in plain:
        yield legacy_trace(as_record(plain, LegacyRow), book)
        return
    yield from episode_traces(plain, book)


def episode_traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The traces of one record of version 1."""
    if isinstance(plain, dict) and "traces" in plain:
        episode = as_record(cast("dict[str, Any]", plain), _Episode)
    else:
        episode = _Episode(id="", traces=[as_record(plain, _Trace)])
    many = len(episode.traces) > 1
    for found in episode.traces:
        group = episode.group.id if episode.group is not None else found.task.key or found.task.hash or found.task.data
        yield _trace(found, book, group=group, episode=f"{book.run}-{episode.id}" if many else "", env=episode.env.id)


def _trace(found: _Trace, book: Book, *, group: object, episode: str, env: str) -> Trace:
    sampled = [node for node in found.nodes if node.sampled]
    tokens = bool(sampled) and all(node.token_ids for node in sampled)
    models = [call.model for call in found.calls if call.model] or [found.agent.config.model]
    asked = itertools.takewhile(lambda node: not node.sampled, found.nodes)
    head = book.head(
        task=Task(
            id=found.task.key or found.task.hash or content_id(found.task.data),
            prompt=tuple(chat_message(node.message) for node in asked),
            data=found.task.data,
        ),
        group=group,
        policy=models[0] or UNKNOWN,
        agent=Agent(name=found.agent.name, seat=found.agent.name, trainable=found.agent.trainable),
        episode=episode,
        environment=env,
        tools=tool_specs(found.tools),
        tokens=tokens,
        source={"id": found.id, "stop_condition": found.stop_condition},
    )
    trace = Trace(head)
    for number, node in enumerate(found.nodes):
        _add(trace, found.nodes, number, node, tokens=tokens)
    for error in found.errors:
        trace.note(error.type, error.message)
    trace.end(_ending(found))
    usage = [call.usage for call in found.calls if call.usage is not None]
    counted = {
        "prompt_tokens": sum(each.prompt_tokens for each in usage),
        "completion_tokens": sum(each.completion_tokens for each in usage),
    }
    metrics = {name: value for name, value in found.metrics.items() if value is not None}
    trace.update(metrics={**(numbers(counted) if usage else {}), **numbers(metrics)})
    _score(trace, found.rewards)
    return trace


def _add(trace: Trace, nodes: Sequence[_Node], number: int, node: _Node, *, tokens: bool) -> None:
    message = chat_message(node.message)
    parent = ROOT if node.parent is None else node.parent
    if not ROOT <= parent < number:
        raise BadRow(f"node {number} names the parent {parent}, which does not come before it")
    origin, fork = origin_of(message.role, sampled=node.sampled), _fork(nodes, number, node)
    if not tokens:
        trace.graph.add(message, parent=parent, origin=origin, fork=fork)
        return
    if len(node.mask) != len(node.token_ids) or len(node.is_content) not in (0, len(node.token_ids)):
        raise BadRow(f"node {number} has {len(node.token_ids)} ids and {len(node.mask)} places in its mask")
    logprobs = float32s(node.logprobs, "logprobs") if node.logprobs else None
    trace.graph.add(
        message,
        parent=parent,
        origin=origin,
        token_ids=int32s(node.token_ids, "token_ids"),
        runs=compress_runs(_kinds(node)) if node.token_ids else NO_RUNS,
        logprobs=logprobs,
        fork=fork,
    )


def _kinds(node: _Node) -> Any:
    """What each token is. Without word of the renderer, what a reply adds unsampled is scaffold, the rest content."""
    mask = np.array(node.mask, np.bool_)
    outside = int(RunKind.SCAFFOLD if node.sampled else RunKind.CONTENT)
    kinds = np.full(len(mask), outside, np.int32)
    if node.is_content:
        kinds[:] = np.where(np.array(node.is_content, np.bool_), int(RunKind.CONTENT), int(RunKind.SCAFFOLD))
    kinds[mask] = int(RunKind.SAMPLED)
    return kinds


def _fork(nodes: Sequence[_Node], number: int, node: _Node) -> Fork | None:
    siblings = [each for each in nodes[:number] if each.parent == node.parent]
    if not siblings:
        return None
    if node.parent is None:
        return Fork(reason=ForkReason.NEW_ROOT)
    if node.sampled and siblings[-1].sampled:
        return Fork(reason=ForkReason.RETRY)
    return Fork(reason=ForkReason.EDITED_HISTORY, detail="the record does not say why the path forks")


def _ending(found: _Trace) -> Ending:
    stop = found.stop_condition
    if stop == "error":
        last = found.errors[-1] if found.errors else _Error(type="", message="")
        return Ending(_ERRORS.get(last.type, Reason.HARNESS), f"{last.type}: {last.message}"[:1000])
    reason = _STOPS.get(stop or "", Reason.NOT_RECORDED)
    answered = [call for call in found.calls if call.error is None]
    if reason is Reason.FINAL_ANSWER and answered and answered[-1].finish_reason == "length":
        reason = Reason.GENERATION_LIMIT
    return Ending(reason, f"stop condition {stop}" if stop else "no stop condition is recorded")


def _score(trace: Trace, rewards: Mapping[str, _Reward | None]) -> None:
    values = {name: each.score * each.weight for name, each in rewards.items() if each is not None}
    if not values:
        return
    total = sum(values.values()) if len(values) == len(rewards) else None
    trace.score(reward_of(total), {name: reward_of(value) or 0.0 for name, value in values.items()})
