"""Begin-of-sequence tokens: a conversation begins with as many as its template writes, and has none later on.

What the template writes is seen once, from a plain question and what follows a turn. Where it writes the token inside
a conversation too (SmolLM2 begins every message with it), later ones are not judged. Sampled tokens never are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rollbook.audit.measure import Findings, Measure, Reencoder
from rollbook.audit.origin import NO_BRANCH, NO_RENDERER, foreign_template, policies_of
from rollbook.audit.places import locate
from rollbook.errors import ModelError
from rollbook.trace.message import Message, Role
from rollbook.trace.node import Branch, Mark, TokenIds
from rollbook.trace.runs import RunKind, expand_runs
from rollbook.trace.trace import Trace

__all__ = ["BeginTokens"]


@dataclass(frozen=True, slots=True)
class _Begin:
    """What the template does with the begin token."""

    token: int
    text: str
    written: int
    """How many a conversation begins with."""
    inside: bool
    """True where it stands inside of conversations too."""


class BeginTokens:
    """Number of branches that begin otherwise than the template does, or have a begin token later on."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        self.begin = None if reencoder is None else _begin(reencoder)
        self.branches = self.wrong = 0
        self.skipped = Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None or not isinstance(self.begin, _Begin):
            return
        known: set[tuple[int, int]] = set()
        for branch in trace.graph.branches():
            nodes: list[int] = branch.nodes.tolist()
            why = foreign_template(policies_of(trace, nodes) or trace.head.policies, self.reencoder.info)
            if why is None and any(trace.graph.marks.get(node) is Mark.REDACTED for node in nodes):
                why = "redacted"
            ids = trace.graph.path_ids(branch.leaf)
            if why is None and not len(ids):
                why = "no_tokens"
            if why is not None:
                self.skipped[why] += 1
                continue
            self.branches += 1
            faults = list(self._faults(self.begin, trace, branch, ids))
            self.wrong += bool(faults)
            for place, text in faults:
                node, token = locate(trace, nodes, place)
                if (node, token) not in known:
                    known.add((node, token))
                    self.findings.add(trace, text, node=node, token=token)

    def _faults(self, begin: _Begin, trace: Trace, branch: Branch, ids: TokenIds) -> Iterator[tuple[int, str]]:
        """(position along the branch, what is wrong there)."""
        led = _leading(ids, begin.token)
        if led != begin.written:
            yield 0, f"begins with {led} {begin.text}, where the template writes {begin.written}"
        if not begin.inside:
            kinds = expand_runs(trace.graph.gather("runs", trace.graph.stretches(branch.leaf)))
            for place in np.flatnonzero((ids == begin.token) & (kinds != RunKind.SAMPLED)).tolist():
                if place >= led:
                    yield place, f"{begin.text} inside a conversation"

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER)
        if not isinstance(self.begin, _Begin):
            return Measure.none(self.begin or NO_RENDERER)
        if not self.branches:
            return Measure.none(NO_BRANCH, **self.skipped)
        details = {"template_writes": self.begin.written, "marks_turns_too": int(self.begin.inside)}
        return Measure.count(self.wrong, self.branches, **details, **self.skipped)


def _begin(reencoder: Reencoder) -> _Begin | str:
    """What the template does with the begin token, or why that cannot be told."""
    token = reencoder.begin_id
    if token is None:
        return "the model names no begin token"
    question = [Message(role=Role.USER, content="What is asked?")]
    try:
        start = reencoder.open(question, ()).token_ids
        behind = reencoder.extend(min(reencoder.info.stop_ids), question, ()).token_ids
    except ModelError as error:
        return f"the template refuses a plain question ({error})"
    written = _leading(start, token)
    inside = bool(np.any(start[written:] == token) or np.any(behind == token))
    return _Begin(token, reencoder.decode(np.array([token], np.int32)), written, inside)


def _leading(ids: TokenIds, token: int) -> int:
    others = np.flatnonzero(ids != token)
    return int(others[0]) if len(others) else len(ids)
