"""How a path goes on: what is shared, what is written anew, and what keeps its ids."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from rollbook.errors import ModelError
from rollbook.render.context import Extension, Past, Rewrite, go_on, same_tools
from rollbook.render.protocol import RenderedMessage
from rollbook.trace import (
    ContextPolicy,
    ForkReason,
    Message,
    MessageGraph,
    Node,
    Origin,
    ParseStatus,
    Role,
    RunKind,
    ToolCall,
    expand_runs,
    make_runs,
)
from rollbook.trace.tools import ToolSpec
from tests.render.families import ADD, Family, build, family, template, tokenizer_json

KEEP, TEMPLATE = ContextPolicy.KEEP, ContextPolicy.TEMPLATE
QWEN = family("qwen3-marked")
ASK = Message(role=Role.USER, content="What is the sum?")
NEXT = Message(role=Role.USER, content="And then?")
SUB = msgspec.structs.replace(ADD, name="sub")


class Path:
    """A conversation as a rollout would have stored it."""

    def __init__(self, chosen: Family = QWEN, tools: Sequence[ToolSpec] = ()) -> None:
        self.chosen, self.tools, self.graph = chosen, tools, MessageGraph()
        self.rendering = chosen.renderer.open([ASK], tools)
        self._add(self.rendering.messages)

    def _add(self, messages: Sequence[RenderedMessage]) -> None:
        for each in messages:
            parent = len(self.graph) - 1
            self.graph.add(each.message, parent=parent, origin=Origin.USER, token_ids=each.token_ids, runs=each.runs)

    def turn(self, message: Message, ids: Sequence[int]) -> Path:
        prompt = self.rendering.prompt_ids
        self.graph.add(
            message,
            parent=len(self.graph) - 1,
            origin=Origin.POLICY,
            token_ids=np.concatenate((prompt, np.array(ids, np.int32))),
            runs=make_runs((RunKind.SCAFFOLD, len(prompt)), (RunKind.SAMPLED, len(ids))),
        )
        return self

    def says(self, text: str, *, stop: bool = True, message: Message | None = None) -> Path:
        ids = self.chosen.renderer.encode(text).tolist()
        said = message or Message(role=Role.ASSISTANT, content=text)
        return self.turn(said, [*ids, *([self.chosen.stop] if stop else [])])

    def asks(self, message: Message = NEXT) -> Path:
        last = int(self.graph[len(self.graph) - 1].token_ids[-1])
        self.rendering = self.chosen.renderer.extend(last, [message], self.tools)
        self._add(self.rendering.messages)
        return self

    def go_on(
        self, policy: ContextPolicy = TEMPLATE, tools: Sequence[ToolSpec] | None = None, new: Message = NEXT
    ) -> Extension | Rewrite:
        nodes = list(self.graph)
        past = Past(last_id=int(nodes[-1].token_ids[-1]), tools=self.tools, nodes=lambda: nodes)
        return go_on(self.chosen.renderer, past, [new], self.tools if tools is None else tools, policy)


THOUGHT = Message(role=Role.ASSISTANT, reasoning="Hm.", content="Three.")
THINKS = "<think>\nHm.\n</think>\n\nThree."


def text_of(chosen: Family, messages: Sequence[RenderedMessage]) -> str:
    return chosen.renderer.decode(np.concatenate([each.token_ids for each in messages]))


def test_under_keep_history_is_not_looked_at() -> None:
    path = Path().says("Three.")

    def nodes() -> Sequence[Node]:
        raise AssertionError("looked at")

    past = Past(last_id=QWEN.stop, tools=[ADD], nodes=nodes)
    step = go_on(QWEN.renderer, past, [NEXT], [ADD], KEEP)
    assert isinstance(step, Extension)
    assert text_of(QWEN, step.rendering.messages) == "\n<|im_start|>user\nAnd then?<|im_end|>\n"
    assert len(path.graph) == 2


def test_an_append_only_history_goes_on_without_a_fork() -> None:
    step = Path().says("Three.").go_on()
    assert isinstance(step, Extension)
    assert text_of(QWEN, step.rendering.messages) == "\n<|im_start|>user\nAnd then?<|im_end|>\n"


def test_other_ids_of_the_same_text_stay_as_they_are() -> None:
    """Drift is never healed: a word sampled letter by letter."""
    encode = QWEN.renderer.encode
    split = [token for letter in "user" for token in encode(letter).tolist()]
    assert split != encode("user").tolist()
    step = Path().turn(Message(role=Role.ASSISTANT, content="user"), [*split, QWEN.stop]).go_on()
    assert isinstance(step, Extension)


def test_what_the_template_drops_is_written_anew_from_there_on() -> None:
    path = Path().says(THINKS, message=THOUGHT).asks().says("Four.")
    before = [node.token_ids.tolist() for node in path.graph]
    step = path.go_on()
    assert isinstance(step, Rewrite)
    assert (step.shared, step.fork.reason) == (1, ForkReason.TEMPLATE_REWRITE)
    assert step.fork.detail.startswith("message 2 (assistant): '<think>")
    assert [each.message for each in step.rendering.messages] == [*path.graph.messages[1:], NEXT]
    shown = text_of(QWEN, step.rendering.messages)
    assert shown.startswith("<|im_start|>assistant\nThree.<|im_end|>\n<|im_start|>user\nAnd then?")
    assert [node.token_ids.tolist() for node in path.graph] == before
    for each in step.rendering.messages:
        assert RunKind.SAMPLED not in expand_runs(each.runs)


def test_behind_a_fork_a_turn_of_the_same_text_keeps_its_ids_as_content() -> None:
    split = [token for letter in "user" for token in QWEN.renderer.encode(letter).tolist()]
    said = Message(role=Role.ASSISTANT, content="user")
    path = Path().says(THINKS, message=THOUGHT).asks().turn(said, [*split, QWEN.stop])
    step = path.go_on()
    assert isinstance(step, Rewrite)
    again = step.rendering.messages[2]
    assert again.token_ids.tolist() == path.graph[3].token_ids.tolist()
    assert set(expand_runs(again.runs).tolist()) == {RunKind.SCAFFOLD, RunKind.CONTENT}


BAD = Message(
    role=Role.ASSISTANT, tool_calls=(ToolCall(id="c", raw="{", status=ParseStatus.INVALID_JSON, error="no JSON"),)
)
RESULT = Message(role=Role.TOOL, content="error: no JSON", call_id="c")


def test_a_call_that_did_not_parse_keeps_its_ids_and_is_noted() -> None:
    path = Path(tools=[ADD]).says("<tool_call>{", message=BAD)
    step = path.go_on(new=RESULT)
    assert isinstance(step, Extension)
    (note,) = step.rendering.notes
    assert "cannot write message 2" in note
    forked = Path(tools=[ADD]).says(THINKS, message=THOUGHT).asks().says("<tool_call>{", message=BAD).asks(RESULT)
    rewritten = forked.says("Four.").go_on()
    assert isinstance(rewritten, Rewrite)
    assert rewritten.rendering.messages[2].token_ids.tolist() == forked.graph[3].token_ids.tolist()
    assert rewritten.rendering.notes == ()


def test_bytes_that_are_no_text_keep_their_ids() -> None:
    torn = QWEN.renderer.encode("é").tolist()[:1]
    thought = QWEN.renderer.encode("<think>\nHm.\n</think>\n\n").tolist()
    said = Message(role=Role.ASSISTANT, content="\ufffd", reasoning="Hm.", raw=b"\xc3")
    step = Path().turn(said, [*thought, *torn, QWEN.stop]).go_on()
    assert isinstance(step, Extension)


def test_text_that_the_template_would_leave_out_keeps_its_ids() -> None:
    step = Path().says("sum</think>").go_on()
    assert isinstance(step, Extension)
    assert "cannot write message 2" in step.rendering.notes[0]


def test_what_no_stand_in_helps_is_refused() -> None:
    refuses = "{% if messages[-1].content == 'Never.' %}{{ raise_exception('not that') }}{% endif %}"
    chosen = build("refuses", tokenizer_json(marked=True), refuses + template("qwen3"))
    path = Path(chosen).says("a").asks().says("b")
    assert isinstance(path.go_on(), Extension)
    with pytest.raises(ModelError, match="not that"):
        path.go_on(new=Message(role=Role.USER, content="Never."))


def test_a_close_that_was_put_in_counts_to_its_turn_and_stays_forced() -> None:
    open_turn = Path().says("Three.", stop=False)
    step = open_turn.go_on()
    assert isinstance(step, Extension)
    (new,) = step.rendering.messages
    assert (new.token_ids[0], expand_runs(new.runs)[0]) == (QWEN.stop, RunKind.FORCED)
    step = open_turn.asks().says("Four.").go_on()
    assert isinstance(step, Extension), "the close is part of the text"


def test_a_close_goes_with_a_turn_that_keeps_its_ids_and_not_with_one_that_is_written_anew() -> None:
    kept = Path().says(THINKS, message=THOUGHT).asks().says("Four.", stop=False).asks().says("Five.")
    step = kept.go_on()
    assert isinstance(step, Rewrite)
    behind = step.rendering.messages[3]
    assert (behind.token_ids[0], expand_runs(behind.runs)[0]) == (QWEN.stop, RunKind.FORCED)
    anew = Path().says(THINKS, stop=False, message=THOUGHT).asks().says("Four.").go_on()
    assert isinstance(anew, Rewrite)
    assert RunKind.FORCED not in expand_runs(anew.rendering.messages[1].runs)
    for rewritten in (step, anew):
        assert "<|im_end|><|im_end|>" not in text_of(QWEN, rewritten.rendering.messages)


# Tools


def test_tools_are_the_same_whatever_the_order_of_their_keys() -> None:
    turned = msgspec.structs.replace(ADD, parameters=dict(reversed(ADD.parameters.items())))
    assert list(turned.parameters) != list(ADD.parameters)
    assert same_tools([ADD], [turned])
    assert not same_tools([ADD, SUB], [SUB, ADD])
    assert not same_tools([ADD], [])
    for policy in ContextPolicy:
        assert isinstance(Path(tools=[ADD]).says("Three.").go_on(policy, [turned]), Extension)


@pytest.mark.parametrize("policy", ContextPolicy)
def test_other_tools_make_a_branch_of_their_own(policy: ContextPolicy) -> None:
    path = Path(tools=[ADD]).says(THINKS, message=THOUGHT)
    step = path.go_on(policy, [ADD, SUB])
    assert isinstance(step, Rewrite)
    assert (step.shared, step.fork.reason) == (0, ForkReason.TOOLS_CHANGED)
    assert step.fork.detail == "tools: add -> add, sub"
    shown = text_of(QWEN, step.rendering.messages)
    assert '"name": "sub"' in shown
    assert ("Hm." in shown) == (policy is KEEP), "under keep a turn has its ids in any case"


def test_other_tools_under_a_tool_prompt_are_refused() -> None:
    with pytest.raises(ModelError, match="start a conversation of its own"):
        Path(family("smollm2-text"), [ADD]).says("Three.").go_on(KEEP, [SUB])
