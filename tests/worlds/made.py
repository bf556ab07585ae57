"""Short conversations for the tests of this room, made without an engine."""

from __future__ import annotations

import asyncio

from rollbook.envs.protocol import Environment, Rewards
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.node import ROOT
from rollbook.trace.record import PolicyRecord, TraceHead
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace


def played(task: Task, *messages: Message | str, reason: Reason = Reason.FINAL_ANSWER) -> Trace:
    """An ended trace of `task`: text stands for a reply of the policy."""
    trace = Trace(TraceHead(rollout="r", group="g", task=task, policies=(PolicyRecord(name="scripted"),)))
    parent = ROOT
    for each in (*task.messages(), *messages):
        message = Message(role=Role.ASSISTANT, content=each) if isinstance(each, str) else each
        origin = Origin.POLICY if message.role is Role.ASSISTANT else Origin.ENVIRONMENT
        parent = trace.graph.add(message, parent=parent, origin=origin)
    trace.end(Ending(reason))
    return trace


def rewards(env: Environment, trace: Trace) -> Rewards:
    """What the scorer gives."""
    given = asyncio.run(env.score(trace))
    assert given is not None
    return given if isinstance(given, Rewards) else Rewards(given)
