"""Template drift: branches whose text is not what the chat template writes of the same messages now.

Under ``keep`` such a branch is sound to train, but where the policy is deployed with this template it sees another
history. Texts are compared, not ids (other ids of the same text are `drift`), and line ends at the seams of a turn's
reasoning, text and calls are the template's to write, as under the context policy ``template``. Each branch is judged
on its own, so history that was rewritten is judged where it stands. The cause is that of the first difference: the
finding of the template that explains it. A last turn is no part of any later prompt: where it alone differs that is
counted apart, and where the template has no form for it (a call that did not parse) the branch is judged without it.
A branch with such a message before its last turn is not judged. To bound the work, at most `MOST` branches of a trace
are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

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
from rollbook.audit.places import locate, spread
from rollbook.errors import ModelError
from rollbook.render.context import as_written
from rollbook.render.findings import Property
from rollbook.render.increments import common_prefix
from rollbook.trace.message import Origin, Role
from rollbook.trace.node import TOKENS, Branch, Mark, TokenIds
from rollbook.trace.trace import Trace

__all__ = ["MOST", "TemplateDrift"]

MOST = 4
"""Branches of one trace that are looked at: evenly spread, first and last included."""

NO_CAUSE = "other_cause"


class TemplateDrift:
    """Share of branches that the template writes otherwise."""

    def __init__(self, findings: Findings, reencoder: Reencoder | None) -> None:
        self.findings, self.reencoder = findings, reencoder
        labels = () if reencoder is None else reencoder.info.findings
        self.labels = {label.partition("=")[0]: label for label in labels}
        self.all = self.judged = self.drifted = self.last_turns = self.shortened = 0
        self.causes, self.skipped = Counter[str](), Counter[str]()

    def see(self, trace: Trace) -> None:
        if self.reencoder is None:
            return
        branches = trace.graph.branches()
        self.all += len(branches)
        for place in spread(len(branches), MOST):
            self._branch(self.reencoder, trace, branches[place])

    def _branch(self, reencoder: Reencoder, trace: Trace, branch: Branch) -> None:
        nodes: list[int] = branch.nodes.tolist()
        why = _unfit(reencoder, trace, nodes)
        if why is not None:
            self.skipped[why] += 1
            return
        written = _written(reencoder, trace, nodes)
        if written is None and len(nodes) > 1 and trace.graph.origin(nodes[-1]) is Origin.POLICY:
            nodes = nodes[:-1]
            written = _written(reencoder, trace, nodes)
            self.shortened += written is not None
        if written is None:
            self.skipped[REFUSED] += 1
            return
        self.judged += 1
        ids = trace.graph.path_ids(nodes[-1])
        stored, now = reencoder.show(ids), reencoder.decode(written)
        if stored.text == now:
            return
        self.drifted += 1
        at = common_prefix(stored.text, now)
        place = min(int(np.searchsorted(stored.ends, at, side="right")), len(ids) - 1)
        node, token = locate(trace, nodes, place)
        cause = _cause(trace, node, self.labels)
        self.causes[cause] += 1
        self.last_turns += node == nodes[-1] and trace.graph.origin(node) is Origin.POLICY
        text = f"stored {stored.text[at : at + 40]!r}, the template writes {now[at : at + 40]!r} ({cause})"
        self.findings.add(trace, text, node=node, token=token)

    def finish(self) -> Measure:
        if self.reencoder is None:
            return Measure.none(NO_RENDERER)
        details = {
            "branches": self.all,
            "most_per_trace": MOST,
            "only_in_last_turn": self.last_turns,
            "judged_without_last_turn": self.shortened,
        }
        nothing = NOT_TAKEN if self.skipped[REFUSED] else NO_BRANCH
        return Measure.share(self.drifted, self.judged, nothing, **details, **self.causes, **self.skipped)


def _unfit(reencoder: Reencoder, trace: Trace, nodes: list[int]) -> str | None:
    """Why a branch cannot be judged; None where it can."""
    if any(trace.graph.marks.get(node) is Mark.REDACTED for node in nodes):
        return "redacted"
    foreign = foreign_template(policies_of(trace, nodes) or trace.head.policies, reencoder.info)
    if foreign is not None:
        return foreign
    if tools_changed(trace, nodes):
        return "tools_changed"
    counts = trace.graph.counts()
    return None if counts[nodes, TOKENS].all() else "messages_without_tokens"


def _written(reencoder: Reencoder, trace: Trace, nodes: list[int]) -> TokenIds | None:
    """What the template writes of these messages; of a last turn that did not end, without its end. None: the
    template does not take them."""
    info = reencoder.info
    tools = trace.head.tools if info.tool_prompt is None else ()  # a tool prompt stands in the messages already
    try:
        rendering = reencoder.rerender([as_written(trace.graph.messages[node]) for node in nodes], tools)
    except ModelError:
        return None
    written = np.concatenate([message.token_ids for message in rendering.messages])
    last = trace.graph[nodes[-1]]
    cut = last.origin is Origin.POLICY and int(last.token_ids[-1]) not in info.stop_ids
    return written[:-1] if cut else written


def _cause(trace: Trace, node: int, labels: Mapping[str, str]) -> str:
    """The template's finding that explains a first difference at this node."""
    message = trace.graph.messages[node]
    if message.role is Role.ASSISTANT:
        asked = [Property.REASONING] if message.reasoning is not None else []
        asked.append(Property.PROMPT)
    else:
        asked = [Property.TOOLS] if trace.head.tools else []
        asked += [Property.SYSTEM, Property.BRIDGE]
    return next((labels[each] for each in asked if each in labels), NO_CAUSE)
