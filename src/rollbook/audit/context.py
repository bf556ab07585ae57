"""Reasoning that stays in context while a policy is trained, and that the policy's chat template drops later.

A rollout counts where its context policy is ``keep``, its seat and a policy of its table train, that policy's template
drops the reasoning of earlier turns, and on one path a turn with reasoning is followed by a user message and another
turn. Where only tool results stand between, it depends on the template whether it is dropped there, and the rollout is
counted apart. Under ``template`` reasoning leaves context as it does where the policy is deployed. What a template
drops is in the record; where that names no finding, the template is sound or the record older, and the rollout is
counted as such.
"""

from __future__ import annotations

from rollbook.audit.measure import Findings, Measure
from rollbook.render.findings import Property
from rollbook.trace.message import Role
from rollbook.trace.node import Branch
from rollbook.trace.record import ContextPolicy
from rollbook.trace.trace import Trace

__all__ = ["DROPPED", "ReasoningKept"]

DROPPED = f"{Property.REASONING}=dropped"
"""The finding of a template that drops the reasoning of earlier turns."""


class ReasoningKept:
    """Share of rollouts with reasoning in context that the template would not have shown there."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.judged = self.kept = self.behind_results = self.without_findings = 0

    def see(self, trace: Trace) -> None:
        trained = [policy for policy in trace.head.policies if policy.trainable and trace.head.agent.trainable]
        turns: list[int] = trace.policy_nodes.tolist()
        if not trained or not any(trace.graph.messages[node].reasoning for node in turns):
            return
        self.judged += 1
        self.without_findings += not any(policy.template_findings for policy in trained)
        drops = next((policy for policy in trained if DROPPED in policy.template_findings), None)
        if drops is None or trace.head.context_policy is not ContextPolicy.KEEP:
            return
        places = [_kept(trace, branch, set(turns)) for branch in trace.graph.branches()]
        certain = next((node for node, behind_user in filter(None, places) if behind_user), None)
        if certain is not None:
            self.kept += 1
            text = f"its reasoning stands in a later prompt, where the template of {drops.name} drops it"
            self.findings.add(trace, text, node=certain)
        elif any(places):
            self.behind_results += 1

    def finish(self) -> Measure:
        nothing = "no rollout that trains has reasoning in it"
        details = {"behind_results_only": self.behind_results, "without_findings": self.without_findings}
        return Measure.share(self.kept, self.judged, nothing, **details)


def _kept(trace: Trace, branch: Branch, turns: set[int]) -> tuple[int, bool] | None:
    """The first turn with reasoning on the branch and whether a user message stands between it and a later turn; None
    where no turn follows it."""
    thought: int | None = None
    user, found = False, None
    path: list[int] = branch.nodes.tolist()
    for node in path:
        message = trace.graph.messages[node]
        if thought is not None and node in turns:
            found = (thought, user)
        elif node in turns and message.reasoning:
            thought = node
        user = user or (thought is not None and message.role is Role.USER)
    return found
