"""Small traces for the audit's tests, sound unless a test asks for a fault."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.audit import DEFAULT_GATE, Check, Gate, Reencoder, audit_traces
from rollbook.errors import ModelError
from rollbook.render.protocol import RendererInfo, Rendering
from rollbook.render.vocabulary import TokenText
from rollbook.trace import (
    ROOT,
    Agent,
    Annotation,
    Call,
    Disposition,
    Ending,
    Fault,
    Finish,
    Fork,
    LogprobKind,
    Message,
    Origin,
    ParseStatus,
    PolicyRecord,
    Reason,
    Role,
    RunKind,
    Sampling,
    Task,
    ToolCall,
    ToolSpec,
    Trace,
    TraceHead,
    make_runs,
)
from rollbook.trace.columns import Column
from rollbook.trace.facts import ADVANTAGE, DISPOSITION, Advantage

TOKENIZER = "tok"
TOOL = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})


def call(call_id: str = "c0", status: ParseStatus = ParseStatus.OK) -> ToolCall:
    return ToolCall(id=call_id, name="add", arguments={}, raw="{}", status=status)


class Build:
    """Builds one trace, message by message."""

    def __init__(
        self,
        rollout: str = "r0",
        *,
        group: str = "g0",
        seat: str = "solver",
        tools: tuple[ToolSpec, ...] = (),
        tools_rendered: bool | None = True,
        tokens: bool = True,
        tokenizer: str = TOKENIZER,
    ) -> None:
        head = TraceHead(
            rollout=rollout,
            group=group,
            task=Task(id="t", prompt="?"),
            agent=Agent(seat=seat),
            policies=(PolicyRecord(name="p", tokenizer_hash=tokenizer),),
            tools=tools,
            tools_rendered=tools_rendered,
            tokens=tokens,
        )
        self.trace = Trace(head)
        self.leaf = ROOT

    def observe(
        self, role: Role = Role.USER, *, tokens: int = 4, call_id: str | None = None, fault: Fault | None = None
    ) -> Build:
        message = Message(role=role, content="x", call_id=call_id, fault=fault)
        self.leaf = self.trace.graph.add(
            message,
            parent=self.leaf,
            origin=Origin.ENVIRONMENT,
            token_ids=np.arange(tokens, dtype=np.int32),
            runs=make_runs((RunKind.SCAFFOLD, 1), (RunKind.CONTENT, tokens - 1)),
        )
        return self

    def result(self, call_id: str | None = "c0", fault: Fault | None = None) -> Build:
        return self.observe(Role.TOOL, call_id=call_id, fault=fault)

    def turn(
        self,
        ids: Sequence[int] = (10, 11, 12),
        *,
        calls: tuple[ToolCall, ...] = (),
        scaffold: int = 2,
        logprobs: Sequence[float] | None = (),
        rescored: Sequence[int] = (),
        kind: LogprobKind | None = LogprobKind.RAW,
        sampling: Sampling | None = None,
        finish: Finish = Finish.STOP,
        version: int | None = 0,
        prompt_off: int | None = 0,
        parent: int | None = None,
        fork: Fork | None = None,
    ) -> Build:
        """`logprobs`: empty for -0.5 each, None for none. `prompt_off`: how far the engine's count is off; None where
        it reports none."""
        graph = self.trace.graph
        self.leaf = self.leaf if parent is None else parent
        stored = (len(graph.path_ids(self.leaf)) if self.leaf != ROOT else 0) + scaffold
        given = [-0.5] * len(ids) if logprobs == () else logprobs
        index = self.trace.add_call(
            Call(
                node=len(graph),
                after=self.leaf,
                sampling=sampling or Sampling(),
                logprob_kind=kind,
                finish=finish,
                prompt_tokens=None if prompt_off is None else stored + prompt_off,
            )
        )
        self.leaf = graph.add(
            Message(role=Role.ASSISTANT, content="y", tool_calls=calls),
            parent=self.leaf,
            origin=Origin.POLICY,
            token_ids=np.array([*range(100, 100 + scaffold), *ids], np.int32),
            runs=make_runs((RunKind.SCAFFOLD, scaffold), (RunKind.SAMPLED, len(ids))),
            logprobs=None if given is None else np.array(given, np.float32),
            rescored=np.array(rescored, np.int32),
            versions=make_runs() if version is None else make_runs((version, len(ids))),
            segments=make_runs((index, len(ids))),
            fork=fork,
        )
        return self

    def end(self, reason: Reason = Reason.FINAL_ANSWER, reward: float | None = 1.0) -> Trace:
        self.trace.end(Ending(reason))
        if reward is not None:
            self.trace.score(reward)
        return self.trace


def sound(
    rollout: str = "r0", *, group: str = "g0", reward: float | None = 1.0, ids: Sequence[int] = (10, 11)
) -> Trace:
    """A trace with a question and an answer."""
    return Build(rollout, group=group).observe().turn(ids).end(reward=reward)


def check(
    name: str,
    *traces: Trace,
    annotations: Sequence[Annotation] = (),
    renderer: Reencoder | None = None,
    gate: Gate = DEFAULT_GATE,
) -> Check:
    """The row of one check over these traces."""
    return audit_traces(traces, annotations=annotations, renderer=renderer, gate=gate)[name]


def advantage(rollout: str, *voters: str, scheduled: int = 2, values: Sequence[float] | None = None) -> Annotation:
    """`values`: of the voters; None: one half, then minus one half each."""
    given = [0.5, *[-0.5] * (len(voters) - 1)] if values is None else values
    fact = Advantage(
        advantage=dict(zip(voters, given, strict=True)).get(rollout),
        group="g0",
        seat="solver",
        values=dict(zip(voters, given, strict=True)),
        members=(*voters, "retried"),
        baseline=0.5,
        scheduled=scheduled,
        used=len(voters),
        estimator="dr_grpo",
        rules="r",
    )
    return Annotation(producer="rewards", name=ADVANTAGE, rollout=rollout, value=msgspec.to_builtins(fact))


def disposition(rollout: str, decided: Disposition) -> Annotation:
    return Annotation(producer="rules", name=DISPOSITION, rollout=rollout, value=msgspec.to_builtins(decided))


def damage(column: Column, place: tuple[int, ...] | int, value: float) -> None:
    """Change a stored number behind the record's back, as a damaged file would."""
    column._buffer[place] = value


class Spelling(Reencoder):
    """A re-encoder that spells some ids otherwise, and knows no control tokens and no template."""

    info = RendererInfo(
        name="none", tokenizer_hash="", template_hash="", vocab_size=0, stop_ids=frozenset(), tool_prompt=None
    )
    control_ids = frozenset[int]()
    begin_id = None

    def __init__(self, tokenizer: str = TOKENIZER, **changes: Sequence[int]) -> None:
        self.changes = {int(name[1:]): list(ids) for name, ids in changes.items()}
        self.info = RendererInfo(
            name="spelling",
            tokenizer_hash=tokenizer,
            template_hash="",
            vocab_size=1000,
            stop_ids=frozenset(),
            tool_prompt=None,
        )

    def open(self, messages: object, tools: object) -> Rendering:
        raise ModelError("there is no template")

    def extend(self, last_id: int, messages: object, tools: object) -> Rendering:
        raise ModelError("there is no template")

    def rerender(self, messages: object, tools: object) -> Rendering:
        raise ModelError("there is no template")

    def show(self, token_ids: npt.NDArray[np.int32]) -> TokenText:
        text = "".join(chr(token) for token in token_ids.tolist())
        ends = np.arange(1, len(text) + 1, dtype=np.int32)
        return TokenText(text, ends, np.stack((ends - 1, ends), axis=1))

    def decode(self, token_ids: npt.NDArray[np.int32]) -> str:
        return self.show(token_ids).text

    def reencode(self, token_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        found: list[int] = []
        for each in token_ids.tolist():
            found += self.changes.get(each, [each])
        return np.array(found, np.int32)
