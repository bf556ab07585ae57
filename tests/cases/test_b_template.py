"""Chat templates: what is written between turns, what is rewritten, what a template refuses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.envs import Environment, tool
from rollbook.errors import ModelError
from rollbook.render import ChatRenderer, RendererConfig, Rendering
from rollbook.render.context import Past, Rewrite, go_on
from rollbook.render.findings import Property, Verdict
from rollbook.render.formats import CallFormat, ReplyReader
from rollbook.render.template import ChatTemplate
from rollbook.rewards import decide
from rollbook.trace import (
    ContextPolicy,
    Ending,
    EndingKind,
    Fate,
    ForkReason,
    Message,
    ParseStatus,
    Reason,
    Role,
    RunKind,
    Task,
    ToolCall,
    ToolSpec,
    Trace,
    samples,
)
from rollbook.trace.runs import expand_runs
from tests.cases.case import (
    CALL,
    CALL_END,
    STOP,
    Script,
    Talk,
    add_turn,
    add_user,
    byte_ids,
    head,
    reply,
    report,
    run_one,
    says,
)
from tests.real_tokenizers import template
from tests.render.stock import stock

LOOKUP = ToolSpec(
    name="get_weather",
    description="Tells the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def user(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def assistant(text: str, **more: Any) -> Message:
    return Message(role=Role.ASSISTANT, content=text, **more)


def result(text: str, call_id: str = "c0", name: str = "get_weather") -> Message:
    return Message(role=Role.TOOL, content=text, call_id=call_id, name=name)


def ids_of(made: Rendering) -> list[int]:
    return made.token_ids.tolist()


def kinds_of(made: Rendering) -> list[int]:
    return np.concatenate([expand_runs(one.runs) for one in made.messages]).tolist()


@report("B01")
def test_what_follows_a_turn_begins_with_the_separator_that_nobody_samples(given: dict[str, Any]) -> None:
    qwen = stock("qwen3").renderer
    made = qwen.extend(given["generated_tail"][-1], [result(given["observation"])], [LOOKUP])
    ids = ids_of(made)
    assert ids[: len(given["correct_next"])] == given["correct_next"]
    assert ids[:15] == [198, 151644, 872, 198, 151665, 198, 17, 15, 34, 198, 151666, 151645, 198, 151644, 77091]
    assert kinds_of(made)[0] == RunKind.SCAFFOLD
    assert ids[: len(given["naive_next"])] != given["naive_next"]


@pytest.mark.parametrize(
    "name", ["qwen2.5", "qwen3-coder", "llama3.1", "deepseek-v3.1", "smollm2", "glm-4.6", "kimi-k2"]
)
def test_no_family_loses_or_doubles_what_stands_between_turns(name: str) -> None:
    """The same boundary in each family: stored ids and new ones, decoded, are the template's own text of the whole."""
    chosen = stock(name)
    renderer = chosen.renderer
    start = [user("What is it?")]
    opened = renderer.open(start, ())
    stop = renderer.rerender([*start, assistant("20C"), user("And now?")], ())
    whole = renderer.decode(np.array(ids_of(stop), np.int32))
    turn = renderer.decode(stop.messages[1].token_ids).removeprefix(renderer.decode(opened.prompt_ids))
    closing = next((text for text in sorted(chosen.stops, key=len, reverse=True) if turn.endswith(text)), "")
    ids = renderer.encode(turn.removesuffix(closing)).tolist()
    if closing:
        ids.append(chosen.added[closing])
    more = renderer.extend(ids[-1], [user("And now?")], ())
    grown = renderer.decode(np.array([*ids_of(opened), *ids, *ids_of(more)], np.int32))
    assert grown == whole


@report("B02")
def test_a_template_that_rewrites_history_is_found_before_any_rollout(given: dict[str, Any]) -> None:
    qwen = stock("qwen3").renderer
    append_only = qwen.report.get(Property.APPEND_ONLY)
    assert append_only is not None
    assert (append_only.value, append_only.verdict) == ("no", Verdict.DIFFERS)
    two, three = given["render_2"], given["render_3"]
    assert next(place for place, (a, b) in enumerate(zip(two, three, strict=False)) if a != b) == 10
    messages = [Message(role=Role(each["role"]), content=each["content"]) for each in given["messages"]]
    assert ids_of(qwen.rerender(messages, ()))[: len(three)] == three
    for name in ("qwen2.5", "smollm2", "llama3.1", "kimi-k2"):
        found = stock(name).renderer.report.get(Property.APPEND_ONLY)
        assert found is not None
        assert found.value == "yes"


@report("B03")
@pytest.mark.parametrize("context", ContextPolicy)
def test_old_reasoning_stays_or_leaves_by_a_branch_of_its_own(given: dict[str, Any], context: ContextPolicy) -> None:
    qwen = stock("qwen3").renderer
    first, answer, second = (each["content"] for each in given["messages"])
    thought, closed, said = answer.partition("</think>")
    ids = [151667, *qwen.encode(thought.removeprefix("<think>")).tolist(), 151668, *qwen.encode(said).tolist()]
    assert closed
    final = [*qwen.encode("A2").tolist(), 151645]
    script = Script([reply([*ids, 151645]), reply(final)])
    trace = run_one(lambda: Talk([second]), script, renderer=qwen, prompt=first, context=context)
    assert trace.head.context_policy is context
    asked = qwen.decode(script.prompts[1])
    made = samples(trace)
    assert made.ledger.trained == made.ledger.captured == len(ids) + 1 + len(final)
    if context is ContextPolicy.KEEP:
        assert script.prompts[1].tolist()[: len(script.prompts[0]) + len(ids)] == [*script.prompts[0].tolist(), *ids]
        assert len(made) == 1
        return
    assert asked.endswith(given["render_tail"])
    (fork,) = [node.fork for node in trace.graph if node.fork is not None]
    assert fork.reason is ForkReason.TEMPLATE_REWRITE
    for sample in made:
        trained = sample.token_ids[sample.loss_mask].tolist()
        assert (151667 in sample.token_ids.tolist()) == (151667 in trained)  # never trained and then gone


@report("B04")
def test_a_reply_that_begins_inside_reasoning_is_read_so_and_rendered_back(given: dict[str, Any]) -> None:
    chosen = stock("qwen3")
    config = RendererConfig(name="think", stop_ids=chosen.config.stop_ids)
    thinking = ChatRenderer.build(chosen.tokenizer_json, template("trl/qwen3_5_think"), config)
    question = [user("Q1")]
    opened = thinking.open(question, ())
    assert opened.inside_reasoning
    assert thinking.decode(opened.prompt_ids) == given["generation_prompt_tail"]
    sampled = [*thinking.encode("reason\n").tolist(), 151668, *thinking.encode("\n\nA1").tolist(), 151645]
    assert thinking.decode(np.array(sampled[:-1], np.int32)) == given["completion"]
    parsed = thinking.parse(
        np.array(sampled, np.int32), (), inside_reasoning=opened.inside_reasoning, cut=False, call_prefix="c"
    )
    assert (parsed.message.reasoning, parsed.message.content) == ("reason\n", "\n\nA1")
    again = thinking.rerender([*question, parsed.message], ()).messages[1]
    assert again.token_ids.tolist() == [*opened.prompt_ids.tolist(), *sampled]


@report("B05")
def test_samples_come_from_the_ids_whatever_a_message_lost(given: dict[str, Any]) -> None:
    """There is no training render: a message without its calls trains the very tokens that were sampled."""
    function = given["message_at_inference"]["tool_calls"][0]["function"]
    call = ToolCall(id="c0", name=function["name"], arguments=function["arguments"])
    trained: list[list[int]] = []
    for message in (assistant("", tool_calls=(call,)), assistant("")):
        trace = head_and_turn(message)
        (sample,) = samples(trace)
        trained.append(sample.token_ids[sample.loss_mask].tolist())
    assert trained[0] == trained[1] == [7, 8, 9]


def head_and_turn(message: Message) -> Any:
    trace = Trace(head())
    add_user(trace, "?", [1, 2, 3])
    add_turn(trace, message, [7, 8, 9])
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(1.0)
    return trace


@report("B06")
def test_results_of_one_turn_are_one_increment_in_the_order_of_the_calls(given: dict[str, Any]) -> None:
    qwen = stock("qwen3").renderer
    results = [result(text, f"c{place}") for place, text in enumerate(given["tool_results"])]
    grouped = qwen.decode(np.array(ids_of(qwen.extend(151645, results, [LOOKUP])), np.int32))
    assert grouped == "\n" + given["grouped"] + "<|im_start|>assistant\n"
    apart = "".join(qwen.decode(qwen.extend(151645, [each], [LOOKUP]).messages[0].token_ids)[1:] for each in results)
    assert apart == given["one_by_one"]


class Two(Environment):
    """Two tools, of which the first takes longer."""

    @tool
    async def slow(self) -> str:
        """Slow."""
        await asyncio.sleep(0.02)
        return "slow"

    @tool
    async def fast(self) -> str:
        """Fast."""
        return "fast"


def test_results_stand_in_the_order_of_the_calls_not_of_their_ends() -> None:
    call = [CALL, *byte_ids('{"name": "slow", "arguments": {}}'), CALL_END]
    other = [CALL, *byte_ids('{"name": "fast", "arguments": {}}'), CALL_END]
    trace = run_one(Two, Script([reply([*call, *other, STOP]), says("done")]))
    assert [node.message.content for node in trace.graph if node.message.role is Role.TOOL] == ["slow", "fast"]


@report("B07")
def test_arguments_reach_a_template_in_the_form_that_it_takes(given: dict[str, Any]) -> None:
    """An object wherever the template takes one, text where it concatenates; a failure is an error, no other
    template."""
    call = ToolCall(id="c0", name="get_weather", arguments=given["arguments_as_dict"])
    said = [user("?"), assistant("", tool_calls=(call,)), user("And?")]
    shown = stock("qwen3").renderer.rerender(said, [LOOKUP]).messages[1]
    assert given["renders"][1] in stock("qwen3").renderer.decode(shown.token_ids)
    compact, spaced = (stock("qwen3").renderer.encode(text).tolist() for text in given["renders"])
    assert len(compact) < len(spaced)  # history is never spelled anew, so which of them was sampled does not matter
    concatenates = stock("deepseek-v3-trl")
    arguments = concatenates.renderer.report.get(Property.ARGUMENTS)
    assert arguments is not None
    assert arguments.value == "text"
    native = ChatRenderer.build(
        concatenates.tokenizer_json, concatenates.template, replace(concatenates.config, tool_prompt=None)
    )
    assert '{"city": "Paris"}' in native.decode(native.rerender(said, ()).messages[-2].token_ids)


def test_a_template_that_fails_is_an_error_and_no_other_takes_its_place() -> None:
    """Without a renderer that takes the shape, the rollout ends as an error of its own kind, with the words."""
    chosen = stock("gemma3")
    bare = ChatRenderer.build(chosen.tokenizer_json, chosen.template, replace(chosen.config, tool_prompt=None))
    with pytest.raises(ModelError, match="refuses the conversation"):
        bare.extend(106, [result("20C")], ())


@report("B08")
def test_json_of_templates_is_plain_json(given: dict[str, Any]) -> None:
    """No HTML escapes, no sorted keys."""
    function = given["tool"]
    tools = [{"type": "function", "function": function}]
    text = ChatTemplate("{{ tools | tojson }}").render([], tools, prompt=False).plain
    assert text == json.dumps(tools, ensure_ascii=False)
    assert "temp > 10 & humidity < 50 (user's choice)" in text
    assert text.index('"z"') < text.index('"a"')


@settings(deadline=None)
@examples(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=6))
def test_json_of_templates_is_what_json_dumps_gives(value: Any) -> None:
    made = ChatTemplate("{{ value | tojson }}", variables={"value": value}).render([], None, prompt=False)
    assert made.plain == json.dumps(value, ensure_ascii=False)


@report("B09")
def test_characters_are_written_as_they_are(given: dict[str, Any]) -> None:
    text = ChatTemplate("{{ value | tojson }}", variables={"value": given["value"]}).render([], None, prompt=False)
    qwen = stock("qwen3").renderer
    assert len(qwen.encode(text.plain)) == given["utf8_tokens"]
    assert len(qwen.encode(given["ascii"])) == given["ascii_tokens"]


@report("B10")
def test_a_conversation_begins_with_one_start_token(given: dict[str, Any]) -> None:
    chosen = stock("llama3.1")
    ids = ids_of(chosen.renderer.open([user("test")], ()))
    begin = given["right_ids_start"][0]
    assert ids.count(begin) == 1
    assert ids[0] == begin
    assert ids[:3] != given["wrong_ids_start"]
    start = chosen.renderer.report.get(Property.BOS)
    assert start is not None
    assert (start.value, start.verdict) == ("one", Verdict.SOUND)
    assert "puts <|begin_of_text|> before it again" in start.meaning
    doubled = chosen.template.replace("{{- bos_token }}", "{{- bos_token }}{{- bos_token }}")
    with pytest.raises(ModelError, match="begins with 2 start tokens"):
        ChatRenderer.build(chosen.tokenizer_json, doubled, chosen.config)


@pytest.mark.parametrize("name", ["deepseek-v3.1", "gemma3", "mistral-nemo"])
def test_every_family_with_a_start_token_gets_one(name: str) -> None:
    chosen = stock(name)
    begin = chosen.added[chosen.special_tokens["bos_token"]]
    assert ids_of(chosen.renderer.open([user("test")], ())).count(begin) == 1


@report("B11")
def test_default_system_text_comes_once_and_never_in_the_middle(given: dict[str, Any]) -> None:
    qwen = stock("qwen2.5").renderer
    lone = Message(role=Role.TOOL, content=given["messages"][0]["content"], call_id="c0", name="get_weather")
    opened = qwen.decode(np.array(ids_of(qwen.open([user("?")], ())), np.int32))
    more = qwen.decode(np.array(ids_of(qwen.extend(151645, [lone], [LOOKUP])), np.int32))
    assert (opened + more).count("<|im_start|>system") == 1
    assert given["render"].endswith(more.removesuffix("<|im_start|>assistant\n").removeprefix("\n"))
    default = qwen.report.get(Property.SYSTEM)
    assert default is not None
    assert default.value == "default text"
    assert "You are Qwen, created by Alibaba Cloud." in default.example


class Shows(Talk):
    """Begins with given messages."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__()
        self.messages = messages

    async def setup(self, task: Task) -> list[Message]:
        return self.messages


@report("B13")
@pytest.mark.parametrize("name", ["mistral-nemo", "gemma3"])
def test_a_shape_that_a_template_refuses_is_known_before_and_an_error_of_its_own(
    given: dict[str, Any], name: str
) -> None:
    chosen = stock(name)
    shapes = chosen.renderer.report.get(Property.SHAPES)
    assert shapes is not None
    assert shapes.value == "some refused"
    assert "two user messages in a row" in shapes.meaning
    assert "a user message after a tool result" in shapes.meaning
    messages = [Message(role=Role(each["role"]), content=each["content"]) for each in given["messages"]]
    script = Script([reply([chosen.added[chosen.stops[0]]])])
    trace = run_one(lambda: Shows(messages), script, renderer=chosen.renderer)
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.ERROR, Reason.TEMPLATE_REFUSED)
    assert "must alternate" in trace.ending.detail
    assert (script.prompts, trace.reward) == ([], None)
    fate = decide(trace)
    assert (fate.fate, fate.votes) == (Fate.DROPPED, False)
    behind = [result("x", "abc123def", "f"), user(given["second"][-1]["content"])]
    with pytest.raises(ModelError, match="must alternate"):
        chosen.renderer.extend(chosen.added[chosen.stops[0]], behind, ())


@report("B14")
def test_a_role_marker_that_ends_a_turn_is_sampled_once_and_stays(given: dict[str, Any]) -> None:
    chosen = stock("glm-4.6")
    glm, marker, other = chosen.renderer, chosen.added[given["sampled_stop"]], chosen.added["<|user|>"]
    made = glm.extend(marker, [result("20C")], [LOOKUP])
    assert marker not in ids_of(made)
    assert glm.decode(np.array([marker, *ids_of(made)], np.int32)) == given["next_increment"]
    assert not made.notes
    assert marker in glm.info.stop_ids
    mismatched = glm.extend(other, [result("20C")], [LOOKUP])
    assert ids_of(mismatched) == [marker, *ids_of(made)]
    assert mismatched.notes == ("the turn ended with <|user|>, where the template writes <|observation|>",)
    cut = glm.extend(glm.encode("x").tolist()[0], [result("20C")], [LOOKUP])
    assert (ids_of(cut), cut.notes) == ([marker, *ids_of(made)], ())
    assert kinds_of(cut)[0] == RunKind.SCAFFOLD


@report("B18")
def test_ids_that_the_model_wrote_are_the_ids_that_results_bear(given: dict[str, Any]) -> None:
    chosen = stock("kimi-k2")
    kimi = chosen.renderer
    assert kimi.call_format is CallFormat.KIMI
    native = given["native_id"]
    text = f"<|tool_calls_section_begin|><|tool_call_begin|>{native}<|tool_call_argument_begin|>"
    text += '{"path": "a"}<|tool_call_end|><|tool_calls_section_end|>'
    spec = ToolSpec(name="read_file", description="", parameters={"type": "object"})
    reader = ReplyReader(CallFormat.KIMI, None, {})
    (call,) = reader.parse_text(text, [spec], inside_reasoning=False, cut=False, call_prefix="call_").tool_calls
    assert (call.id, call.status) == (native, ParseStatus.OK)
    more = kimi.extend(chosen.added["<|im_end|>"], [result("text", call.id, "read_file")], [spec])
    shown = kimi.decode(np.array(ids_of(more), np.int32))
    assert f"## Return of {native}" in shown
    assert given["client_id"] not in shown


@report("B19")
def test_other_tools_are_another_branch_with_a_full_rendering(given: dict[str, Any]) -> None:
    specs = {
        name: ToolSpec(name=name, description=f"Does {name}.", parameters={"type": "object", "properties": {}})
        for name in given["turn2_tools"]
    }
    before, now = ([specs[name] for name in given[turn]] for turn in ("turn1_tools", "turn2_tools"))
    qwen = stock("qwen3").renderer
    opened = qwen.open([user("Q1")], before)
    trace = Trace(head())
    add_user(trace, "Q1", opened.messages[0].token_ids.tolist())
    add_turn(trace, assistant("A1"), [*qwen.encode("A1").tolist(), 151645])
    past = Past(last_id=151645, tools=before, nodes=lambda: list(trace.graph))
    for policy in ContextPolicy:
        same = go_on(qwen, past, [user("Q2")], [reordered(tool) for tool in before], policy)
        assert not isinstance(same, Rewrite) or policy is ContextPolicy.TEMPLATE
        step = go_on(qwen, past, [user("Q2")], now, policy)
        assert isinstance(step, Rewrite)
        assert (step.shared, step.fork.reason) == (0, ForkReason.TOOLS_CHANGED)
        text = "".join(qwen.decode(each.token_ids) for each in step.rendering.messages)
        assert "Does a." in text
        assert "Does b." in text


def reordered(spec: ToolSpec) -> ToolSpec:
    """The same tool with the keys of its schema in another order."""
    return ToolSpec(
        name=spec.name, description=spec.description, parameters=dict(reversed(list(spec.parameters.items())))
    )
