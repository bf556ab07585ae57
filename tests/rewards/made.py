"""Ended traces for the tests of this room, made without an engine."""

from __future__ import annotations

from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.node import ROOT
from rollbook.trace.record import Agent, PolicyRecord, TraceHead
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace


def ended(
    rollout: str,
    reward: float | None = None,
    *,
    reason: Reason | None = Reason.FINAL_ANSWER,
    group: str = "g",
    seat: str = "solver",
    member: int = 0,
    attempt: int = 0,
    said: str | None = "an answer",
) -> Trace:
    """A trace that ended (`reason`; None: it still runs), with one turn (`said`; None: none) and its reward (None: not
    scored)."""
    head = TraceHead(
        rollout=rollout,
        group=group,
        task=Task(id="t", prompt="p"),
        agent=Agent(seat=seat),
        policies=(PolicyRecord(name="scripted"),),
        member=member,
        attempt=attempt,
    )
    trace = Trace(head)
    asked = trace.graph.add(Message(role=Role.USER, content="p"), parent=ROOT, origin=Origin.ENVIRONMENT)
    if said is not None:
        trace.graph.add(Message(role=Role.ASSISTANT, content=said), parent=asked, origin=Origin.POLICY)
    if reason is not None:
        trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    return trace
