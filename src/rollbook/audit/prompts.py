"""What the engine says it was sent, against what the record says: the ids along the path, concatenated.

For each segment the prompt is everything on the path before it: the nodes up to the call's `after`, the scaffold in
front of the segment, and the earlier segments of the same turn. A request that gave no node is left out, for its
generation prompt is not stored, and so is one behind a redacted message, whose ids are gone.
"""

from __future__ import annotations

import numpy as np

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.node import ROOT, SEGMENTS, TOKENS, Mark
from rollbook.trace.trace import Trace

__all__ = ["PromptTokens"]


class PromptTokens:
    """Number of calls whose prompt the record does not give back."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.judged = self.unsaid = self.wrong = self.redacted = 0

    def see(self, trace: Trace) -> None:
        counts = trace.graph.counts()
        before = _tokens_before(trace, counts[:, TOKENS].tolist())
        turns: list[int] = np.flatnonzero(counts[:, SEGMENTS]).tolist()
        for node in turns:
            stored = before[node]
            if stored is None:
                self.redacted += 1
                continue
            view, nth = trace.graph[node], 0
            positions = view.sampled_positions
            for index, size in view.segments.tolist():
                start = int(positions[nth])
                self._call(trace, node, index, start, stored + start)
                nth += size

    def _call(self, trace: Trace, node: int, index: int, token: int, stored: int) -> None:
        call = trace.calls[index]
        if call.prompt_tokens is None:
            self.unsaid += 1
            return
        self.judged += 1
        problems: list[str] = []
        if call.after != trace.graph.parent(node):
            problems.append(f"call {index} was sent behind node {call.after}, its reply stands elsewhere")
        if call.prompt_tokens != stored:
            problems.append(
                f"the engine counted {call.prompt_tokens} prompt tokens for call {index}, the path {stored}"
            )
        if problems:
            self.wrong += 1
            self.findings.add(trace, "; ".join(problems), node=node, token=token)

    def finish(self) -> Measure:
        details = {"calls_without_count": self.unsaid, "turns_behind_redaction": self.redacted}
        if not self.judged:
            return Measure.none("no engine call reported its prompt tokens", **details)
        return Measure.count(self.wrong, self.judged, **details)


def _tokens_before(trace: Trace, tokens: list[int]) -> list[int | None]:
    """For each node, the tokens on its path before it; None behind a redacted one."""
    before: list[int | None] = []
    for node in range(len(tokens)):
        parent = trace.graph.parent(node)
        above = 0 if parent == ROOT else before[parent]
        redacted = trace.graph.marks.get(parent) is Mark.REDACTED
        before.append(None if above is None or redacted else above + (tokens[parent] if parent != ROOT else 0))
    return before
