"""Separators: what stands between a turn and the next messages is what the template writes there."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.audit import Status
from rollbook.audit.separators import MOST
from rollbook.render import ChatRenderer
from rollbook.rollout import Limits
from rollbook.trace import (
    ContextPolicy,
    Finish,
    Fork,
    ForkReason,
    Message,
    Origin,
    ParseStatus,
    Role,
    RunKind,
    ToolCall,
    Trace,
    make_runs,
    redact,
)
from tests.audit.build import Build, Spelling, check, sound
from tests.audit.rendered import CALL, Tools, beginning, continued, edited, put, rolled, small, without
from tests.cases.case import Script, Talk, byte_ids, bytes_renderer, reply, report, run_one, says
from tests.render.families import SMALL

NAME = "separators"
STOP = 151645


@pytest.mark.parametrize("name", SMALL)
def test_a_real_rollout_has_the_templates_own(name: str) -> None:
    renderer, stop = small(name)
    trace = rolled(renderer, f"<think>\nplan\n</think>\n\n{CALL}\n{CALL}", "It is 8.", "Bye.", stop=stop)
    row = check(NAME, trace, renderer=renderer)
    assert (row.status, row.value, row.n, row.details["boundaries"]) == (Status.OK, 0.0, 2, 2)


@report("B01")
def test_a_line_end_that_was_left_out_is_found(given: dict[str, Any], qwen: ChatRenderer) -> None:
    trace = rolled(qwen, CALL, "It is 20C.", stop=STOP, make=lambda: Tools((), given["observation"]))
    right = given["correct_next"]
    assert trace.graph[1].token_ids[-2:].tolist() == given["generated_tail"]
    assert trace.graph[2].token_ids[: len(right)].tolist() == right
    assert check(NAME, trace, renderer=qwen).value == 0
    naive = edited(trace, node=2, change=without(0))
    assert naive.graph[2].token_ids[: len(given["naive_next"])].tolist() == given["naive_next"]
    row = check(NAME, naive, trace, renderer=qwen)
    assert (row.status, row.value, row.n) == (Status.BROKE, 1.0, 2)
    (finding,) = row.findings
    assert (finding.node, finding.token) == (2, 0)
    assert finding.text.startswith("stored [151644, 872, 198, 151665] ")
    assert "the template writes [198, 151644, 872, 198] " in finding.text


def made() -> tuple[ChatRenderer, Trace]:
    renderer, stop = small("qwen3-marked")
    return renderer, rolled(renderer, CALL, "It is 8.", "Bye.", stop=stop)


def test_a_generation_prompt_that_is_short_is_found() -> None:
    renderer, trace = made()
    (finding,) = check(NAME, edited(trace, node=3, change=without(0)), renderer=renderer).findings
    assert (finding.node, finding.token) == (3, 0)
    size = len(trace.graph[3].token_ids) - len(trace.graph[3].sampled_ids)
    (finding,) = check(NAME, edited(trace, node=3, change=without(size - 1)), renderer=renderer).findings
    assert (finding.node, finding.token) == (3, size - 2)


def test_a_turn_without_any_generation_prompt_is_found() -> None:
    renderer, trace = made()
    lead = len(trace.graph[3].token_ids) - len(trace.graph[3].sampled_ids)
    bare = edited(trace, node=3, change=lambda node: (node.sampled_ids, node.runs[1:]))
    assert lead
    (finding,) = check(NAME, bare, renderer=renderer).findings
    assert (finding.node, finding.token) == (3, None)


def test_an_observation_at_the_end_is_judged_too() -> None:
    renderer, trace = made()
    last = trace.graph[5].parent
    cut = edited(trace, node=0, change=lambda each: (each.token_ids, each.runs), nodes=last + 1)
    row = check(NAME, cut, renderer=renderer)
    assert (row.value, row.n) == (0.0, 2)
    token = len(trace.graph[last].token_ids) - 1
    (finding,) = check(NAME, edited(cut, node=last, change=without(token)), renderer=renderer).findings
    assert (finding.node, finding.token) == (last, token - 1)


def test_two_turns_behind_one_batch_are_two_boundaries() -> None:
    renderer, trace = made()
    node = trace.graph[5]
    again = edited(trace, node=5, change=lambda each: (each.token_ids, each.runs), end=False)
    again.graph.add(
        node.message, parent=node.parent, origin=node.origin, token_ids=node.token_ids, runs=node.runs,
        logprobs=node.logprobs, fork=Fork(reason=ForkReason.RETRY),
    )  # fmt: skip
    row = check(NAME, again, renderer=renderer)
    assert (row.value, row.n, row.details["boundaries"]) == (0.0, 3, 3)


def test_a_cut_turn_needs_its_forced_close() -> None:
    renderer = bytes_renderer()
    script = Script([reply(byte_ids("half a sen"), Finish.STOP_STRING), says("bye")])
    trace = run_one(lambda: Talk(["go on"]), script, renderer=renderer, stop=("sen",), limits=Limits())
    assert trace.graph[2].runs[0].tolist() == [RunKind.FORCED, 1]
    assert check(NAME, trace, renderer=renderer).value == 0
    open_turn = edited(trace, node=2, change=without(0))
    row = check(NAME, open_turn, renderer=renderer)
    assert (row.value, row.findings[0].node, row.findings[0].token) == (1.0, 2, 0)


def test_a_prefill_behind_the_generation_prompt_is_no_fault() -> None:
    renderer, trace = made()
    lead = len(trace.graph[3].token_ids) - len(trace.graph[3].sampled_ids)
    begun = edited(trace, node=3, change=put(lead, 65, RunKind.FORCED))
    assert check(NAME, begun, renderer=renderer).value == 0


def test_a_long_trace_is_sampled_and_says_so() -> None:
    renderer = bytes_renderer()
    trace = run_one(lambda: Talk(["?"] * 40), Script([says("hm")]), renderer=renderer, limits=Limits(max_turns=50))
    row = check(NAME, trace, renderer=renderer)
    assert (row.n, row.details["boundaries"], row.details["most_per_trace"]) == (MOST, 40, MOST)
    for node in (2, 80):
        planted = edited(trace, node=node, change=without(0))
        assert check(NAME, planted, renderer=renderer).findings[0].node == node


def test_history_that_the_template_rewrote_is_not_judged_here() -> None:
    renderer, trace = made()
    message = Message(role=Role.USER, content="other")
    ids = np.array([7, 8], np.int32)
    for reason, found in ((ForkReason.TEMPLATE_REWRITE, 0), (ForkReason.EDITED_HISTORY, 1)):
        more = continued(trace, 1, message, ids, make_runs((RunKind.CONTENT, 2)), Fork(reason=reason))
        row = check(NAME, more, renderer=renderer)
        assert (row.value, row.n, row.details.get("rewritten")) == (found, 2 + found, None if found else 1)


def test_behind_a_change_of_tools_nothing_is_judged() -> None:
    renderer, trace = made()
    fork = Fork(reason=ForkReason.TOOLS_CHANGED)
    ids = np.array([7, 8], np.int32)
    more = continued(trace, 1, Message(role=Role.USER, content="x"), ids, make_runs((RunKind.CONTENT, 2)), fork)
    row = check(NAME, more, renderer=renderer)
    assert (row.value, row.n, row.details["tools_changed"]) == (0.0, 2, 1)
    row = check("template_drift", more, renderer=renderer)
    assert (row.n, row.details["tools_changed"]) == (1, 1)


def test_what_a_template_refuses_is_skipped_and_counted() -> None:
    renderer, trace = made()
    bad = Message(
        role=Role.ASSISTANT, tool_calls=(ToolCall(id="x", raw="{", status=ParseStatus.INVALID_JSON),), content=""
    )
    ids = np.array([7, 8], np.int32)
    fork = Fork(reason=ForkReason.EDITED_HISTORY)
    row = check(NAME, continued(trace, 1, bad, ids, make_runs((RunKind.CONTENT, 2)), fork), renderer=renderer)
    assert (row.value, row.n, row.details["refused_by_template"]) == (0.0, 2, 1)


def test_where_the_template_takes_nothing_it_is_not_judged() -> None:
    build = Build().observe().turn().observe().turn()
    policies = (msgspec.structs.replace(build.trace.head.policies[0], template_hash="t"),)
    build.trace.head = msgspec.structs.replace(build.trace.head, policies=policies)
    renderer = Spelling()
    renderer.info = dataclasses.replace(renderer.info, template_hash="t")
    row = check(NAME, build.end(), renderer=renderer)
    assert (row.status, row.details["refused_by_template"]) == (Status.NOT_JUDGED, 1)
    assert "refuses the messages" in row.says


def test_a_redacted_message_is_not_judged_and_a_redacted_turn_is_no_boundary() -> None:
    renderer, trace = made()
    row = check(NAME, redact(trace, 2), renderer=renderer)
    assert (row.value, row.n, row.details["redacted"]) == (0.0, 1, 1)
    row = check(NAME, redact(trace, 3), renderer=renderer)
    assert (row.value, row.n) == (0.0, 1)


def test_rewritten_history_is_left_out_where_the_bridge_is_not_exact() -> None:
    renderer, trace = made()

    bridged = Spelling()
    bridged.info = dataclasses.replace(renderer.info, findings=("bridge=without the system message",))
    trace.head = msgspec.structs.replace(trace.head, context_policy=ContextPolicy.TEMPLATE)
    row = check(NAME, trace, renderer=bridged)
    assert (row.status, row.details["rendered_as_a_whole"]) == (Status.NOT_JUDGED, 2)


def test_without_a_renderer_or_with_another_it_is_not_judged() -> None:
    renderer, trace = made()
    assert "pass the run's renderer" in check(NAME, trace).says
    row = check(NAME, trace, renderer=beginning())
    assert (row.status, row.details["other_template"]) == (Status.NOT_JUDGED, 2)
    assert check(NAME, sound(), renderer=renderer).value == 0, "nothing stands behind its turn"
    other, stop = small("smollm2-marked")
    prompted = rolled(other, CALL, "It is 8.", stop=stop)
    plain = tuple(msgspec.structs.replace(policy, tool_prompt=None) for policy in prompted.head.policies)
    prompted.head = msgspec.structs.replace(prompted.head, policies=plain)
    assert check(NAME, prompted, renderer=other).details["other_tool_prompt"] == 1


def test_tokens_that_rollbook_forced_in_are_compared_with_the_rest() -> None:
    renderer, trace = made()
    twice = edited(trace, node=2, change=put(0, int(trace.graph[1].token_ids[-1]), RunKind.FORCED))
    (finding,) = check(NAME, twice, renderer=renderer).findings
    assert (finding.node, finding.token) == (2, 0)
    assert trace.graph.origin(2) is Origin.ENVIRONMENT
