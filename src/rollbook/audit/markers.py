"""Markers in content: control tokens that the policy sampled and the parser took for text.

Rules: a turn without a tool call may be one that holds none, or one whose calls are in a form that nobody read; where
they were sampled as control tokens, the record tells which. A marker is a control token that ends no turn. Content that
spells one in ordinary tokens is text and does not count: of the spellings in content as many are put down to ordinary
tokens as the whole turn has, so a turn counts only where content holds a sampled one for sure. The finding names its
place where all sampled ones of that marker stand in content; otherwise the record does not tell which of them does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rollbook.audit.measure import Findings, Measure, Reencoder
from rollbook.audit.origin import NO_RENDERER, NO_TURN, own_turns
from rollbook.trace.node import Node
from rollbook.trace.trace import Trace

__all__ = ["MarkersInContent"]


class MarkersInContent:
    """Share of turns whose content holds sampled control tokens, but for those that end a turn."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        kept = [] if reencoder is None else sorted(reencoder.control_ids - reencoder.info.stop_ids)
        self.markers = np.array(kept, np.int32)
        self.turns = self.unread = self.silent = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None:
            return
        for node in own_turns(trace, self.reencoder.info, self.skipped):
            self._turn(self.reencoder, trace, node)

    def _turn(self, reencoder: Reencoder, trace: Trace, node: Node) -> None:
        self.turns += 1
        if not np.isin(node.sampled_ids, self.markers).any():
            return
        found = self._first(reencoder, node)
        if found is None:
            return
        self.unread += 1
        self.silent += not node.message.tool_calls
        marker, token = found
        self.findings.add(trace, f"content holds {marker!r}, sampled as a control token", node=node.index, token=token)

    def _first(self, reencoder: Reencoder, node: Node) -> tuple[str, int | None] | None:
        """The first marker that content holds for sure, and its place among the node's ids; None: it holds none."""
        in_content = Counter(spelled for _, spelled in _spellings(reencoder, node.message.content))
        if not in_content:
            return None
        sampled, ordinary = self._made(reencoder, node)
        for spelled, count in in_content.items():
            places = sampled.get(spelled, [])
            sure = count - ordinary[spelled]
            if places and sure > 0:
                return spelled, places[0] if sure == len(places) else None
        return None

    def _made(self, reencoder: Reencoder, node: Node) -> tuple[dict[str, list[int]], Counter[str]]:
        """All spellings in a turn: the places of sampled markers by their text, and how many ordinary tokens make."""
        ids, positions = node.sampled_ids, node.sampled_positions
        shown = reencoder.show(ids)
        sampled, ordinary = dict[str, list[int]](), Counter[str]()
        for at, spelled in _spellings(reencoder, shown.text):
            token = int(np.searchsorted(shown.ends, at, side="right"))
            if np.isin(ids[token], self.markers):
                sampled.setdefault(spelled, []).append(int(positions[token]))
            else:
                ordinary[spelled] += 1
        return sampled, ordinary

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER)
        return Measure.share(self.unread, self.turns, NO_TURN, without_call=self.silent, **self.skipped)


def _spellings(reencoder: Reencoder, text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while (found := reencoder.spelled_control(text, start)) is not None:
        yield found
        start = found[0] + len(found[1])
