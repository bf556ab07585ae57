"""Tools that were given and never reached the prompt: the model was asked to use what it was not told of."""

from __future__ import annotations

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.trace import Trace

__all__ = ["ToolsUnrendered"]


class ToolsUnrendered:
    """Number of rollouts whose tools do not stand in the prompt's tokens.

    Where the record has a prompt's tokens it must know. Without tokens (text-only engines) nobody does, nor where no
    call of an engine was recorded (an import), and the rollout is counted as unknown; one that stopped before its first
    prompt had none to put them in, and is not counted.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.given = self.dropped = self.unknown = 0

    def see(self, trace: Trace) -> None:
        head = trace.head
        if not head.tools:
            return
        if head.tools_rendered is None and not len(trace.graph):
            return
        if head.tools_rendered is None and not (head.tokens and trace.calls):
            self.unknown += 1
            return
        self.given += 1
        if not head.tools_rendered:
            self.dropped += 1
            what = "not known to stand" if head.tools_rendered is None else "do not stand"
            self.findings.add(trace, f"{len(head.tools)} tools {what} in the prompt")

    def finish(self) -> Measure:
        if self.unknown and not self.given:
            return Measure.none(
                "the engine takes text, or its calls were not recorded: what was rendered is not known",
                unknown=self.unknown,
            )
        return Measure.count(self.dropped, self.given, unknown=self.unknown)
