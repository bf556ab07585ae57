"""Small batches for the tests of exports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from rollbook.trace import (
    ROOT,
    Agent,
    Call,
    Ending,
    Finish,
    Fork,
    ForkReason,
    LogprobKind,
    MemorySink,
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

PROMPT = 3
"""Tokens of the question that each trace starts with."""


def start(rollout: str = "r0", *, group: str = "g0", tokens: bool = True, trainable: bool = True) -> Trace:
    """A trace that holds a question."""
    head = TraceHead(
        rollout=rollout,
        group=group,
        run="run",
        task=Task(id="t", prompt="?"),
        agent=Agent(trainable=trainable),
        policies=(PolicyRecord(name="p"),),
        tokens=tokens,
    )
    trace = Trace(head)
    trace.graph.add(
        Message(role=Role.USER, content="?"),
        parent=ROOT,
        origin=Origin.USER,
        token_ids=np.arange(PROMPT, dtype=np.int32),
        runs=make_runs((RunKind.CONTENT, PROMPT)),
    )
    return trace


def turn(
    trace: Trace,
    ids: Sequence[int] = (10, 11),
    *,
    parent: int | None = None,
    logprobs: Sequence[float] | None = None,
    kind: LogprobKind | None = LogprobKind.RAW,
    sampling: Sampling | None = None,
    version: int | None = 0,
) -> Trace:
    """Add a turn behind `parent` (None: the last node); -0.25 for each logprob unless given or of no kind."""
    last = len(trace.graph) - 1
    place = last if parent is None else parent
    given = [-0.25] * len(ids) if logprobs is None else logprobs
    index = trace.add_call(
        Call(
            node=len(trace.graph),
            after=place,
            sampling=sampling or Sampling(),
            logprob_kind=kind,
            finish=Finish.STOP,
        )
    )
    trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=place,
        origin=Origin.POLICY,
        token_ids=np.array([99, *ids], np.int32),
        runs=make_runs((RunKind.SCAFFOLD, 1), (RunKind.SAMPLED, len(ids))),
        logprobs=None if kind is None else np.array(given, np.float32),
        versions=make_runs() if version is None else make_runs((version, len(ids))),
        segments=make_runs((index, len(ids))),
        fork=None if place == last else Fork(reason=ForkReason.RETRY),
    )
    return trace


def end(trace: Trace, reason: Reason = Reason.FINAL_ANSWER, reward: float | None = 1.0) -> Trace:
    trace.end(Ending(reason, "for people"))
    if reward is not None:
        trace.score(reward)
    return trace


def sound(rollout: str = "r0", ids: Sequence[int] = (10, 11), reward: float | None = 1.0) -> Trace:
    return end(turn(start(rollout), ids), reward=reward)


def batch(traces: Iterable[Trace]) -> MemorySink:
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    return sink


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())
