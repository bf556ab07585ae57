"""What the judges of one worker share, and how what they said goes into a trace.

Rules: each policy that judges is started once and closed with the worker's resources; one that is given by its name is
loaded once, in a thread. The questions of a rollout become side branches of its trace, text without ids, so nothing of
them can train: the question is the harness's, the reply a subagent's, and an edge ``judged_by`` leads from the last
message of the conversation to the reply, or to the question where none came, with the facts of it as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollbook.errors import UsageError
from rollbook.rewards.scorers.judgement import JUDGES, Judgement, Speaker
from rollbook.rollout.limiter import Limiter
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.trace import ROOT, Edge, EdgeLabel, Fork, ForkReason, NodeRef, Origin, Trace

__all__ = ["JudgeLoader", "JudgePolicies", "judgement_facts", "judging", "record_judgements"]

JudgeLoader = Callable[[str], LoadedPolicy]
"""Loads a policy by its name; not started yet."""


class JudgePolicies:
    """The policies that judge in one worker. Belongs to one event loop."""

    def __init__(self, load: JudgeLoader | None) -> None:
        """`load`: None: none can be given by its name."""
        self._load = load
        self._named: dict[str, Speaker] = {}
        self._started: list[Speaker] = []
        self._lock, self._stack = asyncio.Lock(), AsyncExitStack()

    async def speaker(self, policy: Speaker | str) -> Speaker:
        """The policy, started. Raises `UsageError`."""
        async with self._lock:
            found = await self._found(policy) if isinstance(policy, str) else policy
            if all(each is not found for each in self._started):
                self._stack.push_async_callback(found.policy.close)
                await found.policy.start()
                self._started.append(found)
        return found

    async def _found(self, name: str) -> Speaker:
        if name not in self._named:
            if self._load is None:
                raise UsageError(f"nothing here loads {name!r} by its name; give Judge a LoadedPolicy")
            self._named[name] = await asyncio.to_thread(self._load, name)
        return self._named[name]

    async def close(self) -> None:
        """Close what was started."""
        self._started.clear()
        await self._stack.aclose()


@dataclass(slots=True)
class _Desk:
    """The judges of a worker, as one scoring sees them."""

    limiter: Limiter
    policies: JudgePolicies
    judged: list[Judgement] = field(default_factory=list[Judgement])

    def slot(self) -> AbstractAsyncContextManager[None]:
        return self.limiter.slot()

    def pause(self, seconds: float) -> None:
        self.limiter.pause(seconds)

    async def speaker(self, policy: Speaker | str) -> Speaker:
        return await self.policies.speaker(policy)

    def keep(self, judgement: Judgement) -> None:
        self.judged.append(judgement)


@contextmanager
def judging(limiter: Limiter, policies: JudgePolicies) -> Generator[list[Judgement]]:
    """Scoring within: what judges are asked meanwhile is in the list."""
    desk = _Desk(limiter, policies)
    token = JUDGES.set(desk)
    try:
        yield desk.judged
    finally:
        JUDGES.reset(token)


def record_judgements(trace: Trace, judged: Sequence[Judgement]) -> None:
    """Enter what judges were asked about a trace that is not sealed."""
    last = len(trace.graph) - 1
    for judgement in judged:
        node = ROOT
        fork: Fork | None = Fork(reason=ForkReason.SIDE_REQUEST, detail=judgement.judge)
        for message in judgement.question:
            node = trace.graph.add(message, parent=node, origin=Origin.HARNESS, fork=fork)
            fork = None
        if judgement.reply is not None:
            node = trace.graph.add(judgement.reply, parent=node, origin=Origin.SUBAGENT)
        if node == ROOT:
            trace.note("judge", f"{judgement.judge}: {judgement.error}: {judgement.detail}")
            continue
        detail = msgspec.json.encode(judgement_facts(judgement)).decode()
        trace.add_edge(Edge(label=EdgeLabel.JUDGED_BY, source=NodeRef(last), target=NodeRef(node), detail=detail))


def judgement_facts(judgement: Judgement) -> dict[str, Any]:
    """What is known of a judgement beside what was said, as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(judgement)
    return {name: value for name, value in plain.items() if name not in ("question", "reply", "rollouts")}
