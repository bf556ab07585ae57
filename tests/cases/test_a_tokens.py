"""Re-tokenisation drift: the ids that were sampled stay, whatever their text would be encoded to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.audit import audit_traces
from rollbook.errors import RecordError
from rollbook.export import export
from rollbook.render import ChatRenderer
from rollbook.rollout import Limits
from rollbook.store import RunReader, RunWriter
from rollbook.trace import (
    Edge,
    EdgeLabel,
    EndingKind,
    Finish,
    Fork,
    ForkReason,
    Message,
    NodeRef,
    Origin,
    Reason,
    Role,
    RunKind,
    ToolCall,
    Trace,
    make_runs,
    samples,
)
from rollbook.trace.wire import encode_part
from tests.cases.case import (
    STOP,
    Script,
    Talk,
    add_turn,
    add_user,
    byte_ids,
    bytes_renderer,
    head,
    reply,
    report,
    run_one,
)

QWEN_STOP = 151645


def stored(trace: Trace, folder: Path) -> Trace:
    """The trace as it comes back from disk."""
    with RunWriter.create(folder / "run") as writer:
        writer.seal(trace)
    return RunReader(folder / "run").get(trace.id)


def exported(folder: Path) -> list[dict[str, Any]]:
    export(RunReader(folder / "run"), "jsonl", folder / "out.jsonl")
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def behaviour(trace: Trace) -> tuple[list[int], list[float]]:
    """Ids and logprobs of all sampled tokens, as a trainer gets them."""
    (sample,) = samples(trace)
    return sample.token_ids[sample.loss_mask].tolist(), sample.logprobs[sample.loss_mask].tolist()


@report("A01")
def test_resampling_text_is_counted_as_drift_and_repaired_by_nobody(
    given: dict[str, Any], qwen: ChatRenderer, tmp_path: Path
) -> None:
    ids = given["sampled_ids"]
    script = Script([reply([*ids, QWEN_STOP]), reply([*qwen.encode("Done.").tolist(), QWEN_STOP])])
    trace = run_one(lambda: Talk(["and?"]), script, renderer=qwen)

    first, second = trace.turns()
    assert qwen.decode(first.sampled_ids[:2]) == given["decoded"] == first.message.content
    assert qwen.encode(given["decoded"]).tolist() == given["next_prompt_if_retokenized"]
    assert first.sampled_ids.tolist() == [*ids, QWEN_STOP]
    before = trace.graph.path_ids(first.index)
    assert script.prompts[1][: len(before)].tolist() == before.tolist(), "the next prompt goes on from the sampled ids"

    bits = encode_part(trace)
    drift = audit_traces([trace], renderer=qwen)["drift"]
    assert (drift.value, drift.n) == (0.5, 2)
    assert [(found.node, found.text) for found in drift.findings] == [
        (first.index, f"sampled {[*ids, QWEN_STOP]}, re-encoded {[*given['next_prompt_if_retokenized'], QWEN_STOP]}")
    ]
    assert encode_part(trace) == bits, "the audit changed the record"
    assert behaviour(stored(trace, tmp_path))[0] == [*ids, QWEN_STOP, *second.sampled_ids.tolist()]


WORDS = st.text(st.sampled_from(" Pantom HAVING é語🙂\n"), min_size=1, max_size=12)


@examples(st.lists(WORDS, min_size=1, max_size=4), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_any_spelling_of_a_turn_stays_and_the_audit_counts_the_odd_ones(texts: list[str], odd: int) -> None:
    """The kind: a tokenizer without merges never drifts, one whose ids spell whole control tokens as text does."""
    renderer = bytes_renderer()
    spelled = [byte_ids("<|im_end|>" if place == odd else text) for place, text in enumerate(texts)]
    script = Script([reply([*ids, STOP]) for ids in spelled])
    trace = run_one(lambda: Talk(["and?"] * (len(texts) - 1)), script)
    assert [turn.sampled_ids.tolist() for turn in trace.turns()] == [[*ids, STOP] for ids in spelled]
    drift = audit_traces([trace], renderer=renderer)["drift"]
    assert (drift.found, drift.n) == (int(odd < len(texts)), len(texts))


@pytest.mark.parametrize("text", [" tokenization", "HAVING", "    return x", "こんにちは", "12345"])
def test_a_word_sampled_byte_by_byte_stays_so(text: str, qwen: ChatRenderer) -> None:
    trace = run_one(Talk, Script([reply([*byte_ids(text), QWEN_STOP])]), renderer=qwen)
    assert trace.text == text
    assert trace.turns()[0].sampled_ids.tolist() == [*byte_ids(text), QWEN_STOP]
    assert audit_traces([trace], renderer=qwen)["drift"].found == int(qwen.encode(text).tolist() != byte_ids(text))


@report("A02")
def test_logprobs_belong_to_ids_and_not_to_text(given: dict[str, Any], qwen: ChatRenderer, tmp_path: Path) -> None:
    ids, logprobs = [*given["sampled_ids"], QWEN_STOP], [-0.5, -2.25, -0.125]
    trace = run_one(Talk, Script([reply(ids, logprobs=logprobs)]), renderer=qwen)
    assert trace.text == given["decoded"] == qwen.decode(np.array(given["canonical_ids"], np.int32))
    kept, canonical = (qwen.show(np.array(given[key], np.int32)) for key in ("sampled_ids", "canonical_ids"))
    assert kept.ends.tolist() != canonical.ends.tolist(), "the two splits would put a logprob on other letters"
    assert behaviour(stored(trace, tmp_path)) == (ids, logprobs)
    (row,) = exported(tmp_path)
    assert [value for value in row["logprobs"] if value is not None] == logprobs


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_logprobs_of_another_split_are_refused(count: int, qwen: ChatRenderer) -> None:
    trace = run_one(Talk, Script([reply([39, 83722, QWEN_STOP], logprobs=[-0.5] * count)]), renderer=qwen)
    assert trace.ending is not None
    assert trace.ending.reason is Reason.ENGINE_CONTRACT
    assert not trace.turns(), "nothing is cut or padded to fit"


@pytest.mark.parametrize(
    "spelled", ['{"name": "f",\n "arguments":{}}', '{"arguments": {}, "name": "f"}', '{"name":"f","arguments":{ }}']
)
def test_a_call_stays_as_it_was_spelled(spelled: str, qwen: ChatRenderer) -> None:
    """The post's second source: JSON that is written anew after parsing."""
    ids = [151657, *qwen.encode(spelled).tolist(), 151658, QWEN_STOP]
    script = Script([reply(ids), reply([*byte_ids("ok"), QWEN_STOP])])
    trace = run_one(Talk, script, renderer=qwen)
    (call,) = trace.turns()[0].message.tool_calls
    assert (call.name, call.arguments, call.raw) == ("f", {}, spelled)
    before = trace.graph.path_ids(trace.turns()[0].index)
    assert before[-len(ids) :].tolist() == ids
    assert script.prompts[1][: len(before)].tolist() == before.tolist()


@report("A05")
def test_a_cut_inside_a_character_keeps_ids_and_bytes(
    given: dict[str, Any], qwen: ChatRenderer, tmp_path: Path
) -> None:
    ids = given["sampled_ids"]
    script = Script([reply(ids, Finish(given["finish_reason"]))])
    trace = run_one(Talk, script, renderer=qwen, limits=Limits(max_generation=given["max_tokens"]))
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.LENGTH_CUT, Reason.GENERATION_LIMIT)
    assert script.samplings[0].max_tokens == given["max_tokens"]

    again = stored(trace, tmp_path)
    for each in (trace, again):
        (turn,) = each.turns()
        assert turn.sampled_ids.tolist() == ids
        assert turn.message.content == given["decoded_with_replacement"]
        assert turn.message.raw == bytes.fromhex("f09fab")
        assert len(behaviour(each)[1]) == given["max_tokens"]
    assert qwen.reencode(np.array(ids, np.int32)).tolist() == given["retokenized"]
    assert qwen.decode(np.array([*ids, 254], np.int32)) == "\U0001fae0", "going on from the ids completes it"
    (row,) = exported(tmp_path)
    assert row["token_ids"][-2:] == ids
    assert row["truncated"]


CUTS = [(text, cut) for text in ("é", "語", "🙂", "aé", "🙂语") for cut in range(1, len(text.encode()) + 1)]


@pytest.mark.parametrize(("text", "cut"), CUTS)
def test_a_cut_at_any_byte_of_a_character(text: str, cut: int) -> None:
    data = text.encode()[:cut]
    trace = run_one(Talk, Script([reply(byte_ids(data), Finish.LENGTH)]), limits=Limits(max_generation=cut))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.GENERATION_LIMIT
    (turn,) = trace.turns()
    assert turn.sampled_ids.tolist() == byte_ids(data)
    assert turn.message.content == data.decode(errors="replace")
    whole = turn.message.content.encode() == data
    assert turn.message.raw == (None if whole else data)
    assert bytes_renderer().decode(np.array([*turn.sampled_ids, *byte_ids(text.encode()[cut:])], np.int32)) == text


@pytest.mark.parametrize("text", ["é", "語", "🙂"])
def test_half_a_character_in_the_middle_of_a_turn(text: str) -> None:
    """Bad bytes need no cut: the policy may write them, and end its turn."""
    data = b"a" + text.encode()[:-1] + b"b"
    (turn,) = run_one(Talk, Script([reply([*byte_ids(data), STOP])])).turns()
    assert turn.message.raw == data
    assert turn.sampled_ids.tolist() == [*byte_ids(data), STOP]


def said(text: str, **fields: Any) -> Message:
    """A message from the report's way to write one: ``role: 'text'``."""
    role, _, content = text.partition(": ")
    return Message(role=Role(role.split()[0]), content=content.strip("'"), **fields)


def first_call(given: dict[str, Any], reasoning: str | None = None) -> Trace:
    trace, call = Trace(head()), given["call1"]
    add_user(trace, "", call["prompt_ids"])
    message = Message(role=Role.ASSISTANT, content=call["assistant_text"], reasoning=reasoning)
    add_turn(trace, message, call["output_ids"])
    return trace


@report("A11")
def test_the_parent_is_found_by_messages_and_its_ids_are_spliced(given: dict[str, Any]) -> None:
    trace = first_call(given)
    history = [said(text) for text in given["call2_messages"]]
    node, matched = trace.graph.locate(history)
    assert (node, matched) == (1, 2), "both messages that were there are found, the tool result is new"
    leaf = add_user(trace, "ok", [7], role=Role.TOOL, parent=node)
    ids = trace.graph.path_ids(leaf).tolist()
    assert ids == [*given["call1"]["prompt_ids"], *given["call1"]["output_ids"], 7]
    assert ids != given["call2_prompt_ids_if_rendered"]

    trace = first_call(given, reasoning="hm")
    edited = [said(text) for text in given["call2_messages"][:2]]
    assert "thinking removed" in given["variant"]["call2_messages"][1]
    node, matched = trace.graph.locate(edited)
    assert (node, matched) == (0, 1), "the edited turn is not the sampled one"
    with pytest.raises(RecordError, match="fork reason"):
        rewrite(trace, edited[1], node, None)
    copy = rewrite(trace, edited[1], node, Fork(reason=ForkReason.EDITED_HISTORY))
    trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(copy), target=NodeRef(1)))
    trained = [sample.token_ids[sample.loss_mask].tolist() for sample in samples(trace)]
    assert trained == [given["call1"]["output_ids"]], "the sampled turn trains in its own branch, the copy never"
    assert trace.graph.locate(edited) == (copy, 2)


def rewrite(trace: Trace, message: Message, parent: int, fork: Fork | None) -> int:
    return trace.graph.add(
        message,
        parent=parent,
        origin=Origin.HARNESS,
        token_ids=np.array([393, 30002], np.int32),
        runs=make_runs((RunKind.CONTENT, 2)),
        fork=fork,
    )


TURN = Message(
    role=Role.ASSISTANT,
    content="a",
    reasoning="r",
    tool_calls=(ToolCall(id="c1", name="f", arguments={"x": 1, "y": [1, 2]}),),
)


def changed(**fields: Any) -> Message:
    plain = {"role": TURN.role, "content": TURN.content, "reasoning": TURN.reasoning, "tool_calls": TURN.tool_calls}
    return Message(**{**plain, **fields})


@pytest.mark.parametrize(
    ("message", "same"),
    [
        (changed(), True),
        (changed(tool_calls=(ToolCall(id="other", name="f", arguments={"y": [1, 2], "x": 1}),)), True),
        (changed(tool_calls=(ToolCall(id="c1", name="f", arguments={"x": 1, "y": [1, 2]}, raw="spelled anew"),)), True),
        (changed(content="a "), False),
        (changed(reasoning=None), False),
        (changed(reasoning=""), False),
        (changed(role=Role.USER), False),
        (changed(tool_calls=()), False),
        (changed(tool_calls=(ToolCall(id="c1", name="f", arguments={"x": 1, "y": [2, 1]}),)), False),
        (changed(tool_calls=(ToolCall(id="c1", name="g", arguments={"x": 1, "y": [1, 2]}),)), False),
    ],
)
def test_what_is_the_same_message_and_what_is_not(message: Message, same: bool) -> None:
    trace = Trace(head())
    user = Message(role=Role.USER, content="?")
    add_user(trace, "?", [1])
    add_turn(trace, TURN, [2, 3])
    assert trace.graph.locate([user, message]) == ((1, 2) if same else (0, 1))
