"""Control tokens and text: content that holds one, text that spells one, sampled text that would become one.

Rules: content never holds a control token, whoever wrote the trace; but for a rewritten turn of the policy, whose ids
are content where it is sampled no more. Text from outside that spells one is harmless as long as its tokens are
ordinary, and is counted. A policy may spell one as well, in ordinary tokens: the stored turn is right, but its text,
encoded again, has a turn boundary that nobody sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from rollbook.audit.measure import Findings, Measure, Reencoder
from rollbook.audit.origin import NO_RENDERER, NO_TRACE, NO_TURN, foreign_tokenizer, own_turns
from rollbook.trace.message import Message, Origin
from rollbook.trace.node import ORIGIN, POLICY, TOKENS, Node, TokenIds
from rollbook.trace.runs import RunKind, expand_runs
from rollbook.trace.trace import Trace

__all__ = ["ControlFromText", "ControlInContent", "ControlSpelled"]


class ControlInContent:
    """Number of content tokens that are control tokens."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.control = _control_ids(reencoder)
        self.judged = self.content = self.wrong = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None or not len(trace.graph.tokens):
            return
        foreign = foreign_tokenizer(trace.head.policies, self.reencoder.info)
        if foreign is not None:
            self.skipped[foreign] += 1
            return
        graph = trace.graph
        outside = graph.table.view[:, ORIGIN] != POLICY
        kept = np.repeat(outside, graph.counts()[:, TOKENS])
        content = np.flatnonzero(kept & (expand_runs(graph.runs.view) == RunKind.CONTENT))
        places: list[int] = content[np.isin(graph.tokens.view[content], self.control)].tolist()
        self.judged += 1
        self.content += len(content)
        self.wrong += len(places)
        ends = graph.table.view[:, TOKENS]
        for place in places:
            node = int(np.searchsorted(ends, place, side="right"))
            token = place - (int(ends[node - 1]) if node else 0)
            made = graph.tokens.view[place : place + 1]
            self.findings.add(
                trace, f"content holds {made[0]}, {self.reencoder.decode(made)!r}", node=node, token=token
            )

    def finish(self) -> Measure:
        if not self.judged:
            return Measure.none(NO_RENDERER if self.reencoder is None else NO_TRACE, **self.skipped)
        return Measure.count(self.wrong, self.content, **self.skipped)


class ControlSpelled:
    """Number of messages from outside whose text spells a control token. Messages that Rollbook adds are not from
    outside."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.judged = self.messages = 0
        self.spelled = Counter[str]()
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None or not len(trace.graph.tokens):
            return
        foreign = foreign_tokenizer(trace.head.policies, self.reencoder.info)
        if foreign is not None:
            self.skipped[foreign] += 1
            return
        self.judged += 1
        for node, message in enumerate(trace.graph.messages):
            if trace.graph.origin(node) not in (Origin.POLICY, Origin.SYNTHETIC):
                self._message(self.reencoder, trace, node, message)

    def _message(self, reencoder: Reencoder, trace: Trace, node: int, message: Message) -> None:
        self.messages += 1
        found = next((each for text in _texts(message) if (each := reencoder.spelled_control(text))), None)
        if found is None:
            return
        self.spelled[message.role] += 1
        place = _first_spelling(reencoder, trace.graph[node].token_ids)
        what = f"the text spells {found[1]!r}, in " + ("ordinary tokens" if place is not None else "control tokens")
        self.findings.add(trace, what, node=node, token=place)

    def finish(self) -> Measure:
        if not self.judged:
            return Measure.none(NO_RENDERER if self.reencoder is None else NO_TRACE, **self.skipped)
        by_role = {f"in_{role}": count for role, count in sorted(self.spelled.items())}
        return Measure.count(self.spelled.total(), self.messages, **by_role, **self.skipped)


class ControlFromText:
    """Share of turns whose text, encoded again, has control tokens that were not sampled."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.control = _control_ids(reencoder)
        self.turns = self.forged = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None:
            return
        for node in own_turns(trace, self.reencoder.info, self.skipped):
            self._turn(self.reencoder, trace, node)

    def _turn(self, reencoder: Reencoder, trace: Trace, node: Node) -> None:
        self.turns += 1
        kept = node.sampled_ids
        extra = self._count(reencoder.reencode(kept)) - self._count(kept)
        if not extra:
            return
        self.forged += 1
        place = _first_spelling(reencoder, kept)
        token = None if place is None else int(node.sampled_positions[place])
        made = np.array(sorted(extra), np.int32)
        text = f"encoded again, the text has {made.tolist()} ({reencoder.decode(made)}), which were not sampled"
        self.findings.add(trace, text, node=node.index, token=token)

    def _count(self, token_ids: TokenIds) -> Counter[int]:
        return Counter[int](token_ids[np.isin(token_ids, self.control)].tolist())

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER)
        return Measure.share(self.forged, self.turns, NO_TURN, **self.skipped)


def _control_ids(reencoder: Reencoder | None) -> TokenIds:
    return np.array([] if reencoder is None else sorted(reencoder.control_ids), np.int32)


def _texts(message: Message) -> Iterator[str]:
    yield message.content
    yield message.reasoning or ""


def _first_spelling(reencoder: Reencoder, token_ids: TokenIds) -> int | None:
    """The first ordinary token at which the tokens spell a control token; None: they spell none."""
    shown, start = reencoder.show(token_ids), 0
    while (found := reencoder.spelled_control(shown.text, start)) is not None:
        at, spelled = found
        token = int(np.searchsorted(shown.ends, at, side="right"))
        if int(token_ids[token]) not in reencoder.control_ids:
            return token
        start = at + len(spelled)
    return None
