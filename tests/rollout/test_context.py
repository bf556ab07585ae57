"""The two context policies in rollouts: what is sampled stays, is sampled behind what the policy says, and trains
once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.envs import ToolSet
from rollbook.policy import Completion
from rollbook.render.conversation import Chat
from rollbook.render.template import ChatTemplate
from rollbook.render.toolprompt import HERMES_EXAMPLES
from rollbook.rewards import decide
from rollbook.rollout import Limits
from rollbook.trace import (
    ContextPolicy,
    EdgeLabel,
    Fate,
    Finish,
    ForkReason,
    MemorySink,
    Message,
    Origin,
    ParseStatus,
    Reason,
    Role,
    RunKind,
    Sampling,
    Task,
    expand_runs,
    samples,
)
from tests.render.families import SMALL, Family, build, family, tokenizer_json
from tests.rollout.made import TASK, Engine, Talk, attempt, call, completion, detail, ids_of, why
from tests.rollout.test_turn import Adds, check_prompts

KEEP, TEMPLATE = ContextPolicy.KEEP, ContextPolicy.TEMPLATE
QWEN = family("qwen3-marked")
THINKS = "<think>\nHm.\n</think>\n\n"


def told(env: Talk, texts: Sequence[str | Completion], context: ContextPolicy, chosen: Family = QWEN, **more: Any):
    said = [completion(ids_of(text, chosen)) if isinstance(text, str) else text for text in texts]
    engine = Engine(said)
    return asyncio.run(attempt(env, engine, chosen=chosen, context=context, **more)), engine


# Reasoning over two user turns


@pytest.mark.parametrize("context", ContextPolicy)
def test_reasoning_over_two_user_turns_trains_each_token_once_where_it_was_sampled(context: ContextPolicy) -> None:
    texts = [f"{THINKS}Three.", f"{THINKS}Five."]
    trace, engine = told(Talk("And then?"), texts, context)
    check_prompts(trace, engine)
    assert trace.head.context_policy is context
    made = samples(trace)
    assert len(trace.graph.branches()) == len(made) == (2 if context is TEMPLATE else 1)
    assert made.ledger.trained == made.ledger.captured == sum(len(ids_of(text, QWEN)) for text in texts)
    trained = [sample.token_ids[sample.loss_mask].tolist() for sample in made]
    assert [*chain(*trained)] == [*chain(*(ids_of(text, QWEN) for text in texts))]
    for sample in made:
        for turn in set(sample.turn_id[sample.loss_mask].tolist()):
            start = int((sample.turn_id == turn).argmax())
            assert sample.token_ids[:start].tolist() == engine.requests[turn].prompt, "the context of its sampling"
    assert made.samples[-1].is_last_branch
    assert ("Hm." in QWEN.renderer.decode(made.samples[-1].token_ids[: len(engine.requests[1].prompt)])) == (
        context is KEEP
    )


def test_a_rewritten_turn_is_synthetic_and_names_what_it_stands_for() -> None:
    trace, _ = told(Talk("And then?"), [f"{THINKS}Three.", "Five."], TEMPLATE)
    first, turn, again, asked, _ = trace.graph
    assert (turn.origin, again.origin, again.parent) == (Origin.POLICY, Origin.SYNTHETIC, first.index)
    assert again.message == turn.message
    assert RunKind.SAMPLED not in expand_runs(again.runs)
    assert again.fork is not None
    assert again.fork.reason is ForkReason.TEMPLATE_REWRITE
    assert "message 2 (assistant): '<think>" in again.fork.detail
    assert "-> 'Three." in again.fork.detail
    (edge,) = trace.edges
    assert (edge.label, edge.source.node, edge.target.node) == (EdgeLabel.REWRITE_OF, again.index, turn.index)
    assert (asked.parent, asked.origin) == (again.index, Origin.USER)


def test_what_stands_behind_a_rewritten_turn_is_the_environments_as_before() -> None:
    trace, engine = told(Adds("And then?"), [f"{THINKS}{call()}", f"{THINKS}Five.", "Six."], TEMPLATE)
    check_prompts(trace, engine)
    origins = [str(node.origin) for node in trace.graph]
    first = ["user", "policy", "environment", "policy"]
    assert origins == [*first, "synthetic", "environment", "synthetic", "user", "policy"]
    assert [(edge.source.node, edge.target.node) for edge in trace.edges] == [(4, 1), (5, 2), (6, 3)]
    assert [node.index for node in trace.graph if node.fork is not None] == [4]


def test_between_tool_results_nothing_is_rewritten() -> None:
    """This template drops reasoning at the next user message only."""
    trace, _ = told(Adds(), [f"{THINKS}{call()}", f"{THINKS}Five."], TEMPLATE)
    assert (len(trace.graph.branches()), trace.edges) == (1, [])


# What no branch is made for


def test_a_rollout_that_a_limit_ends_stays_on_the_branch_of_its_last_turn() -> None:
    limits = Limits(max_turns=1)
    trace, _ = told(Talk("And then?"), [f"{THINKS}Three."], TEMPLATE, limits=limits)
    assert why(trace) is Reason.MAX_TURNS
    assert trace.graph.messages[-1].content == "And then?"
    (sample,) = samples(trace)
    assert sample.is_last_branch
    assert trace.edges == []


def test_room_is_reckoned_for_the_prompt_that_would_be_sent() -> None:
    first, second = f"<think>\n{'Hm. ' * 60}\n</think>\n\nThree.", "Five."
    _, engine = told(Talk("And then?"), [first, second], TEMPLATE)
    before, after = (len(request.prompt) for request in engine.requests)
    room = before + len(ids_of(first, QWEN))
    assert after + len(ids_of(second, QWEN)) < room, "without the reasoning there is room for another turn"
    for context, reason in ((TEMPLATE, Reason.FINAL_ANSWER), (KEEP, Reason.CONTEXT_OVERFLOW)):
        said = [completion(ids_of(text, QWEN)) for text in (first, second)]
        trace = asyncio.run(attempt(Talk("And then?"), Engine(said, room), chosen=QWEN, context=context))
        assert why(trace) is reason


# Turns that a template cannot write


def test_calls_that_did_not_parse_keep_their_ids_in_every_branch() -> None:
    bad = f"{THINKS}<tool_call>\n{{nope\n</tool_call>"
    trace, engine = told(Adds("And then?"), [f"{THINKS}Well.", bad, f"{THINKS}Five.", "Six."], TEMPLATE)
    assert [each.status for node in trace.turns() for each in node.message.tool_calls] == [ParseStatus.INVALID_JSON]
    check_prompts(trace, engine)
    shown = QWEN.renderer.decode(trace.graph.path_ids(len(trace.graph) - 1))
    assert "{nope" in shown
    assert trace.tail.errors[0].where == "render"


# A template that refuses a shape


REFUSES = """{%- for message in messages -%}
{%- if loop.index0 and messages[loop.index0 - 1].role == message.role -%}
{{ raise_exception('roles must alternate') }}{%- endif -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}{# tools #}"""


class TwoUsers(Talk):
    async def setup(self, task: Task) -> Sequence[Message]:
        return [*task.messages(), Message(role=Role.USER, content="Be quick.")]


@pytest.mark.parametrize("context", ContextPolicy)
def test_a_shape_that_the_template_refuses_ends_typed_without_retry_reward_or_vote(context: ContextPolicy) -> None:
    chosen = alternating()
    sink = MemorySink()
    trace, engine = told(TwoUsers(), ["Five."], context, chosen, sink=sink)
    assert why(trace) is Reason.TEMPLATE_REFUSED
    assert "roles must alternate" in detail(trace)
    assert (engine.requests, trace.reward) == ([], None)
    assert [message.content for message in trace.graph.messages] == [TASK.prompt, "Be quick."]
    fate = decide(trace)
    assert (fate.fate, fate.votes) == (Fate.DROPPED, False)
    assert len(samples(trace)) == 0
    assert trace.id in sink.sealed


def test_a_shape_that_is_refused_later_keeps_the_turns_before() -> None:
    async def agent(session: Any) -> None:
        reply = await session.reply(session.observation)
        assert reply.content == "Five."
        await session.reply([Message(role=Role.USER, content="a"), Message(role=Role.USER, content="b")])

    trace, _ = told(Talk(), ["Five."], KEEP, alternating(), agent=agent)
    assert why(trace) is Reason.TEMPLATE_REFUSED
    assert trace.graph.sampled_count == len(ids_of("Five.", alternating()))


def alternating() -> Family:
    return build("alternating", tokenizer_json(marked=True), REFUSES)


# Any conversation


def reference(chosen: Family, messages: Sequence[Message], tools: Sequence[Any]) -> str:
    """What the template makes of a whole conversation; the messages of a tool prompt stand in it already."""
    native = "tools" in chosen.template
    chat = Chat(None if native else HERMES_EXAMPLES, renders_calls=native)
    shown = [seamless(message) if message.role is Role.ASSISTANT else message for message in messages]
    given_tools = [each.openai() for each in tools] if native and tools else None
    return compiled(chosen.template).render(chat.entries(shown), given_tools, prompt=True).plain


compiled = functools.cache(ChatTemplate)


def seamless(turn: Message) -> Message:
    """The template writes the line ends around reasoning and calls itself."""
    calls = tuple(one for one in turn.tool_calls if one.status is ParseStatus.OK)
    content, reasoning = turn.content, turn.reasoning
    if reasoning is not None:
        content, reasoning = content.lstrip("\n"), reasoning.strip("\n")
    content = content.rstrip("\n") if calls else content
    return msgspec.structs.replace(turn, content=content, reasoning=reasoning, tool_calls=calls)


def expressible(messages: Sequence[Message]) -> bool:
    calls = [one.status for message in messages for one in message.tool_calls]
    fine = (ParseStatus.OK, ParseStatus.INSIDE_REASONING)
    turns = [message for message in messages if message.role is Role.ASSISTANT]
    return all(status in fine for status in calls) and not any(turn.raw or "</think>" in turn.content for turn in turns)


words = st.sampled_from(["the sum", "five", " ", "\n", "数学", "🙂", "<|im_end|>", "</think>"])
texts = st.lists(words, max_size=4).map("".join)
thoughts = st.sampled_from(["", "", THINKS, "<think>\n\n</think>\n\n", "<think>x", f"<think>{call()}</think>"])
acts = texts | st.sampled_from([call(), call() + "\n" + call(), call("nope"), "<tool_call>{"])
replies = st.tuples(thoughts, texts, acts).map("".join)
ends = st.sampled_from(["stop", "stop", "stop", "other stop", "id", "string", "torn"])


def reply_of(chosen: Family, text: str, how: str) -> Completion:
    end_id = chosen.renderer.encode("Z").tolist()[-1]
    ids = ids_of(text, chosen, stop=False)
    torn = chosen.renderer.encode("é").tolist()[:1]
    match how:
        case "id":
            return completion([*ids, end_id])
        case "other stop":
            return completion([*ids, chosen.encoder.added["<|endoftext|>"]])
        case "torn":
            return completion([*ids, *torn, chosen.stop])
        case "string" if ids and ids[-1] != end_id:
            return completion(ids, Finish.STOP_STRING)
        case _:
            return completion([*ids, chosen.stop])


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=15, deadline=None)
@given(said=st.lists(st.tuples(replies, ends), min_size=1, max_size=5), data=st.data())
def test_any_conversation_keeps_the_rules_of_its_policy(
    name: str, said: list[tuple[str, str]], data: st.DataObject
) -> None:
    chosen = family(name)
    made = [reply_of(chosen, text, how) for text, how in said]
    answers = data.draw(st.lists(texts, min_size=len(said), max_size=len(said)))
    end_id = chosen.renderer.encode("Z").tolist()[-1]
    sampling = Sampling(stop=("END",), stop_token_ids=(end_id,))
    for context in ContextPolicy:
        env, engine = Adds(*answers), Engine(made)
        limits = Limits(max_turns=len(made), max_generation=None, deadline=None, wall=None)
        trace = asyncio.run(attempt(env, engine, limits=limits, sampling=sampling, chosen=chosen, context=context))
        assert trace.sealed
        assert why(trace) is not Reason.TEMPLATE_REFUSED
        check_prompts(trace, engine)
        graph = trace.graph
        turns = [made_by for made_by in trace.calls if made_by.node is not None]
        assert [graph[each.node].sampled_ids.tolist() for each in turns] == [
            each.token_ids.tolist() for each in made[: len(turns)]
        ], "sampled ids never change"
        assert samples(trace).ledger.trained == graph.sampled_count
        if context is KEEP:
            assert graph.leaf_count == 1
            continue
        for asked, sent in zip(turns, engine.requests, strict=False):
            path = [graph.messages[node] for node in graph.path(asked.after).tolist()]
            if expressible(path):
                assert chosen.renderer.decode(np.array(sent.prompt, np.int32)) == reference(
                    chosen, path, ToolSet.of(env).specs
                )
