"""Retokenisation drift: how many turns would have come back as other ids, had their text been encoded again.

Rules: the stored ids are compared and never changed; a turn is judged only where the re-encoder has the tokenizer
that its policy was sampled with; the rest is counted by reason.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from rollbook.audit.measure import Findings, Measure, Reencoder
from rollbook.audit.origin import NO_RENDERER, NO_TURN, own_turns
from rollbook.trace.node import ForkReason, Node, TokenIds
from rollbook.trace.trace import Trace

__all__ = ["Drift", "first_difference"]


class Drift:
    """Share of turns that would have drifted."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.turns = self.drifted = self.forks = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        forks = (node.fork for node in trace.graph)
        self.forks += sum(fork is not None and fork.reason is ForkReason.DRIFT for fork in forks)
        if self.reencoder is None:
            return
        for node in own_turns(trace, self.reencoder.info, self.skipped):
            self._turn(self.reencoder, trace, node)

    def _turn(self, reencoder: Reencoder, trace: Trace, node: Node) -> None:
        self.turns += 1
        kept = node.sampled_ids
        found = reencoder.reencode(kept)
        place = first_difference(kept, found)
        if place is None:
            return
        self.drifted += 1
        token = int(node.sampled_positions[min(place, len(kept) - 1)])
        text = f"sampled {kept[place : place + 4].tolist()}, re-encoded {found[place : place + 4].tolist()}"
        self.findings.add(trace, text, node=node.index, token=token)

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER, forks_by_drift=self.forks)
        return Measure.share(self.drifted, self.turns, NO_TURN, forks_by_drift=self.forks, **self.skipped)


def first_difference(kept: TokenIds, found: TokenIds) -> int | None:
    """The first position at which two sequences differ; a missing token differs. None where they are equal."""
    shared = min(len(kept), len(found))
    places = np.flatnonzero(kept[:shared] != found[:shared])
    if len(places):
        return int(places[0])
    return None if len(kept) == len(found) else shared
