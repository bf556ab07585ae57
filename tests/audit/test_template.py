"""Template drift: branches that the template writes otherwise now, by the finding that explains it."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import numpy as np
import pytest

from rollbook.audit import Status
from rollbook.audit.template import MOST
from rollbook.render import RenderedMessage, Rendering
from rollbook.render.context import as_written
from rollbook.rollout import RolloutSettings, rollout
from rollbook.trace import (
    ContextPolicy,
    Finish,
    Fork,
    ForkReason,
    Message,
    Origin,
    ParseStatus,
    PolicyRecord,
    Role,
    RunKind,
    Task,
    ToolSpec,
    Trace,
    TraceHead,
    make_runs,
    redact,
)
from tests.audit.build import Spelling, check, sound
from tests.audit.rendered import CALL, Tools, continued, edited, put, rolled, said, small, without
from tests.cases.case import Script, Talk, byte_ids, bytes_renderer, reply, run_one, says

NAME = "template_drift"
THOUGHT = f"<think>\nI double.\n</think>\n\n{CALL}"


@pytest.mark.parametrize("name", ["smollm2-marked", "smollm2-text"])
def test_a_rollout_that_the_template_writes_as_it_was_has_none(name: str) -> None:
    renderer, stop = small(name)
    row = check(NAME, rolled(renderer, CALL, "It is 8.", "Bye.", stop=stop), renderer=renderer)
    assert (row.status, row.value, row.n, row.found) == (Status.INFO, 0.0, 1, 0)


@pytest.mark.parametrize("name", ["qwen3-marked", "qwen3-text"])
def test_reasoning_that_the_template_drops_is_named(name: str) -> None:
    renderer, stop = small(name)
    trace = rolled(renderer, THOUGHT, "It is 8.", "Bye.", stop=stop)
    row = check(NAME, trace, renderer=renderer)
    assert (row.value, row.details["reasoning=dropped"], row.details["only_in_last_turn"]) == (1.0, 1, 0)
    (finding,) = row.findings
    assert finding.node == 1
    assert finding.token in trace.graph[1].sampled_positions[:2]
    assert "hink>\\nI double." in finding.text
    assert finding.text.endswith("(reasoning=dropped)")


def test_a_last_turn_that_alone_differs_is_counted_apart() -> None:
    renderer, stop = small("qwen3-marked")
    row = check(NAME, rolled(renderer, "It is 8.", "Bye.", stop=stop), renderer=renderer)
    assert (row.value, row.details["only_in_last_turn"], row.details["other_cause"]) == (1.0, 1, 1)
    assert row.findings[0].node == 3


def test_text_that_is_not_the_templates_is_found_at_its_token() -> None:
    renderer, stop = small("smollm2-marked")
    trace = rolled(renderer, CALL, "It is 8.", "Bye.", stop=stop)
    (finding,) = check(NAME, edited(trace, node=3, change=without(0)), renderer=renderer).findings
    assert (finding.node, finding.token) == (3, 0)
    last = len(trace.graph[2].token_ids) - 1
    (finding,) = check(NAME, edited(trace, node=2, change=put(last, 65)), renderer=renderer).findings
    assert (finding.node, finding.token) == (2, last)


def test_a_text_that_is_too_short_is_found_at_its_end() -> None:
    renderer, stop = small("smollm2-marked")
    trace = rolled(renderer, "It is 8.", stop=stop)
    last = trace.graph[len(trace.graph) - 1]
    message = msgspec.structs.replace(last.message, content=last.message.content + " More.")
    longer = Trace(trace.head)
    for node in trace.graph:
        longer.graph.add(
            node.message if node.index != last.index else message,
            parent=node.parent, origin=node.origin if node.index != last.index else Origin.HARNESS,
            token_ids=node.token_ids if node.index != last.index else node.token_ids[:-1],
            runs=node.runs if node.index != last.index else make_runs((RunKind.CONTENT, len(node.token_ids) - 1)),
        )  # fmt: skip
    (finding,) = check(NAME, longer, renderer=renderer).findings
    assert (finding.node, finding.token) == (last.index, len(last.token_ids) - 2)


def test_other_ids_of_the_same_text_are_no_template_drift() -> None:
    renderer = bytes_renderer()
    trace = run_one(lambda: Talk(["and?"]), Script([says("hi"), says("bye")]), renderer=renderer)
    assert check(NAME, trace, renderer=renderer).value == 0
    small_renderer, stop = small("smollm2-marked")
    ids = [int(small_renderer.encode(letter)[0]) for letter in "The answer"]
    split = run_one(Talk, Script([reply([*ids, stop])]), renderer=small_renderer)
    assert check("drift", split, renderer=small_renderer).value == 1.0
    assert check(NAME, split, renderer=small_renderer).value == 0.0


def test_a_last_turn_that_was_cut_is_not_expected_to_end() -> None:
    renderer = bytes_renderer()
    cut = run_one(Talk, Script([reply(byte_ids("half"), Finish.STOP_STRING)]), renderer=renderer, stop=("f",))
    row = check(NAME, cut, renderer=renderer)
    assert (row.value, row.n) == (0.0, 1)


BAD = CALL.replace("}}", "}")


def test_a_call_that_did_not_parse_has_no_form_in_the_template() -> None:
    renderer, stop = small("smollm2-marked")
    bad = rolled(renderer, BAD, "Hm.", stop=stop)
    assert bad.turns()[0].message.tool_calls[0].status is ParseStatus.INVALID_JSON
    row = check(NAME, bad, renderer=renderer)
    assert (row.status, row.details["refused_by_template"]) == (Status.NOT_JUDGED, 1)
    assert "did not parse" in row.says
    assert check(NAME, bad, rolled(renderer, CALL, "8", stop=stop), renderer=renderer).n == 1


def test_a_last_turn_that_the_template_has_no_form_for_is_left_out() -> None:
    renderer, stop = small("smollm2-marked")
    bad = rolled(renderer, BAD, "Hm.", stop=stop)
    trace = edited(bad, node=0, change=lambda each: (each.token_ids, each.runs), nodes=3)
    row = check(NAME, trace, renderer=renderer)
    assert (row.value, row.n, row.details["judged_without_last_turn"]) == (0.0, 1, 1)
    row = check(NAME, edited(trace, node=1, change=put(0, 65)), renderer=renderer)
    assert (row.value, row.findings[0].node, row.details["only_in_last_turn"]) == (1.0, 1, 0)
    whole = check(NAME, rolled(renderer, CALL, "8", stop=stop), renderer=renderer)
    assert whole.details["judged_without_last_turn"] == 0


def test_rewritten_history_is_judged_on_its_own_branch() -> None:
    renderer, stop = small("qwen3-marked")
    trace = rolled(renderer, THOUGHT, "It is 8.", "Bye.", stop=stop)
    whole = renderer.rerender([as_written(each) for each in trace.graph.messages[:5]], trace.head.tools).messages
    made = trace
    for place in range(1, 5):
        fork = Fork(reason=ForkReason.TEMPLATE_REWRITE) if place == 1 else None
        parent = 0 if place == 1 else len(made.graph) - 1
        made = continued(made, parent, whole[place].message, whole[place].token_ids, whole[place].runs, fork)
    row = check(NAME, made, renderer=renderer)
    assert (row.value, row.n, row.findings[0].node) == (0.5, 2, 1)


@pytest.mark.parametrize("name", ["qwen3-marked", "qwen3-text"])
def test_under_the_context_policy_template_only_the_first_branch_differs(name: str) -> None:
    renderer, stop = small(name)
    script = Script(
        [said(renderer, text, stop=stop) for text in (THOUGHT, "<think>\nYes.\n</think>\n\nIt is 8.", "Bye.")]
    )
    settings = RolloutSettings(context=ContextPolicy.TEMPLATE)
    task = Task(id="t", prompt="Double 4.")
    trace = asyncio.run(rollout(lambda: Tools(["And then?"]), task, script.loaded(renderer), settings=settings))
    assert len(trace.graph.branches()) == 2
    row = check(NAME, trace, renderer=renderer)
    assert [row.details[each] for each in ("branches", "only_in_last_turn")] == [2, 1]
    assert check("separators", trace, renderer=renderer).value == 0
    assert check("control_in_content", trace, renderer=renderer).value == 0


def test_many_branches_are_sampled_and_it_says_so() -> None:
    renderer, stop = small("smollm2-marked")
    trace = rolled(renderer, "It is 8.", stop=stop)
    extra = renderer.extend(stop, [Message(role=Role.USER, content="x")], ()).messages[0]
    leaf = len(trace.graph) - 1
    made = trace
    for _ in range(9):
        fork = Fork(reason=ForkReason.EDITED_HISTORY) if len(made.graph) > leaf + 1 else None
        made = continued(made, leaf, extra.message, extra.token_ids, extra.runs, fork)
    row = check(NAME, made, renderer=renderer)
    assert (row.value, row.n, row.details["branches"], row.details["most_per_trace"]) == (0.0, MOST, 9, MOST)


def test_what_cannot_be_judged_is_skipped_and_counted() -> None:
    renderer, stop = small("smollm2-marked")
    trace = rolled(renderer, CALL, "It is 8.", stop=stop)
    assert "pass the run's renderer" in check(NAME, trace).says
    assert check(NAME, redact(trace, 1), renderer=renderer).details["redacted"] == 1
    row = check(NAME, sound(), trace, renderer=renderer)
    assert (row.value, row.n, row.details["other_tokenizer"]) == (0.0, 1, 1)
    untold = Trace(trace.head)
    untold.graph.add(Message(role=Role.USER, content="x"), parent=-1, origin=Origin.USER)
    assert check(NAME, untold, renderer=renderer).details["messages_without_tokens"] == 1
    assert check(NAME, Trace(trace.head), renderer=renderer).status is Status.NOT_JUDGED


class Otherwise(Spelling):
    """A template that writes the second token of every message as another one."""

    def __init__(self, *findings: str) -> None:
        super().__init__()
        self.info = dataclasses.replace(self.info, template_hash="t", findings=findings)

    def rerender(self, messages: list[Message], tools: object) -> Rendering:
        ids = np.array([0, 99, 2, 3], np.int32)
        runs = make_runs((RunKind.CONTENT, 4))
        rendered = [RenderedMessage(message=message, token_ids=ids, runs=runs) for message in messages]
        return Rendering(messages=tuple(rendered), prompt_ids=ids, inside_reasoning=False, tools_rendered=True)


@pytest.mark.parametrize(
    ("message", "tools", "cause"),
    [
        (Message(role=Role.USER), True, "tools=move"),
        (Message(role=Role.SYSTEM), False, "system=moves"),
        (Message(role=Role.ASSISTANT, reasoning="r"), True, "reasoning=dropped"),
        (Message(role=Role.ASSISTANT), True, "prompt=opens reasoning"),
    ],
)
def test_the_cause_is_the_finding_that_explains_the_first_difference(message: Message, tools: bool, cause: str) -> None:
    labels = ("append_only=no", "reasoning=dropped", "prompt=opens reasoning", "tools=move", "system=moves", "bridge=x")
    offered = (ToolSpec(name="t", description="", parameters={}),) if tools else ()
    head = TraceHead(
        rollout="r", group="g", task=Task(id="t", prompt="?"), tools=offered,
        policies=(PolicyRecord(name="p", tokenizer_hash="tok", template_hash="t"),),
    )  # fmt: skip
    trace = Trace(head)
    trace.graph.add(
        message, parent=-1, origin=Origin.HARNESS, token_ids=np.arange(4, dtype=np.int32),
        runs=make_runs((RunKind.CONTENT, 4)),
    )  # fmt: skip
    row = check(NAME, trace, renderer=Otherwise(*labels))
    assert row.details[cause] == 1
    assert (row.findings[0].node, row.findings[0].token) == (0, 1)
    assert check(NAME, trace, renderer=Otherwise()).details["other_cause"] == 1
    bridged = check(NAME, trace, renderer=Otherwise("bridge=x")).details
    assert ("bridge=x" in bridged) is (message.role is not Role.ASSISTANT)
