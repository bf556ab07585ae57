"""Runs without a model: a script beside a small trained tokenizer, and the environments that tests register."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rollbook.envs import Environment, StepResult, tool
from rollbook.models import load_folder
from rollbook.policy import ScriptedFailure, ScriptedPolicy, ScriptedReply
from rollbook.render import ChatRenderer
from rollbook.rollout import LoadedPolicy
from rollbook.run.policies import renderer_for
from rollbook.trace import (
    ROOT,
    Call,
    Finish,
    LogprobKind,
    Message,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    RunKind,
    Sampling,
    Task,
    Trace,
    TraceHead,
    make_runs,
)
from rollbook.worlds import register
from tests.render.families import template, tokenizer_json

END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "double", "arguments": {"number": 4}}\n</tool_call>'
BAD_CALL = '<tool_call>\n{"name": "double", "arguments": {"number": 4\n</tool_call>'


class Double(Environment):
    """Doubling with a tool; scored by the last message. `right`: what scores 1."""

    def __init__(self, right: str = "8") -> None:
        self.right = right

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"double-{seed}-{index}", prompt=f"Double {index}.") for index in range(count)]

    @tool
    async def double(self, number: int) -> str:
        """Doubles a number.

        Args:
            number: what to double
        """
        return str(2 * number)

    async def score(self, trace: Trace) -> float:
        return float(self.right in trace.text)


class Raises(Environment):
    """A scorer that raises."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"raises-{index}", prompt="Go.") for index in range(count)]

    async def step(self, reply: object) -> StepResult | None:
        return None

    async def score(self, trace: Trace) -> float:
        raise ValueError("no score today")


register("test-double", Double)
register("test-raises", Raises)


def model_folder(folder: Path) -> Path:
    """A tokenizer folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json(marked=False))
    (folder / "chat_template.jinja").write_text(template("smollm2"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


def renderer(folder: Path) -> ChatRenderer:
    return renderer_for(load_folder(folder))


def reply(renderer: ChatRenderer, text: str, *, end: bool = True) -> ScriptedReply:
    stop = next(iter(renderer.info.stop_ids))
    ids = [*renderer.encode(text).tolist(), *([stop] if end else [])]
    return ScriptedReply(token_ids=ids, logprobs=[-0.5] * len(ids))


def script(folder: Path, *steps: str | Reason) -> str:
    """Write a script into a tokenizer folder; returns the policy's name. A reason stands for a failure."""
    model_folder(folder)
    made = renderer(folder)
    rows: list[dict[str, object]] = []
    for step in steps:
        if isinstance(step, Reason):
            rows.append({"type": "failure", "reason": str(step), "detail": "as scripted"})
        else:
            said = reply(made, step)
            rows.append({"type": "reply", "token_ids": said.token_ids, "logprobs": said.logprobs})
    (folder / "script.json").write_text(json.dumps({"replies": rows}))
    return f"scripted:{folder / 'script.json'}"


def loaded(folder: Path, *steps: str | Reason, delay: float = 0.0) -> LoadedPolicy:
    """The same as a loaded policy."""
    made = renderer(model_folder(folder))
    said = [
        ScriptedFailure(reason=step, delay=delay)
        if isinstance(step, Reason)
        else ScriptedReply(token_ids=reply(made, step).token_ids, logprobs=reply(made, step).logprobs, delay=delay)
        for step in steps
    ]
    return LoadedPolicy(ScriptedPolicy(said), made)


def small_trace(rollout: str, *, group: str = "g", member: int = 0, attempt: int = 0, task: str = "t") -> Trace:
    """A running trace of one task with one sampled turn."""
    head = TraceHead(
        rollout=rollout,
        group=group,
        task=Task(id=task, prompt="p"),
        policies=(PolicyRecord(name="scripted"),),
        member=member,
        attempt=attempt,
    )
    trace = Trace(head)
    asked = trace.graph.add(
        Message(role=Role.USER, content="p"),
        parent=ROOT,
        origin=Origin.USER,
        token_ids=np.array([1, 2], np.int32),
        runs=make_runs((RunKind.CONTENT, 2)),
    )
    call = trace.add_call(
        Call(node=1, after=asked, sampling=Sampling(), finish=Finish.STOP, logprob_kind=LogprobKind.RAW)
    )
    trace.graph.add(
        Message(role=Role.ASSISTANT, content="a"),
        parent=asked,
        origin=Origin.POLICY,
        token_ids=np.array([3, 4, 5], np.int32),
        runs=make_runs((RunKind.SAMPLED, 3)),
        logprobs=np.array([-1, -1, -1], np.float32),
        segments=make_runs((call, 3)),
    )
    return trace
