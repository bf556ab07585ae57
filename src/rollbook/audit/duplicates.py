"""Rollouts that are there twice: the same id, or the same sampled tokens turn by turn.

Equal tokens within a group add no information; many of them are the mark of one seed for all. Rollouts without
sampled tokens are not compared. 16 bytes are kept for each rollout.
"""

from __future__ import annotations

import hashlib

import numpy as np

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.node import SAMPLED
from rollbook.trace.runs import RunKind
from rollbook.trace.trace import Trace

__all__ = ["DuplicateIds", "DuplicateTokens", "sampled_digest"]


class DuplicateIds:
    """Number of rollouts whose id came before."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.seen = set[str]()
        self.rollouts = 0

    def see(self, trace: Trace) -> None:
        self.rollouts += 1
        if trace.id in self.seen:
            self.findings.add(trace, f"rollout {trace.id!a} is in the batch again")
        self.seen.add(trace.id)

    def finish(self) -> Measure:
        return Measure.count(self.findings.total, self.rollouts)


class DuplicateTokens:
    """Share of rollouts whose sampled tokens another one of the same group and seat had before."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.first_in_group: dict[tuple[str, str, bytes], str] = {}
        self.in_batch = set[bytes]()
        self.rollouts = self.within = self.across = self.longest = 0

    def see(self, trace: Trace) -> None:
        if not trace.graph.sampled_count:
            return
        self.rollouts += 1
        digest = sampled_digest(trace)
        first = self.first_in_group.setdefault((trace.head.group, trace.head.agent.seat, digest), trace.id)
        if digest in self.in_batch:
            self.across += 1
        self.in_batch.add(digest)
        if first != trace.id:
            self.within += 1
            self.longest = max(self.longest, trace.graph.sampled_count)
            text = f"the same {trace.graph.sampled_count} sampled tokens as rollout {first!a} of its group"
            self.findings.add(trace, text)

    def finish(self) -> Measure:
        nothing = "no rollout of this batch has sampled tokens"
        details = {"within_groups": self.within, "in_batch": self.across, "longest_tokens": self.longest}
        return Measure.share(self.within, self.rollouts, nothing, **details)


def sampled_digest(trace: Trace) -> bytes:
    """16 bytes that say which tokens were sampled, turn by turn."""
    graph = trace.graph
    runs = graph.runs.view
    ids = graph.tokens.view[np.repeat(runs[:, 0] == RunKind.SAMPLED, runs[:, 1])]
    ends = np.unique(graph.table.view[:, SAMPLED])
    digest = hashlib.blake2b(ends.astype("<i4").tobytes(), digest_size=16)
    digest.update(ids.astype("<i4").tobytes())
    return digest.digest()
