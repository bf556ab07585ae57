"""How the policy spells its tool calls: the share of attempted calls with certain parse statuses.

A call counts where the policy attempted it, once, whether or not it could be parsed.
"""

from __future__ import annotations

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.message import ParseStatus
from rollbook.trace.trace import Trace

__all__ = ["BAD_ARGUMENTS", "CUT", "INSIDE_REASONING", "MALFORMED", "UNKNOWN_TOOL", "ParseRate"]

MALFORMED = frozenset(
    {ParseStatus.INVALID_JSON, ParseStatus.NOT_AN_OBJECT, ParseStatus.UNCLOSED, ParseStatus.MISSING_NAME}
)
"""Not a well-formed call."""
UNKNOWN_TOOL = frozenset({ParseStatus.UNKNOWN_TOOL})
BAD_ARGUMENTS = frozenset({ParseStatus.BAD_ARGUMENTS})
INSIDE_REASONING = frozenset({ParseStatus.INSIDE_REASONING})
CUT = frozenset({ParseStatus.CUT})


class ParseRate:
    """Share of attempted calls whose status is one of `statuses`."""

    def __init__(self, findings: Findings, statuses: frozenset[ParseStatus]) -> None:
        self.findings, self.statuses = findings, statuses
        self.attempted = 0
        self.by_status = dict.fromkeys(sorted(statuses), 0)

    def see(self, trace: Trace) -> None:
        nodes: list[int] = trace.policy_nodes.tolist()
        for node in nodes:
            for call in trace.graph.messages[node].tool_calls:
                self.attempted += 1
                if call.status in self.statuses:
                    self.by_status[call.status] += 1
                    self.findings.add(trace, f"call {call.id!a}: {call.status}", node=node)

    def finish(self) -> Measure:
        details = {str(status): count for status, count in self.by_status.items()}
        nothing = "no tool call was attempted in this batch"
        return Measure.share(sum(self.by_status.values()), self.attempted, nothing, **details)
