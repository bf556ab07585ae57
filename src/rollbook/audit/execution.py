"""Calls that ran although they must not have: only a well-formed call of a finished turn executes.

From the record alone: a tool message is a *result*. It breaks the rule where (1) no earlier message of its path holds
the call that it names; (2) that call's status is not ``ok`` and the result is not an error observation with fault
``policy``; (3) the call is ``ok`` but its turn was cut (its last segment did not stop by itself), and the result is
not such an observation either. Where a redaction took the call or the result away, it cannot be told, and the result is
counted as such. A result that stands again on a branch where history was written anew ran once, and is looked at once.
"""

from __future__ import annotations

from collections import Counter

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.call import Finish
from rollbook.trace.message import Fault, Message, Origin, ParseStatus, Role, ToolCall
from rollbook.trace.node import ROOT, Mark
from rollbook.trace.record import EdgeLabel
from rollbook.trace.trace import Trace

__all__ = ["ExecutedAfterFault"]

_FINISHED = (Finish.STOP, Finish.STOP_STRING)


class ExecutedAfterFault:
    """Number of results of calls that must not have run."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.results = self.redacted = 0
        self.kinds = Counter[str](no_such_call=0, faulty_call=0, cut_turn=0)

    def see(self, trace: Trace) -> None:
        again = {edge.source.node for edge in trace.edges if edge.label == EdgeLabel.REWRITE_OF}
        for node, message in enumerate(trace.graph.messages):
            if node in again:
                continue
            if message.role is Role.TOOL and trace.graph.origin(node) is not Origin.SYNTHETIC:
                self.results += 1
                self._result(trace, node, message)

    def _result(self, trace: Trace, node: int, message: Message) -> None:
        marks = trace.graph.marks
        turn, call = _answered(trace, node, message.call_id)
        if marks.get(node) is Mark.REDACTED or (call is None and _redacted_above(trace, node)):
            self.redacted += 1
        elif call is None:
            self._found(trace, node, "no_such_call", f"answers call {message.call_id!a}, which its path does not hold")
        elif message.fault is Fault.POLICY:
            return
        elif call.status is not ParseStatus.OK:
            self._found(
                trace, node, "faulty_call", f"call {call.id!a} of node {turn} is {call.status} and got a result"
            )
        elif (finish := _finish(trace, turn)) is not None and finish not in _FINISHED:
            text = f"call {call.id!a} ran although its turn, node {turn}, was cut ({finish})"
            self._found(trace, node, "cut_turn", text)

    def _found(self, trace: Trace, node: int, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        self.findings.add(trace, text, node=node)

    def finish(self) -> Measure:
        return Measure.count(self.kinds.total(), self.results, **self.kinds, redacted=self.redacted)


def _answered(trace: Trace, node: int, call_id: str | None) -> tuple[int, ToolCall | None]:
    """The nearest earlier message of the path that holds the call, and the call."""
    above = trace.graph.parent(node)
    while above != ROOT:
        for call in trace.graph.messages[above].tool_calls:
            if call.id == call_id:
                return above, call
        above = trace.graph.parent(above)
    return ROOT, None


def _redacted_above(trace: Trace, node: int) -> bool:
    return bool(trace.graph.marks) and any(
        trace.graph.marks.get(above) is Mark.REDACTED for above in trace.graph.path(node).tolist()
    )


def _finish(trace: Trace, node: int) -> Finish | None:
    """How the last engine call of a turn stopped; None for a message that no engine made."""
    calls: list[int] = trace.graph[node].segments[:, 0].tolist()
    return trace.calls[calls[-1]].finish if calls and calls[-1] < len(trace.calls) else None
