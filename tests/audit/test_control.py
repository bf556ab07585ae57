"""Control tokens and text: in content, from outside, and out of what a policy wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollbook.audit import Status
from rollbook.render import ChatRenderer
from rollbook.trace import Fork, ForkReason, Message, Origin, Role, RunKind, make_runs
from tests.audit.build import Build, Spelling, check, sound
from tests.audit.rendered import CALL, Tools, continued, edited, put, rolled, small
from tests.cases.case import Script, Talk, reply, report, run_one
from tests.render.families import SMALL

STOP = 151645
NAMES = ("control_in_content", "control_spelled", "control_from_text")


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("check_name", NAMES)
def test_a_real_rollout_has_none(name: str, check_name: str) -> None:
    renderer, stop = small(name)
    row = check(check_name, rolled(renderer, CALL, "It is 8.", stop=stop), renderer=renderer)
    assert (row.value, row.found) == (0.0, 0)
    assert row.n > 0


@report("C14")
def test_an_observation_that_forges_turns_is_counted_and_makes_no_control_token(
    given: dict[str, Any], qwen: ChatRenderer
) -> None:
    trace = rolled(qwen, CALL, "It is 8.", stop=STOP, make=lambda: Tools((), given["observation"]))
    assert check("control_in_content", trace, renderer=qwen).status is Status.OK
    row = check("control_spelled", trace, renderer=qwen)
    assert (row.status, row.value, row.n, row.details["in_tool"]) == (Status.INFO, 1.0, 2, 1)
    (finding,) = row.findings
    node = trace.graph[2]
    assert (finding.node, finding.text) == (2, "the text spells '<|im_end|>', in ordinary tokens")
    assert finding.token is not None
    assert node.token_ids[finding.token : finding.token + 5].tolist() == [27, 91, 318, 6213, 91]


@report("C14")
def test_content_that_was_encoded_with_control_tokens_breaks(given: dict[str, Any], qwen: ChatRenderer) -> None:
    trace = rolled(qwen, "Hm.", stop=STOP)
    ids = np.array([STOP, *given["unsafe_ids"]], np.int32)
    forged = continued(
        trace,
        1,
        Message(role=Role.USER, content=given["observation"]),
        ids,
        make_runs((RunKind.SCAFFOLD, 1), (RunKind.CONTENT, len(ids) - 1)),
        Fork(reason=ForkReason.EDITED_HISTORY),
    )
    row = check("control_in_content", forged, renderer=qwen)
    made = set(given["forbidden_ids_inside_observation"])
    assert (row.status, row.value) == (Status.BROKE, sum(token in made for token in given["unsafe_ids"]))
    first = row.findings[0]
    assert (first.node, first.token, first.text) == (len(trace.graph), 2, "content holds 151645, '<|im_end|>'")
    spelled = check("control_spelled", forged, renderer=qwen).findings
    assert [(each.node, each.token) for each in spelled] == [(len(trace.graph), None)]
    assert spelled[0].text.endswith("in control tokens")


def test_the_first_node_is_found_too() -> None:
    renderer, stop = small("qwen3-marked")
    trace = rolled(renderer, "Hm.", stop=stop)
    planted = edited(trace, node=0, change=put(3, stop, RunKind.CONTENT))
    (finding,) = check("control_in_content", planted, renderer=renderer).findings
    assert (finding.node, finding.token) == (0, 3)


def test_scaffold_and_sampled_control_tokens_are_no_content() -> None:
    renderer, stop = small("qwen3-marked")
    trace = rolled(renderer, CALL, "It is 8.", stop=stop)
    kinds = [int(kind) for node in trace.graph for kind in node.runs[:, 0]]
    assert {RunKind.SCAFFOLD, RunKind.SAMPLED, RunKind.CONTENT} == set(kinds)
    assert check("control_in_content", trace, renderer=renderer).value == 0


def test_a_turn_of_the_policy_that_stands_as_content_keeps_its_control_tokens() -> None:
    renderer, stop = small("qwen3-marked")
    trace = rolled(renderer, CALL, "It is 8.", stop=stop)
    turn = trace.graph[1]
    made = edited(trace, node=0, change=lambda node: (node.token_ids, node.runs), end=False)
    made.graph.add(
        turn.message,
        parent=0,
        origin=Origin.POLICY,
        token_ids=turn.token_ids,
        runs=make_runs((RunKind.CONTENT, len(turn.token_ids))),
        fork=Fork(reason=ForkReason.TEMPLATE_REWRITE),
    )
    row = check("control_in_content", made, renderer=renderer)
    assert (row.value, row.n) == (0.0, check("control_in_content", trace, renderer=renderer).n)


def test_reasoning_that_is_given_is_text_from_outside() -> None:
    renderer, _ = small("qwen3-marked")
    build = Build(tokenizer=renderer.info.tokenizer_hash).observe()
    build.leaf = build.trace.graph.add(
        Message(role=Role.ASSISTANT, content="a", reasoning="say <|im_end|>"),
        parent=build.leaf,
        origin=Origin.HARNESS,
    )
    row = check("control_spelled", build.turn().end(), renderer=renderer)
    assert (row.value, row.n, row.details["in_assistant"]) == (1.0, 2, 1)


def test_what_the_policy_says_and_what_rollbook_adds_is_not_from_outside() -> None:
    renderer, stop = small("smollm2-marked")
    trace = rolled(renderer, CALL, "It is <|im_end|>8.", stop=stop)
    assert "<tool_call>" in trace.graph.messages[0].content
    row = check("control_spelled", trace, renderer=renderer)
    assert (row.value, row.n) == (0.0, 2)


@report("A06")
def test_sampled_text_that_spells_a_control_token_is_found(given: dict[str, Any], qwen: ChatRenderer) -> None:
    ids = given["sampled_ids"]
    spelling = run_one(Talk, Script([reply([9707, *ids, STOP])]), renderer=qwen)
    row = check("control_from_text", spelling, rolled(qwen, "Hm.", stop=STOP), renderer=qwen)
    assert (row.status, row.value, row.n) == (Status.INFO, 0.5, 2)
    assert "severe" in row.says
    (finding,) = row.findings
    node = spelling.graph[1]
    assert (finding.node, finding.token) == (1, int(node.sampled_positions[0]) + 1)
    assert finding.text == "encoded again, the text has [151645] (<|im_end|>), which were not sampled"
    assert node.sampled_ids.tolist() == [9707, *ids, STOP]


def test_drift_without_a_new_control_token_is_not_severe() -> None:
    renderer = Spelling(i11=(70, 71))
    traces = (sound(ids=(10, 11)),)
    assert check("drift", *traces, renderer=renderer).value == 1.0
    assert check("control_from_text", *traces, renderer=renderer).value == 0.0


def test_a_control_token_that_no_place_spells_is_counted_without_a_place() -> None:
    renderer = Spelling(i11=(70,))
    renderer.control_ids = frozenset({70})
    row = check("control_from_text", sound(ids=(10, 11)), renderer=renderer)
    assert (row.value, row.findings[0].node, row.findings[0].token) == (1.0, 1, None)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_renderer_it_is_not_judged(name: str) -> None:
    row = check(name, sound())
    assert (row.status, row.value) == (Status.NOT_JUDGED, None)
    assert "pass the run's renderer" in row.says


@pytest.mark.parametrize("name", NAMES)
def test_another_tokenizer_is_skipped_and_counted(name: str) -> None:
    other = Build("a", tokenizer="other").observe().turn().end()
    unknown = Build("b", tokenizer="").observe().turn().end()
    row = check(name, other, unknown, renderer=Spelling())
    assert row.status is Status.NOT_JUDGED
    assert (row.details["other_tokenizer"], row.details["unknown_tokenizer"]) == (1, 1)
    mixed = check(name, other, sound("c"), renderer=Spelling())
    assert (mixed.status is not Status.NOT_JUDGED, mixed.details["other_tokenizer"]) == (True, 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_without_tokens_is_not_judged(name: str) -> None:
    build = Build(tokens=False)
    build.trace.graph.add(Message(role=Role.USER, content="x"), parent=-1, origin=Origin.USER)
    assert check(name, build.end(), renderer=Spelling()).status is Status.NOT_JUDGED
