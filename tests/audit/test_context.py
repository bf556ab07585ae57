"""Reasoning that a template drops where the policy is deployed."""

from __future__ import annotations

import msgspec
import pytest

from rollbook.audit import Status
from rollbook.audit.context import DROPPED
from rollbook.trace import Agent, ContextPolicy, Role, Trace
from tests.audit.build import Build, check, sound


def thinking(
    context: ContextPolicy = ContextPolicy.KEEP,
    *,
    finding: tuple[str, ...] = (DROPPED, "append_only=no"),
    trainable: bool = True,
    seat: bool = True,
    between: Role = Role.USER,
    turns: int = 2,
    reasoning: str | None = "Hm.",
) -> Trace:
    build = Build()
    head = build.trace.head
    (policy,) = head.policies
    policy = msgspec.structs.replace(policy, template_findings=finding, trainable=trainable)
    build.trace.head = msgspec.structs.replace(
        head, policies=(policy,), context_policy=context, agent=Agent(trainable=seat)
    )
    build.observe()
    for turn in range(turns):
        build.turn((10, turn))
        if turn + 1 < turns:
            build.observe(between)
    graph = build.trace.graph
    graph.messages[1] = msgspec.structs.replace(graph.messages[1], reasoning=reasoning)
    return build.end()


def test_reasoning_under_keep_that_the_template_drops_is_said_and_breaks_nothing() -> None:
    row = check("reasoning_kept", thinking(), thinking(ContextPolicy.TEMPLATE), sound())
    assert (row.status, row.value, row.n) == (Status.INFO, 0.5, 2)
    assert (row.findings[0].node, "the template of p drops it" in row.findings[0].text) == (1, True)
    assert "sample under the context policy template" in row.says


@pytest.mark.parametrize(
    "trace",
    [
        thinking(ContextPolicy.TEMPLATE),
        thinking(finding=("reasoning=kept",)),
        thinking(turns=1),
        thinking(between=Role.TOOL),
    ],
    ids=["template", "kept", "one turn", "results only"],
)
def test_reasoning_that_is_not_dropped_there_is_fine(trace: Trace) -> None:
    row = check("reasoning_kept", trace)
    assert (row.value, row.n, row.found) == (0, 1, 0)


def test_where_only_results_follow_it_is_counted_apart() -> None:
    assert check("reasoning_kept", thinking(between=Role.TOOL)).details["behind_results_only"] == 1


def test_an_older_record_does_not_say_what_its_template_drops() -> None:
    row = check("reasoning_kept", thinking(finding=()))
    assert (row.value, row.details["without_findings"]) == (0, 1)


@pytest.mark.parametrize("trace", [thinking(trainable=False), thinking(seat=False), thinking(reasoning=None)])
def test_what_does_not_train_or_think_is_not_judged(trace: Trace) -> None:
    assert check("reasoning_kept", trace).status is Status.NOT_JUDGED
