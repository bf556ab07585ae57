"""Begin tokens: as many as the template writes, and none later on."""

from __future__ import annotations

import pytest

from rollbook.audit import Status
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.trace import Fork, ForkReason, Message, Role, RunKind, Trace, make_runs, redact
from tests.audit.build import Build, Spelling, check, sound
from tests.audit.rendered import CALL, beginning, continued, edited, put, rolled, small, without
from tests.cases.case import Talk
from tests.render.families import template, tokenizer_json

NAME = "begin_tokens"


@pytest.fixture(scope="module")
def renderer() -> ChatRenderer:
    return beginning()


@pytest.fixture
def trace(renderer: ChatRenderer) -> Trace:
    return rolled(renderer, CALL, "It is 8.")


def test_a_real_rollout_begins_as_the_template_does(renderer: ChatRenderer, trace: Trace) -> None:
    assert trace.graph[0].token_ids[:2].tolist() == [
        renderer.begin_id,
        renderer.reencode(renderer.encode("<|im_start|>"))[0],
    ]
    row = check(NAME, trace, renderer=renderer)
    assert (row.status, row.value, row.n, row.details["template_writes"]) == (Status.OK, 0.0, 1, 1)


def test_a_doubled_one_breaks(renderer: ChatRenderer, trace: Trace) -> None:
    assert renderer.begin_id is not None
    row = check(NAME, edited(trace, node=0, change=put(0, renderer.begin_id)), renderer=renderer)
    assert (row.status, row.value, row.found) == (Status.BROKE, 1.0, 1)
    (finding,) = row.findings
    assert (finding.node, finding.token) == (0, 0)
    assert finding.text == "begins with 2 <|endoftext|>, where the template writes 1"


def test_a_missing_one_breaks(renderer: ChatRenderer, trace: Trace) -> None:
    row = check(NAME, edited(trace, node=0, change=without(0)), renderer=renderer)
    assert (row.value, row.findings[0].text) == (1.0, "begins with 0 <|endoftext|>, where the template writes 1")


@pytest.mark.parametrize("kind", [RunKind.SCAFFOLD, RunKind.CONTENT])
def test_one_later_on_breaks(renderer: ChatRenderer, trace: Trace, kind: RunKind) -> None:
    assert renderer.begin_id is not None
    row = check(NAME, edited(trace, node=2, change=put(3, renderer.begin_id, kind)), trace, renderer=renderer)
    assert (row.value, row.n) == (1.0, 2)
    (finding,) = row.findings
    assert (finding.node, finding.token, finding.text) == (2, 3, "<|endoftext|> inside a conversation")


def test_one_that_was_sampled_is_the_policys(renderer: ChatRenderer, trace: Trace) -> None:
    said = rolled(renderer, "Hm <|endoftext|> hm.")
    assert renderer.begin_id in said.graph[1].sampled_ids
    assert check(NAME, said, renderer=renderer).value == 0


def test_each_branch_counts_and_a_shared_place_is_found_once(renderer: ChatRenderer, trace: Trace) -> None:
    assert renderer.begin_id is not None
    doubled = edited(trace, node=0, change=put(0, renderer.begin_id))
    first = trace.graph[0]
    forked = continued(
        doubled, 1, first.message, first.token_ids[1:], make_runs((RunKind.CONTENT, len(first.token_ids) - 1)),
        Fork(reason=ForkReason.EDITED_HISTORY),
    )  # fmt: skip
    row = check(NAME, forked, renderer=renderer)
    assert (row.value, row.n, row.found) == (2.0, 2, 1)


def test_a_conversation_of_its_own_begins_anew(renderer: ChatRenderer, trace: Trace) -> None:
    message = Message(role=Role.USER, content="x")
    rendered = renderer.open([message], ()).messages[0]
    more = continued(trace, -1, message, rendered.token_ids, rendered.runs, Fork(reason=ForkReason.NEW_ROOT))
    assert check(NAME, more, renderer=renderer).value == 0
    bare = continued(trace, -1, message, rendered.token_ids[1:], make_runs((0, len(rendered.token_ids) - 1)),
                     Fork(reason=ForkReason.NEW_ROOT))  # fmt: skip
    row = check(NAME, bare, renderer=renderer)
    assert (row.value, row.findings[0].node) == (1.0, len(trace.graph))


def test_a_token_that_begins_every_turn_is_judged_at_the_start_only() -> None:
    text = template("smollm2")
    _, stop = small("smollm2-marked")
    config = RendererConfig(name="smollm2", stop_ids=frozenset({stop}), special_tokens={"bos_token": "<|im_start|>"})
    marker = ChatRenderer.build(tokenizer_json(marked=True), text, config)
    trace = rolled(marker, "Hm.", "Hm.", stop=stop, make=lambda: Talk(["?"]))
    row = check(NAME, trace, renderer=marker)
    assert (row.status, row.value, row.details["marks_turns_too"]) == (Status.OK, 0.0, 1)
    assert marker.begin_id is not None
    assert check(NAME, edited(trace, node=0, change=put(0, marker.begin_id)), renderer=marker).value == 1


def test_a_template_that_writes_none_wants_none(trace: Trace) -> None:
    _, stop = small("qwen3-marked")
    config = RendererConfig(name="qwen3", stop_ids=frozenset({stop}), special_tokens={"bos_token": "<|endoftext|>"})
    bare = ChatRenderer.build(tokenizer_json(marked=True), template("qwen3"), config)
    sound = rolled(bare, "Hm.", stop=stop)
    assert check(NAME, sound, renderer=bare).value == 0
    assert bare.begin_id is not None
    assert check(NAME, edited(sound, node=0, change=put(0, bare.begin_id)), renderer=bare).value == 1


def test_what_cannot_be_judged_says_why(renderer: ChatRenderer, trace: Trace) -> None:
    assert "pass the run's renderer" in check(NAME, trace).says
    nameless, stop = small("qwen3-marked")
    row = check(NAME, rolled(nameless, "Hm.", stop=stop), renderer=nameless)
    assert (row.status, row.says) == (Status.NOT_JUDGED, "Not judged: the model names no begin token.")
    row = check(NAME, sound(), renderer=renderer)
    assert (row.status, row.details["other_tokenizer"]) == (Status.NOT_JUDGED, 1)
    row = check(NAME, trace, sound(), renderer=renderer)
    assert (row.status, row.n, row.details["other_tokenizer"]) == (Status.OK, 1, 1)


def test_another_template_is_skipped(renderer: ChatRenderer) -> None:
    build = Build(tokenizer=renderer.info.tokenizer_hash).observe().turn()
    assert check(NAME, build.end(), renderer=renderer).details["unknown_template"] == 1


def test_a_branch_without_its_tokens_is_skipped(renderer: ChatRenderer, trace: Trace) -> None:
    row = check(NAME, redact(trace, 0), renderer=renderer)
    assert (row.status, row.details["redacted"]) == (Status.NOT_JUDGED, 1)
    empty = Trace(trace.head)
    empty.graph.add(Message(role=Role.USER, content="x"), parent=-1, origin=trace.graph.origin(0))
    assert check(NAME, empty, renderer=renderer).details["no_tokens"] == 1


def test_a_template_that_takes_no_question_cannot_tell() -> None:
    renderer = Spelling()
    renderer.begin_id = 1
    assert "refuses a plain question (there is no template)" in check(NAME, sound(), renderer=renderer).says
