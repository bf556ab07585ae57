"""The public reports, and what their tests are made of.

Inputs come from ``cases.jsonl`` and are never typed again. `BYTES` is a renderer with one token a byte, so a test can
spell any ids; `Script` is a policy that says what a test gives it and keeps what it was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.envs import Environment, StepResult
from rollbook.policy import Completion, ScriptedFailure, ScriptedPolicy, ScriptedReply, TokenIds
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.rollout import Agent, LoadedPolicy, RolloutSettings, chat, rollout
from rollbook.rollout.limits import Limits
from rollbook.trace import (
    ROOT,
    Call,
    ContextPolicy,
    Ending,
    Finish,
    LogprobKind,
    Message,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    RolloutFailure,
    RunKind,
    Sampling,
    Sink,
    Task,
    Trace,
    TraceHead,
    make_runs,
)
from rollbook.trace import Agent as Actor
from rollbook.trace.wire import encode_head, encode_part, encode_tail

LINES = (Path(__file__).parent / "cases.jsonl").read_text().splitlines()
REPORTS: dict[str, dict[str, Any]] = {report["id"]: report for report in map(json.loads, LINES)}


def report(name: str) -> pytest.MarkDecorator:
    """The test gets the report's own input as `given` and bears its id."""
    return pytest.mark.parametrize("given", [REPORTS[name]["input"]], ids=[name])


# One token a byte.

_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_ORDER = [*_SHOWN, *(byte for byte in range(256) if byte not in _SHOWN)]
_IDS = {byte: token for token, byte in enumerate(_ORDER)}
START, STOP, PAD, THINK, THINK_END, CALL, CALL_END = range(256, 263)
_NAMES = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_ids(text: str | bytes) -> list[int]:
    """Ids of single bytes, the same in `BYTES` and in the vocabulary of Qwen3."""
    return [_IDS[byte] for byte in (text.encode() if isinstance(text, str) else text)]


@cache
def bytes_renderer() -> ChatRenderer:
    """A renderer over a byte-level tokenizer without merges."""
    alphabet = [chr(byte) if byte in _SHOWN else chr(256 + place - len(_SHOWN)) for place, byte in enumerate(_ORDER)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": START + place, "content": name, "special": place < 3, **flags} for place, name in enumerate(_NAMES)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {name: token for token, name in enumerate(alphabet)}, "merges": []},
    }
    config = RendererConfig(name="bytes", stop_ids=frozenset({STOP, PAD}))
    return ChatRenderer.build(json.dumps(tokenizer).encode(), _TEMPLATE, config)


# Rollouts.


def reply(ids: Sequence[int], finish: Finish = Finish.STOP, logprobs: Sequence[float] | None = None) -> ScriptedReply:
    """A reply with these very ids."""
    given = [-0.25 - place / 1024 for place in range(len(ids))] if logprobs is None else logprobs
    return ScriptedReply(token_ids=ids, logprobs=given, finish=finish)


def says(text: str) -> ScriptedReply:
    """A reply that ends its turn."""
    return reply([*byte_ids(text), STOP])


def calls(name: str, arguments: str) -> ScriptedReply:
    """A reply that calls a tool; `arguments` is JSON text as sampled."""
    body = f'{{"name": "{name}", "arguments": {arguments}}}'
    return reply([CALL, *byte_ids(body), CALL_END, STOP])


@dataclass
class Script:
    """Replies in order, from the start again behind the last one; keeps what it was asked."""

    replies: Sequence[ScriptedReply | ScriptedFailure]
    prompts: list[TokenIds] = field(default_factory=list)
    samplings: list[Sampling] = field(default_factory=list)
    words: str | None = None
    """The engine's own word for why it stopped; None: that of the reply."""

    def __call__(self, prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        step = self.replies[len(self.prompts) % len(self.replies)]
        self.prompts.append(prompt)
        self.samplings.append(sampling)
        if isinstance(step, ScriptedFailure):
            raise RolloutFailure(step.reason, step.detail)
        return Completion(
            token_ids=np.array(step.token_ids, np.int32),
            logprobs=np.array(step.logprobs, np.float32),
            logprob_kind=step.kind,
            finish=step.finish,
            engine_finish=step.finish if self.words is None else self.words,
        )

    def loaded(self, renderer: ChatRenderer | None = None, context_length: int = 1 << 20) -> LoadedPolicy:
        policy = ScriptedPolicy(self, context_length=context_length)
        return LoadedPolicy(policy, bytes_renderer() if renderer is None else renderer)


class Talk(Environment):
    """Answers each reply with the next observation, then lets the reply stand; scores 1."""

    def __init__(self, answers: Sequence[Any] = ()) -> None:
        self.answers = list(answers)

    async def step(self, reply: Message) -> StepResult | None:
        return StepResult(self.answers.pop(0)) if self.answers else None

    async def score(self, trace: Trace) -> float | None:
        return 1.0


def run_one(
    make_env: Callable[[], Environment],
    script: Script,
    *,
    limits: Limits | None = None,
    renderer: ChatRenderer | None = None,
    agent: Agent = chat,
    sink: Sink | None = None,
    prompt: str = "go",
    context_length: int = 1 << 20,
    stop: tuple[str, ...] = (),
    context: ContextPolicy = ContextPolicy.KEEP,
) -> Trace:
    """One rollout."""
    settings = RolloutSettings(
        limits=limits or Limits(max_generation=None), sampling=Sampling(stop=stop), agent=agent, context=context
    )
    task = Task(id="t", prompt=prompt)
    return asyncio.run(rollout(make_env, task, script.loaded(renderer, context_length), settings=settings, sink=sink))


# Traces without a rollout.


def head(name: str = "r0", *, group: str = "g0", seat: str = "solver", member: int = 0) -> TraceHead:
    return TraceHead(
        rollout=name,
        group=group,
        task=Task(id="t", prompt="?"),
        agent=Actor(seat=seat),
        policies=(PolicyRecord(name="p"),),
        member=member,
    )


def add_user(trace: Trace, text: str, ids: Sequence[int], *, role: Role = Role.USER, parent: int | None = None) -> int:
    """A message from outside."""
    return trace.graph.add(
        Message(role=role, content=text),
        parent=len(trace.graph) - 1 if parent is None else parent,
        origin=Origin.ENVIRONMENT if role is Role.TOOL else Origin.USER,
        token_ids=np.array(ids, np.int32),
        runs=make_runs((RunKind.CONTENT, len(ids))),
    )


def add_turn(
    trace: Trace, message: Message | str, ids: Sequence[int], logprobs: Sequence[float] | None = None, **more: Any
) -> int:
    """A sampled turn with its call."""
    given = [-0.5] * len(ids) if logprobs is None else logprobs
    parent = len(trace.graph) - 1
    call = Call(
        node=len(trace.graph),
        after=parent,
        sampling=Sampling(seed=1),
        logprob_kind=LogprobKind.RAW,
        finish=Finish.STOP,
        prompt_tokens=len(trace.graph.path_ids(parent)) if parent != ROOT else 0,
    )
    index = trace.add_call(call)
    return trace.graph.add(
        Message(role=Role.ASSISTANT, content=message) if isinstance(message, str) else message,
        parent=parent,
        origin=Origin.POLICY,
        token_ids=np.array(ids, np.int32),
        runs=make_runs((RunKind.SAMPLED, len(ids))),
        logprobs=np.array(given, np.float32),
        segments=make_runs((index, len(ids))),
        **more,
    )


def attempt(
    name: str,
    reward: float | None,
    *,
    group: str = "g0",
    seat: str = "solver",
    member: int = 0,
    reason: Reason = Reason.FINAL_ANSWER,
    ids: Sequence[int] = (7, 8, 9),
) -> Trace:
    """An ended, scored attempt of one turn; without `ids` nothing was ever sampled."""
    trace = Trace(head(name, group=group, seat=seat, member=member))
    add_user(trace, "?", [1, 2, 3])
    if ids:
        add_turn(trace, "answer", ids)
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    return trace


def bits(trace: Trace) -> tuple[bytes, ...]:
    """All that a trace says."""
    return encode_head(trace), *encode_part(trace).values(), encode_tail(trace)
