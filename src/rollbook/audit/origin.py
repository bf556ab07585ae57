"""Whether tokens were made with the renderer at hand: only then can it say what they should have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from rollbook.render.protocol import RendererInfo
from rollbook.trace.node import ForkReason, Node
from rollbook.trace.record import PolicyRecord
from rollbook.trace.trace import Trace

__all__ = [
    "NOT_TAKEN",
    "NO_BRANCH",
    "NO_RENDERER",
    "NO_TRACE",
    "NO_TURN",
    "REFUSED",
    "foreign_template",
    "foreign_tokenizer",
    "own_turns",
    "policies_of",
    "tools_changed",
]

NO_RENDERER = "no renderer was given: pass the run's renderer"
NO_TRACE = "no trace was made with this tokenizer: pass the renderer that the run used"
NO_TURN = "no turn was sampled with this tokenizer: pass the renderer that the run used"
NOT_TAKEN = "the template refuses the messages, or there is one that it has no form for (a call that did not parse)"
REFUSED = "refused_by_template"
NO_BRANCH = "no branch was made with this tokenizer and template: pass the renderer that the run used"


def policies_of(trace: Trace, nodes: Iterable[int]) -> list[PolicyRecord]:
    """The policies that sampled these nodes, as far as their calls are known."""
    calls = {int(call) for node in nodes for call in trace.graph[node].segments[:, 0]}
    return [trace.head.policies[row] for row in sorted({trace.calls[call].policy for call in calls})]


def foreign_tokenizer(policies: Collection[PolicyRecord], info: RendererInfo) -> str | None:
    """Why tokens of these policies cannot be judged, as a name for the details; None where they can."""
    return _foreign("tokenizer", {policy.tokenizer_hash for policy in policies}, info.tokenizer_hash)


def own_turns(trace: Trace, info: RendererInfo, skipped: Counter[str]) -> Iterator[Node]:
    """The turns that were sampled with the renderer's tokenizer; the others are counted in `skipped`, by reason."""
    for node in trace.graph:
        if not len(node.sampled_ids):
            continue
        foreign = foreign_tokenizer(policies_of(trace, [node.index]), info)
        if foreign is None:
            yield node
        else:
            skipped[foreign] += 1


def foreign_template(policies: Collection[PolicyRecord], info: RendererInfo) -> str | None:
    """As `foreign_tokenizer`, where it also matters what the template writes."""
    why = foreign_tokenizer(policies, info)
    why = why or _foreign("template", {policy.template_hash for policy in policies}, info.template_hash)
    if why is None and {policy.tool_prompt for policy in policies} != {info.tool_prompt}:
        return "other_tool_prompt"
    if why is None and any(policy.template_settings != info.settings for policy in policies):
        return "other_settings"
    return why


def tools_changed(trace: Trace, nodes: Iterable[int]) -> bool:
    """True where the tools on a path are no longer those of the trace's head: with which ones it was rendered is not
    in the record."""
    forks = (trace.graph[node].fork for node in nodes)
    return any(fork is not None and fork.reason is ForkReason.TOOLS_CHANGED for fork in forks)


def _foreign(what: str, hashes: set[str], ours: str) -> str | None:
    if not hashes or "" in hashes:
        return f"unknown_{what}"
    return None if hashes == {ours} else f"other_{what}"
