"""Ids, masks, logprobs and segments against each other, token by token.

The graph refuses what is not aligned when data enters. This looks at the stored columns again, for a record may come
from elsewhere or be damaged: runs cover the ids; logprobs are one a sampled token or none; each is finite and <= 0
(within float error); segments, where there are any, cover the sampled tokens and name calls of this trace that gave
this node.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.checks import LOGPROB_SLACK
from rollbook.trace.node import LOGPROBS, RUNS, SAMPLED, TOKENS
from rollbook.trace.runs import RunKind
from rollbook.trace.sample import logprobs_fit
from rollbook.trace.trace import Trace

__all__ = ["NO_TOKENS", "Aligned", "LogprobKinds", "LogprobsAbsent", "Rescored", "misalignments"]

NO_TOKENS = "no trace of this batch holds sampled tokens"


def misalignments(trace: Trace) -> Iterator[tuple[int, int | None, str]]:
    """Each break as (node, token position or None, what)."""
    counts = trace.graph.counts()
    logprobs, sampled = counts[:, LOGPROBS], counts[:, SAMPLED]
    for node in np.flatnonzero((logprobs != 0) & (logprobs != sampled)).tolist():
        yield node, None, f"{logprobs[node]} logprobs for {sampled[node]} sampled tokens"
    for node in np.flatnonzero(counts[:, RUNS]).tolist():
        yield from _broken_runs(trace, node, int(counts[node, TOKENS]), int(sampled[node]))
    for node in np.flatnonzero(sampled).tolist():
        yield from _broken_segments(trace, node, int(sampled[node]))
    yield from _broken_values(trace, counts)


def _broken_runs(trace: Trace, node: int, tokens: int, sampled: int) -> Iterator[tuple[int, int | None, str]]:
    runs = trace.graph[node].runs
    covered, marked = int(runs[:, 1].sum()), int(runs[runs[:, 0] == RunKind.SAMPLED, 1].sum())
    if covered != tokens:
        yield node, min(covered, tokens), f"runs cover {covered} of {tokens} token ids"
    if marked != sampled:
        yield node, None, f"runs mark {marked} tokens as sampled, the node table {sampled}"


def _broken_segments(trace: Trace, node: int, sampled: int) -> Iterator[tuple[int, int | None, str]]:
    segments = trace.graph[node].segments
    covered = int(segments[:, 1].sum())
    if len(segments) and covered != sampled:
        yield node, None, f"segments cover {covered} of {sampled} sampled tokens"
    calls: list[int] = segments[:, 0].tolist()
    for call in calls:
        if not 0 <= call < len(trace.calls):
            yield node, None, f"a segment names call {call}; the trace has {len(trace.calls)}"
        elif trace.calls[call].node != node:
            yield node, None, f"a segment names call {call}, which gave node {trace.calls[call].node}"


def _broken_values(trace: Trace, counts: npt.NDArray[np.int32]) -> Iterator[tuple[int, int | None, str]]:
    graph = trace.graph
    values = graph.logprobs.view
    bad = np.flatnonzero(~np.isfinite(values) | (values > LOGPROB_SLACK))
    if not len(bad):
        return
    ends = graph.table.view[:, LOGPROBS]
    for place, node in zip(bad.tolist(), np.searchsorted(ends, bad, side="right").tolist(), strict=True):
        within = place - int(ends[node] - counts[node, LOGPROBS])
        places = graph[node].sampled_positions
        token = int(places[within]) if within < len(places) else None
        yield node, token, f"logprob {values[place]!s} is not a finite number <= 0"


class Aligned:
    """Number of breaks between ids, masks, logprobs and segments."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.tokens = self.broken = self.without_tokens = 0

    def see(self, trace: Trace) -> None:
        self.without_tokens += not trace.head.tokens
        self.tokens += trace.graph.sampled_count
        before = self.findings.total
        for node, token, text in misalignments(trace):
            self.findings.add(trace, text, node=node, token=token)
        self.broken += self.findings.total > before

    def finish(self) -> Measure:
        if not self.tokens:
            return Measure.none(NO_TOKENS, rollouts_without_ids=self.without_tokens)
        details = {"rollouts_broken": self.broken, "rollouts_without_ids": self.without_tokens}
        return Measure.count(self.findings.total, self.tokens, **details)


class LogprobsAbsent:
    """Share of sampled tokens without a logprob."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.tokens = self.absent = 0

    def see(self, trace: Trace) -> None:
        counts = trace.graph.counts()
        self.tokens += int(counts[:, SAMPLED].sum())
        for node in np.flatnonzero((counts[:, SAMPLED] > 0) & (counts[:, LOGPROBS] == 0)).tolist():
            self.absent += int(counts[node, SAMPLED])
            self.findings.add(trace, f"{counts[node, SAMPLED]} sampled tokens have no logprob", node=node)

    def finish(self) -> Measure:
        return Measure.share(self.absent, self.tokens, NO_TOKENS)


class LogprobKinds:
    """Share of logprobs that are not of the distribution that was sampled; the kinds are in the details. Those of a
    trace without calls are counted apart: what they are of was not recorded."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.tokens = self.unfit = self.unrecorded = 0
        self.kinds: dict[str, int] = {}

    def see(self, trace: Trace) -> None:
        if not trace.calls:  # recorded elsewhere: nobody says what its logprobs are of
            self.unrecorded += len(trace.graph.logprobs)
            return
        counts = trace.graph.counts()
        for node in np.flatnonzero(counts[:, LOGPROBS] > 0).tolist():
            pairs = trace.graph[node].segments.tolist() or [(-1, int(counts[node, LOGPROBS]))]
            for index, size in pairs:
                self._segment(trace, node, index, size)

    def _segment(self, trace: Trace, node: int, index: int, size: int) -> None:
        call = trace.calls[index] if index >= 0 else None
        kind = str(call.logprob_kind or "not_said") if call is not None else "no_call"
        self.kinds[kind] = self.kinds.get(kind, 0) + size
        self.tokens += size
        if call is None:
            self._found(trace, node, size, f"{size} logprobs of no call: what they are of is not known")
        elif not logprobs_fit(call):
            self._found(trace, node, size, f"{size} logprobs of call {index} are {kind}, not of what it drew from")

    def _found(self, trace: Trace, node: int, size: int, text: str) -> None:
        self.unfit += size
        self.findings.add(trace, text, node=node)

    def finish(self) -> Measure:
        kinds = dict(sorted(self.kinds.items()))
        if self.unrecorded and not self.tokens:
            return Measure.none("no call says what these logprobs are of (an import)", not_recorded=self.unrecorded)
        if self.unrecorded:
            kinds["not_recorded"] = self.unrecorded
        return Measure.share(self.unfit, self.tokens, "no logprobs in this batch", **kinds)


class Rescored:
    """Share of logprobs that came from a second request."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.logprobs = self.rescored = 0

    def see(self, trace: Trace) -> None:
        self.logprobs += len(trace.graph.logprobs)
        if not len(trace.graph.rescored):
            return
        for node in trace.graph:
            if len(node.rescored):
                self.rescored += len(node.rescored)
                first = int(node.sampled_positions[node.rescored[0]])
                self.findings.add(trace, f"{len(node.rescored)} logprobs rescored", node=node.index, token=first)

    def finish(self) -> Measure:
        return Measure.share(self.rescored, self.logprobs, "no logprobs in this batch")
