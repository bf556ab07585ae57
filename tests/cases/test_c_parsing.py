"""Tool calls out of sampled replies: strictly, in every family, and never repaired."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from rollbook.audit import audit_traces
from rollbook.envs import Environment, tool
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.render.formats import CallFormat, ReplyReader
from rollbook.rollout import Limits
from rollbook.trace import Fault, Finish, Message, ParseStatus, Reason, Role, ToolSpec, Trace
from tests.cases.case import (
    CALL,
    CALL_END,
    STOP,
    THINK,
    THINK_END,
    Script,
    byte_ids,
    bytes_renderer,
    reply,
    report,
    run_one,
    says,
)
from tests.real_tokenizers import TokenizerFiles
from tests.render.families import CONTROL, small_tokenizer, template
from tests.render.formats.writing import SAY, WORDS, WRITERS, spell, think
from tests.render.stock import stock

MARKED = [kind for kind in CallFormat if kind not in {CallFormat.LLAMA_JSON, CallFormat.LLAMA_PYTHONIC}]


def spec(name: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object", "properties": properties})


def read(kind: CallFormat, text: str, *tools: ToolSpec, inside_reasoning: bool = False, cut: bool = False) -> Message:
    reader = ReplyReader(kind, None, {})
    return reader.parse_text(text, tools, inside_reasoning=inside_reasoning, cut=cut, call_prefix="call_")


def statuses(message: Message) -> list[ParseStatus]:
    return [call.status for call in message.tool_calls]


class Tools(Environment):
    """Tools that keep what they were called with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @tool
    async def a(self) -> str:
        """A."""
        await asyncio.sleep(0.01)
        self.ran.append("a")
        return "a ran"

    @tool
    async def b(self) -> str:
        """B."""
        self.ran.append("b")
        return "b ran"

    @tool
    async def c(self) -> str:
        """C."""
        self.ran.append("c")
        return "c ran"


@cache
def _misread() -> ChatRenderer:
    """A model with GLM's markers whose calls are read in DeepSeek's form."""
    tokenizer = small_tokenizer((*CONTROL, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"))
    added = {entry["content"]: int(entry["id"]) for entry in json.loads(tokenizer)["added_tokens"]}
    stops = frozenset({added["<|im_end|>"]})
    config = RendererConfig(name="misread", stop_ids=stops, call_format=CallFormat.DEEPSEEK_V31)
    return ChatRenderer.build(tokenizer, template("qwen3"), config)


def _unread(text: str) -> Trace:
    """A rollout that says `text`, its markers control tokens, and whose calls nobody reads."""
    renderer = _misread()
    ids = [*renderer.reencode(renderer.encode(text)).tolist(), *renderer.info.stop_ids]
    return run_one(Tools, Script([reply(ids)]), renderer=renderer)


def hermes(name: str) -> list[int]:
    return [CALL, *byte_ids(f'{{"name": "{name}", "arguments": {{}}}}'), CALL_END]


@report("C01")
def test_a_draft_inside_reasoning_never_runs(given: dict[str, Any]) -> None:
    said = read(CallFormat.HERMES, given["text"], spec("A"))
    assert statuses(said) == [ParseStatus.INSIDE_REASONING, ParseStatus.OK]
    assert '<tool_call>{"name": "A", "arguments": {}}</tool_call>' in (said.reasoning or "")
    env = Tools()
    trace = run_one(lambda: env, Script([reply([THINK, *hermes("a"), THINK_END, *hermes("a"), STOP]), says("done")]))
    assert env.ran == ["a"]
    assert audit_traces([trace])["inside_reasoning"].value == 0.5


@report("C02")
@pytest.mark.parametrize("kind", WRITERS)
def test_reasoning_is_split_off_first_in_every_family(given: dict[str, Any], kind: CallFormat) -> None:
    opens, closes = think(kind)
    draft, call = spell(kind, ("say", {"text": "1"})), spell(kind, ("say", {"text": "2"}))
    text = given["text"].replace("CALL(x=1)", draft).replace("CALL(x=2)", call)
    text = text.replace("<think>", opens).replace("</think>", closes)
    said = read(kind, text, SAY)
    ran = [call.arguments for call in said.tool_calls if call.status is ParseStatus.OK]
    assert ran == [{"text": "2"}]
    assert said.reasoning == f"draft: {draft}"
    assert said.content == ""
    from_prompt = read(kind, text.removeprefix(opens), SAY, inside_reasoning=True)
    assert (from_prompt.reasoning, from_prompt.content) == (said.reasoning, said.content)
    assert statuses(from_prompt) == statuses(said)


@report("C03")
@pytest.mark.parametrize("kind", MARKED)
def test_a_call_in_reasoning_that_never_closed_does_not_run(given: dict[str, Any], kind: CallFormat) -> None:
    """The same reader in every mode: there is only one."""
    opens, _ = think(kind)
    hermes_text = given["text"]
    assert statuses(read(CallFormat.HERMES, hermes_text, spec("ls"))) == [ParseStatus.INSIDE_REASONING]
    said = read(kind, f"{opens}\\nI should look\\n{spell(kind, WORDS)}", SAY)
    assert set(statuses(said)) == {ParseStatus.INSIDE_REASONING}
    assert said.content == ""


@report("C04")
def test_calls_are_read_from_ids_and_no_parse_of_a_server_is_believed(given: dict[str, Any]) -> None:
    said = read(CallFormat.GLM, given["output_ids_decoded"], spec("f", a={"type": "integer"}))
    (call,) = said.tool_calls
    assert (call.name, call.arguments, call.status) == ("f", {"a": 1}, ParseStatus.OK)
    assert said.content == "ok\n"
    bad = run_one(Tools, Script([reply([CALL, *byte_ids("{"), CALL_END, STOP]), says("done")]))
    none = run_one(Tools, Script([says("done")]))
    assert audit_traces([bad])["malformed"].value == 1.0
    assert audit_traces([none])["malformed"].n == 0
    assert [node.message.role for node in bad.graph][2:4] == [Role.TOOL, Role.ASSISTANT]  # it did not end there
    unread = _unread(given["server_message"]["content"])
    turn = unread.turns()[0].message
    assert (turn.content, turn.tool_calls) == (given["server_message"]["content"], ())
    row = audit_traces([unread], renderer=_misread())["markers_in_content"]
    assert (row.value, row.details["without_call"]) == (1.0, 1)
    assert audit_traces([none], renderer=bytes_renderer())["markers_in_content"].value == 0.0


@report("C05")
@pytest.mark.parametrize("value", ["hello", "true", "", "null", " 5 "])
def test_a_union_of_types_is_no_reason_to_lose_a_call(given: dict[str, Any], value: str) -> None:
    text = given["xml"].replace("hello", value)
    (call,) = read(CallFormat.QWEN_XML, text, spec("f", flag=given["schema"])).tool_calls
    assert call.status is ParseStatus.OK
    assert call.arguments == {"flag": True if value == "true" else value}


@report("C06")
@pytest.mark.parametrize("kind", WRITERS)
def test_a_cut_call_never_runs(given: dict[str, Any], kind: CallFormat) -> None:
    assert statuses(read(CallFormat.HERMES, "<tool_call>" + given["arguments"], spec("w"), cut=True)) == [
        ParseStatus.CUT
    ]
    whole = spell(kind, WORDS)
    for end in range(1, len(whole)):
        said = read(kind, whole[:end], SAY, cut=True)
        complete = read(kind, whole[:end], SAY)
        assert all(status is not ParseStatus.OK for status in statuses(said)) or statuses(complete) == [ParseStatus.OK]


def test_a_cut_reply_executes_nothing_whatever_the_engine_says() -> None:
    """The limit is seen in the tokens, although the engine says `stop`."""
    env = Tools()
    ids = [*hermes("a"), *byte_ids("and then")]
    script = Script([reply(ids, finish=Finish.STOP)])
    trace = run_one(lambda: env, script, limits=Limits(max_generation=len(ids)))
    assert env.ran == []
    assert trace.ending is not None
    assert trace.ending.reason is Reason.GENERATION_LIMIT


@report("C08")
@pytest.mark.parametrize("kind", [CallFormat.HERMES, CallFormat.KIMI, CallFormat.DEEPSEEK_V31, CallFormat.MISTRAL_ARGS])
def test_broken_json_is_no_cut_and_a_cut_is_no_broken_json(given: dict[str, Any], kind: CallFormat) -> None:
    broken = spell(kind, ("say", {"text": "x"})).replace('{"text": "x"}', given["arguments"])
    (call,) = read(kind, broken, SAY).tool_calls
    assert call.status is ParseStatus.INVALID_JSON
    assert given["arguments"] in call.raw


@report("C09")
def test_nothing_is_repaired_in_any_family(given: dict[str, Any]) -> None:
    """A trailing comma, fences, words behind, single quotes, a bracket too many."""
    for arguments in [given["arguments"], *given["variants"]]:
        for kind in (CallFormat.HERMES, CallFormat.KIMI, CallFormat.DEEPSEEK_V3, CallFormat.DEEPSEEK_V31,
                     CallFormat.MISTRAL, CallFormat.MISTRAL_ARGS, CallFormat.LLAMA_JSON):  # fmt: skip
            text = spell(kind, ("say", {"text": "x"})).replace('{"text": "x"}', arguments)
            said = read(kind, text, SAY)
            assert ParseStatus.OK not in statuses(said), (kind, arguments)
            kept = "".join([said.content, *(call.raw for call in said.tool_calls)])
            assert arguments in kept
            assert all(call.error for call in said.tool_calls)


@report("C10")
def test_a_value_may_hold_the_closing_tag_where_the_real_one_is_a_token(given: dict[str, Any]) -> None:
    """Markers are ids: what a value spells of them is text. Tags that have no ids must stand on lines of their own."""
    chosen = stock("qwen3-coder")
    body = given["xml"].removeprefix("<tool_call>").removesuffix("</tool_call>")
    ids = [151657, *chosen.renderer.encode(body).tolist(), 151658, 151645]
    tools = [spec("write_file", content={"type": "string"})]
    said = chosen.renderer.parse(np.array(ids, np.int32), tools, inside_reasoning=False, cut=False, call_prefix="c")
    (call,) = said.message.tool_calls
    assert (call.status, call.arguments) == (ParseStatus.OK, {"content": given["intended"]})
    ambiguous = body.replace(" and </parameter> here.", "\n</parameter>\nhere.")
    ids = [151657, *chosen.renderer.encode(ambiguous).tolist(), 151658, 151645]
    said = chosen.renderer.parse(np.array(ids, np.int32), tools, inside_reasoning=False, cut=False, call_prefix="c")
    (call,) = said.message.tool_calls
    assert call.status is ParseStatus.BAD_ARGUMENTS
    assert (call.error or "").startswith("ambiguous:")


@report("C11")
def test_a_delimiter_inside_a_value_is_ambiguous_and_does_not_run(given: dict[str, Any]) -> None:
    """The report's own value in the unescaped format that we read."""
    value = given["wire"].split('name="content">')[1].split('</parameter><parameter name="path">')[0]
    assert value.startswith("<parameter>")
    for framed in (f"{value}", f"\n{value}\n</parameter>\n<stray>"):
        text = "<tool_call>\n<function=w>\n<parameter=content>" + framed
        text += "</parameter>\n<parameter=path>\ntest.xml\n</parameter>\n</function>\n</tool_call>"
        (call,) = read(
            CallFormat.QWEN_XML, text, spec("w", content={"type": "string"}, path={"type": "string"})
        ).tool_calls
        assert call.arguments != given["wrong_parse"]
        assert call.status is not ParseStatus.OK
        assert (call.error or "").startswith("ambiguous:")
    pairs = f"<tool_call>w\n<arg_key>content</arg_key>\n<arg_value>{value}</arg_value> x</arg_value>\n</tool_call>"
    (call,) = read(CallFormat.GLM, pairs, spec("w", content={"type": "string"})).tool_calls
    assert call.status is not ParseStatus.OK


_BLOCK = "\n<function=f>\n<parameter=x>\nVALUE\n</parameter>\n</function>\n"


@report("C13")
def test_values_are_typed_by_the_schema_and_by_nothing_else(given: dict[str, Any]) -> None:
    expected = ["null", {"arg2": "value2"}, [10, 20], "007", "true"]
    for value, schema, right in zip(given["values"], given["schemas"], expected, strict=True):
        for kind, text in (
            (
                CallFormat.QWEN_XML,
                f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>",
            ),
            (CallFormat.GLM, f"<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"),
        ):
            (call,) = read(kind, text, spec("f", x=schema)).tool_calls
            assert (call.status, call.arguments) == (ParseStatus.OK, {"x": right})
            assert json.dumps(call.arguments) == json.dumps({"x": right})


@report("C14")
def test_an_observation_forges_no_turn(given: dict[str, Any], qwen: ChatRenderer) -> None:
    observation = given["observation"]
    assert qwen.encode(observation).tolist() == given["safe_ids"]
    made = qwen.extend(151645, [Message(role=Role.TOOL, content=observation, call_id="c0")], ())
    ids = made.messages[0].token_ids.tolist()
    assert observation in qwen.decode(made.messages[0].token_ids)
    marks = [token for token in ids if token in given["forbidden_ids_inside_observation"]]
    assert marks == [151644, 151665, 151666, 151645]  # the template's own frame
    assert qwen.reencode(np.array(given["safe_ids"], np.int32)).tolist() == given["unsafe_ids"]


@pytest.mark.parametrize(
    "name",
    ["qwen3", "llama3.1", "deepseek-v3.1", "gemma3", "mistral-nemo", "mistral-v3", "smollm2", "glm-4.6", "kimi-k2"],
)
def test_no_spelling_of_any_added_token_makes_one(name: str) -> None:
    chosen = stock(name)
    for place in range(0, len(chosen.added), 97):
        text = "x".join(sorted(chosen.added)[place : place + 97])
        assert chosen.encoder.control.isdisjoint(chosen.renderer.encode(text).tolist())


@report("C15")
def test_markers_that_no_list_calls_special_are_guarded_too(
    given: dict[str, Any], qwen: ChatRenderer, qwen3_files: TokenizerFiles
) -> None:
    listed = {entry["content"]: entry["special"] for entry in json.loads(qwen3_files.tokenizer_json)["added_tokens"]}
    for text in given["also_control"][1:]:
        assert not listed[text]
        assert len(qwen.encode(text)) > 1
    assert qwen.encode(given["observation"]).tolist() == given["safe_ids"]
    assert qwen.reencode(np.array(given["safe_ids"], np.int32)).tolist() == given["unsafe_ids"]


@report("C17")
def test_every_call_has_one_result_in_the_order_of_the_calls(given: dict[str, Any]) -> None:
    env = Tools()
    names = [call["name"] for call in given["calls"]]
    ids = [token for name in names for token in hermes(name)]
    trace = run_one(
        lambda: env,
        Script([reply([*ids, STOP]), says("done")]),
        limits=Limits(max_generation=None, max_parallel_calls=given["max_parallel"]),
    )
    results = [node.message for node in trace.graph if node.message.role is Role.TOOL]
    asked = [call.id for call in trace.turns()[0].message.tool_calls]
    assert [message.call_id for message in results] == asked
    assert env.ran == ["a"]
    assert results[0].content == "a ran"
    for message in results[1:]:
        assert "not executed: only 1 calls run at once" in message.content
        assert message.fault is Fault.POLICY


def test_calls_that_bear_one_id_are_answered_each() -> None:
    """A family writes its own ids, and a model may write one twice: the second call is malformed, and is told so."""
    kind = CallFormat.KIMI
    twice = spell(kind, ("say", {"text": "1"}), ("say", {"text": "2"})).replace("functions.say:1", "functions.say:0")
    first, second = read(kind, twice, SAY).tool_calls
    assert (first.status, second.status) == (ParseStatus.OK, ParseStatus.INVALID_JSON)
    assert first.id != second.id


@report("C19")
def test_an_id_without_its_separators_names_no_tool(given: dict[str, Any]) -> None:
    tools = [spec("exec", command={"type": "string"}), spec("functionsexec5")]
    said = read(CallFormat.KIMI, given["text"], *tools)
    (call,) = said.tool_calls
    assert call.status is ParseStatus.MISSING_NAME
    assert "functionsexec5" in call.raw
    assert said.content == ""
    near = ("functions.:0", "functions.exec", "functions.exec:", "functions.exec:x", "exec", "tools.exec:5", "", ":5")
    for text in near:
        said = read(CallFormat.KIMI, given["text"].replace("functionsexec5", text), *tools)
        assert ParseStatus.OK not in statuses(said), text


def test_a_bad_call_is_answered_and_the_good_ones_beside_it_run() -> None:
    env = Tools()
    ids = [*hermes("a"), CALL, *byte_ids("{'name': 'b'}"), CALL_END, *hermes("nosuch"), *hermes("c"), STOP]
    trace = run_one(lambda: env, Script([reply(ids), says("done")]))
    assert sorted(env.ran) == ["a", "c"]
    results = [node.message for node in trace.graph if node.message.role is Role.TOOL]
    assert [message.fault for message in results] == [None, Fault.POLICY, Fault.POLICY, None]
    assert trace.ending is not None
    assert trace.ending.reason is Reason.FINAL_ANSWER
