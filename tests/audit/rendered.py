"""Real rollouts with real renderers for the audit's tests, and faults planted into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from rollbook.envs import Environment, StepResult, tool
from rollbook.policy import ScriptedReply
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.trace import (
    Ending,
    Fork,
    Message,
    Node,
    Origin,
    Reason,
    RunKind,
    Runs,
    TokenIds,
    Trace,
    compress_runs,
    expand_runs,
)
from tests.cases.case import Script, run_one
from tests.render.families import family, template, tokenizer_json

Tokens = tuple[TokenIds, Runs]


class Tools(Environment):
    """A tool, then questions; scores 1."""

    def __init__(self, questions: Sequence[str] = (), result: str = "8") -> None:
        self.questions, self.result = list(questions), result

    @tool
    async def double(self, number: int) -> str:
        """Doubles a number.

        Args:
            number: what to double
        """
        return self.result

    async def step(self, reply: Message) -> StepResult | None:
        return StepResult(self.questions.pop(0)) if self.questions else None

    async def score(self, trace: Trace) -> float | None:
        return 1.0


CALL = '<tool_call>\n{"name": "double", "arguments": {"number": 4}}\n</tool_call>'


def said(renderer: ChatRenderer, text: str, *, stop: int | None = None) -> ScriptedReply:
    """A reply as a model samples it, its markers control tokens."""
    plain = np.array([], np.int32) if not text else renderer.reencode(renderer.encode(text))
    end = min(renderer.info.stop_ids) if stop is None else stop
    ids = [*plain.tolist(), end]
    return ScriptedReply(token_ids=ids, logprobs=[-0.5] * len(ids))


def rolled(
    renderer: ChatRenderer,
    *texts: str,
    stop: int | None = None,
    make: Callable[[], Environment] | None = None,
    prompt: str = "Double 4.",
) -> Trace:
    """One rollout that says these texts; those without a call are answered by a question."""
    script = Script([said(renderer, text, stop=stop) for text in texts])
    questions = ["And then?"] * (sum(CALL not in text for text in texts) - 1)
    return run_one(make or (lambda: Tools(questions)), script, renderer=renderer, prompt=prompt)


def small(name: str) -> tuple[ChatRenderer, int]:
    """A small family's renderer and its end-of-turn token."""
    return family(name).renderer, family(name).stop


@cache
def beginning() -> ChatRenderer:
    """A template that begins a conversation with a begin token, over a tokenizer that names it."""
    tokenizer = tokenizer_json(marked=True)
    added = {entry["content"]: entry["id"] for entry in json.loads(tokenizer)["added_tokens"]}
    config = RendererConfig(
        name="begin",
        stop_ids=frozenset({added["<|im_end|>"]}),
        special_tokens={"bos_token": "<|endoftext|>"},
    )
    return ChatRenderer.build(tokenizer, "{{ bos_token }}" + template("qwen3"), config)


def edited(
    trace: Trace, *, node: int, change: Callable[[Node], Tokens], nodes: int | None = None, end: bool = True
) -> Trace:
    """The trace with other tokens in one node. `nodes`: keeps that many. `end`: seals it again."""
    made = Trace(trace.head)
    for each in list(trace.graph)[:nodes]:
        ids, runs = change(each) if each.index == node else (each.token_ids, each.runs)
        _add(made, each, ids, runs)
    for call in trace.calls:
        if call.node is not None and call.node < len(made.graph):
            made.add_call(call)
    if end:
        made.end(Ending(Reason.FINAL_ANSWER))
    return made


def _add(made: Trace, node: Node, ids: TokenIds, runs: Runs) -> int:
    return made.graph.add(
        node.message,
        parent=node.parent,
        origin=node.origin,
        token_ids=ids,
        runs=runs,
        logprobs=node.logprobs if len(node.sampled_ids) else None,
        rescored=node.rescored,
        versions=node.versions,
        segments=node.segments,
        fork=node.fork,
    )


def without(token: int) -> Callable[[Node], Tokens]:
    """Leaves out one token."""
    return lambda node: (
        np.delete(node.token_ids, token),
        compress_runs(np.delete(expand_runs(node.runs), token)),
    )


def put(token: int, made: int, kind: RunKind = RunKind.SCAFFOLD) -> Callable[[Node], Tokens]:
    """Puts one token in at a place."""
    return lambda node: (
        np.insert(node.token_ids, token, made).astype(np.int32),
        compress_runs(np.insert(expand_runs(node.runs), token, kind)),
    )


def continued(trace: Trace, parent: int, message: Message, ids: TokenIds, runs: Runs, fork: Fork | None) -> Trace:
    """The trace with one more branch of one message."""
    made = Trace(trace.head)
    for each in trace.graph:
        _add(made, each, each.token_ids, each.runs)
    for call in trace.calls:
        made.add_call(call)
    made.graph.add(message, parent=parent, origin=Origin.ENVIRONMENT, token_ids=ids, runs=runs, fork=fork)
    made.end(Ending(Reason.FINAL_ANSWER))
    return made
