"""What stands between a sampled turn and the next one, against what the template writes there.

A boundary is the whole batch of messages behind a turn, with the generation prompt in front of the next one. It is
rendered again from the stored messages and compared id by id: a missing line end, a doubled marker, a close that was
not put in. A batch behind a fork by ``template_rewrite`` was written as a part of its whole history, so it is left
to the check that renders that. To bound the work, at most `MOST` boundaries of a trace are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rollbook.audit.drift import first_difference
from rollbook.audit.measure import Findings, Measure, Reencoder
from rollbook.audit.origin import (
    NO_BRANCH,
    NO_RENDERER,
    NOT_TAKEN,
    REFUSED,
    foreign_template,
    policies_of,
    tools_changed,
)
from rollbook.audit.places import spread
from rollbook.errors import ModelError
from rollbook.trace.message import Origin
from rollbook.trace.node import ROOT, ForkReason, Mark, TokenIds
from rollbook.trace.record import ContextPolicy
from rollbook.trace.runs import RunKind
from rollbook.trace.trace import Trace

__all__ = ["MOST", "Separators"]

MOST = 16
"""Boundaries of one trace that are looked at: evenly spread, first and last included."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A batch of messages behind a sampled turn."""

    turn: int
    batch: list[int]
    following: int | None
    """The turn that was sampled behind it; None: there is none."""


class Separators:
    """Number of boundaries that are not what the template writes."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.all = self.judged = self.wrong = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None:
            return
        found = list(_boundaries(trace))
        self.all += len(found)
        for place in spread(len(found), MOST):
            self._boundary(self.reencoder, trace, found[place])

    def _boundary(self, reencoder: Reencoder, trace: Trace, at: _Boundary) -> None:
        why = _unfit(reencoder, trace, at)
        if why is not None:
            self.skipped[why] += 1
            return
        graph = trace.graph
        messages = [graph.messages[node] for node in at.batch]
        try:
            written = reencoder.extend(int(graph[at.turn].token_ids[-1]), messages, trace.head.tools)
        except ModelError:
            self.skipped[REFUSED] += 1
            return
        self.judged += 1
        parts = [(node, graph[node].token_ids) for node in at.batch]
        expected = [message.token_ids for message in written.messages]
        if at.following is not None:
            parts.append((at.following, _prompt(trace, at.following)))
            expected.append(written.prompt_ids)
        stored, right = np.concatenate([ids for _, ids in parts]), np.concatenate(expected)
        place = first_difference(stored, right)
        if place is None:
            return
        self.wrong += 1
        seen, wanted = stored[place : place + 4], right[place : place + 4]
        text = (
            f"stored {seen.tolist()} ({reencoder.decode(seen)!r}), "
            f"the template writes {wanted.tolist()} ({reencoder.decode(wanted)!r})"
        )
        node, token = _locate(parts, place)
        self.findings.add(trace, text, node=node, token=token)

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER)
        details: dict[str, int] = {"boundaries": self.all, "most_per_trace": MOST, **self.skipped}
        if self.all and not self.judged:
            return Measure.none(NOT_TAKEN if self.skipped[REFUSED] else NO_BRANCH, **details)
        return Measure.count(self.wrong, self.judged, **details)


def _boundaries(trace: Trace) -> Iterator[_Boundary]:
    """Each batch behind a turn with sampled tokens, once for every turn that follows it."""
    graph = trace.graph
    parents = {graph.parent(node) for node in range(len(graph))}
    for node in range(len(graph)):
        sampled = graph.origin(node) is Origin.POLICY
        if not sampled and node in parents:
            continue
        batch = [] if sampled else [node]
        above = graph.parent(node)
        while above != ROOT and graph.origin(above) is not Origin.POLICY:
            batch.append(above)
            above = graph.parent(above)
        if batch and above != ROOT and len(graph[above].sampled_ids):
            yield _Boundary(above, batch[::-1], node if len(graph[node].sampled_ids) else None)


def _unfit(reencoder: Reencoder, trace: Trace, at: _Boundary) -> str | None:
    """Why a boundary cannot be judged; None where it can."""
    graph, info = trace.graph, reencoder.info
    views = [graph[node] for node in at.batch]
    if any(view.fork is not None and view.fork.reason is ForkReason.TEMPLATE_REWRITE for view in views):
        return "rewritten"
    if any(view.mark is Mark.REDACTED for view in views):
        return "redacted"
    if tools_changed(trace, [*graph.path(at.turn).tolist(), *at.batch]):
        return "tools_changed"
    bridged = any(label.startswith("bridge=") for label in info.findings)
    if bridged and trace.head.context_policy is ContextPolicy.TEMPLATE:
        return "rendered_as_a_whole"
    turns = [at.turn] if at.following is None else [at.turn, at.following]
    return foreign_template(policies_of(trace, turns), info)


def _prompt(trace: Trace, node: int) -> TokenIds:
    """The scaffold in front of a turn."""
    view = trace.graph[node]
    leads = len(view.runs) and view.runs[0, 0] == RunKind.SCAFFOLD
    return view.token_ids[: int(view.runs[0, 1]) if leads else 0]


def _locate(parts: list[tuple[int, TokenIds]], place: int) -> tuple[int, int | None]:
    """The node and the token there; behind the last token, that one; no token where there is none."""
    for node, ids in parts:
        if place < len(ids):
            return node, place
        place -= len(ids)
    node, ids = parts[-1]
    return node, len(ids) - 1 if len(ids) else None
