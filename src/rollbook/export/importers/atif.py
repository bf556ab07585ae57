"""ATIF, the agent trajectory interchange format of Harbor and Terminal-Bench.

Source: harbor 0.26.0, `harbor/models/trajectories/` and its RFC 0001; versions 1.0 to 1.8. A file is one trajectory as
JSON, or one a line.

Convention: a step of the agent is a turn, its observation the results of the calls in it. Where every step of the agent
has `prompt_token_ids` and `completion_token_ids`, the trace is token-exact, with `logprobs` where they are one a token;
else it is text-only. Steps that were copied from an earlier trajectory, and those that no model made
(`llm_call_count` 0), are the harness's words and never sampled. Subagents that are embedded are seats of the same
episode, by the agent's name; those in other files stay there. The format holds neither reward nor ending (Harbor keeps
both in files of its own): no reward, ending not recorded. Content that is no text is left out and counted in the
metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from rollbook.errors import UsageError
from rollbook.export.importers.book import UNKNOWN, Book, content_id, numbers
from rollbook.export.importers.messages import Content, text_of, tool_specs
from rollbook.export.importers.rows import MOST_DOCUMENT, BadRow, Row, as_record, json_lines, opened
from rollbook.export.importers.spans import add_step, add_text, float32s, int32s
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.node import ROOT
from rollbook.trace.record import Agent
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["rows", "traces"]

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    source_call_id: str | None = None
    content: Content = None


class _Observation(msgspec.Struct, frozen=True, kw_only=True):
    results: list[_Result]


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    message: Content
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None

    @property
    def sampled(self) -> bool:
        """A model said this here."""
        return self.source == "agent" and not self.is_copied_context and self.llm_call_count != 0


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class _Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: str
    agent: _Agent
    steps: list[_Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[_Trajectory] | None = None


def rows(path: Path) -> Iterator[Row]:
    """One row for each trajectory: the whole document, or each line."""
    with opened(path) as file:
        text = file.read(MOST_DOCUMENT + 1)
    if len(text) > MOST_DOCUMENT:
        yield from json_lines(path)
        return
    try:
        plain = json.loads(text)
    except ValueError:
        yield from json_lines(path)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read") from error
    else:
        yield Row("the document", lambda: plain)


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The traces of one trajectory and of those embedded in it."""
    root = as_record(plain, _Trajectory)
    family = list(_family(root))
    episode = f"{book.run}-e{content_id([book.place, root.session_id, root.trajectory_id])}" if len(family) > 1 else ""
    for found in family:
        yield _trace(found, book, episode=episode, seat="solver" if found is root else found.agent.name)


def _family(root: _Trajectory) -> Iterator[_Trajectory]:
    yield root
    for inner in root.subagent_trajectories or ():
        yield from _family(inner)


def _trace(found: _Trajectory, book: Book, *, episode: str, seat: str) -> Trace:
    if found.schema_version not in VERSIONS:
        raise BadRow(f"it is of version {found.schema_version[:40]!a}; {VERSIONS[0]} to {VERSIONS[-1]} can be read")
    sampled = [step for step in found.steps if step.sampled]
    exact = bool(sampled) and all(_has_ids(step) for step in sampled)
    asked = [Message(role=Role.USER, content=text_of(step.message)) for step in found.steps if step.source == "user"]
    head = book.head(
        task=Task(id=content_id([each.content for each in asked[:1]]), prompt=tuple(asked[:1])),
        group=[seat, [each.content for each in asked[:1]]] if asked else None,
        policy=found.agent.model_name or UNKNOWN,
        agent=Agent(name=found.agent.name, seat=seat),
        episode=episode,
        tools=tool_specs(found.agent.tool_definitions),
        tokens=exact,
        source={
            "schema_version": found.schema_version,
            "session_id": found.session_id,
            "trajectory_id": found.trajectory_id,
            "agent_version": found.agent.version,
            "continued_trajectory_ref": found.continued_trajectory_ref,
        },
    )
    trace = Trace(head)
    _add_steps(trace, found.steps, exact=exact)
    trace.end(Ending(Reason.NOT_RECORDED, "ATIF does not say why a trajectory ended"))
    left_out = sum(_without_text(step) for step in found.steps)
    trace.update(metrics={**numbers(found.final_metrics or {}), **({"content_left_out": left_out} if left_out else {})})
    return trace


def _has_ids(step: _Step) -> bool:
    metrics = step.metrics
    return metrics is not None and bool(metrics.prompt_token_ids) and bool(metrics.completion_token_ids)


def _add_steps(trace: Trace, steps: Sequence[_Step], *, exact: bool) -> None:
    place, waiting = ROOT, list[Message]()
    for step in steps:
        said = _said(step)
        if exact and step.sampled:
            metrics = step.metrics or _Metrics()
            reply = int32s(metrics.completion_token_ids or (), "completion_token_ids")
            logprobs = float32s(metrics.logprobs, "logprobs") if metrics.logprobs else None
            if logprobs is not None and len(logprobs) != len(reply):
                raise BadRow(f"a step has {len(reply)} completion ids and {len(logprobs)} logprobs")
            prompt = int32s(metrics.prompt_token_ids or (), "prompt_token_ids")
            place = add_step(trace, place, waiting, said, prompt_ids=prompt, reply_ids=reply, logprobs=logprobs)
            waiting = []
        elif exact:
            waiting.append(said)
        else:
            place = add_text(trace, said, sampled=step.sampled, parent=place)
        for result in _results(step):
            if exact:
                waiting.append(result)
            else:
                place = add_text(trace, result, parent=place)
    for message in waiting:
        place = add_text(trace, message, parent=place)


_ROLES = {"system": Role.SYSTEM, "user": Role.USER, "agent": Role.ASSISTANT}


def _said(step: _Step) -> Message:
    role = _ROLES.get(step.source)
    if role is None:
        raise BadRow(f"a step comes from {step.source[:40]!a}, which is none of {', '.join(_ROLES)}")
    return Message(
        role=role,
        content=text_of(step.message),
        reasoning=step.reasoning_content,
        tool_calls=tuple(
            ToolCall(id=call.tool_call_id, name=call.function_name, arguments=call.arguments)
            for call in step.tool_calls or ()
        ),
    )


def _results(step: _Step) -> Iterator[Message]:
    """What came back. A result that answers no call is what the environment said."""
    names = {call.tool_call_id: call.function_name for call in step.tool_calls or ()}
    for result in step.observation.results if step.observation is not None else ():
        text, call = text_of(result.content), result.source_call_id
        if call is None:
            yield Message(role=Role.USER, content=text)
        else:
            yield Message(role=Role.TOOL, content=text, call_id=call, name=names.get(call))


def _without_text(step: _Step) -> int:
    contents = [step.message, *(each.content for each in (step.observation.results if step.observation else ()))]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(not (isinstance(part, dict) and "text" in cast("dict[str, Any]", part)) for part in parts)
