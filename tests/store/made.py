"""Traces for the store's tests: small, different by seed, with everything in them that a trace can hold."""

from __future__ import annotations

from typing import Any

import msgspec
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
    Mark,
    Message,
    Origin,
    ParseStatus,
    PolicyRecord,
    Reason,
    Role,
    Sampling,
    Task,
    ToolCall,
    Trace,
    TraceHead,
    make_runs,
    samples,
    summarise,
)
from rollbook.trace.wire import encode_head, encode_part, encode_tail

TEXTS = ("plain", "zażółć 🙂", "lone \udc80 surrogate", "", "<|im_end|>\x00")


def new_trace(rollout: str, seed: int = 0, **head: Any) -> Trace:
    """A trace that has its first observation."""
    fields: dict[str, Any] = {
        "rollout": rollout,
        "group": f"g{seed % 3}",
        "task": Task(id=f"task-{seed}", prompt="2 + 2", data={"big": 10**30, "text": TEXTS[seed % len(TEXTS)]}),
        "agent": Agent(name="a"),
        "policies": (PolicyRecord(name="p"),),
        "run": "r",
        "environment": "calculator",
        "started": 1.5,
    }
    trace = Trace(TraceHead(**(fields | head)))
    trace.graph.add(
        Message(role=Role.USER, content="2 + 2"),
        parent=ROOT,
        origin=Origin.USER,
        token_ids=np.arange(5, dtype=np.int32) + seed,
        runs=make_runs((0, 2), (1, 3)),
    )
    return trace


def add_turn(trace: Trace, seed: int = 0, tokens: int = 6) -> None:
    """One engine call and its reply, then an observation; every third reply is sampled twice."""
    rng = np.random.default_rng([seed, len(trace.graph)])
    parent = len(trace.graph) - 1
    turn(trace, rng, parent, tokens, None)
    if seed % 3 == 0:
        trace.graph.mark(len(trace.graph) - 1, Mark.REJECTED)
        turn(trace, rng, parent, tokens, Fork(reason=ForkReason.RETRY))
    trace.graph.add(
        Message(role=Role.TOOL, content=TEXTS[int(rng.integers(len(TEXTS)))], call_id="c", raw=b"\xff\x00"),
        parent=len(trace.graph) - 1,
        origin=Origin.ENVIRONMENT,
        token_ids=rng.integers(0, 150_000, tokens, dtype=np.int32),
        runs=make_runs((0, 1), (1, tokens - 1)),
    )


def turn(trace: Trace, rng: np.random.Generator, parent: int, tokens: int, fork: Fork | None) -> None:
    """One reply of the policy behind `parent`."""
    call = trace.add_call(
        Call(
            node=len(trace.graph),
            after=parent,
            sampling=Sampling(seed=int(rng.integers(1000))),
            logprob_kind=LogprobKind.RAW,
            finish=Finish.STOP,
        )
    )
    trace.graph.add(
        Message(
            role=Role.ASSISTANT,
            content=TEXTS[int(rng.integers(len(TEXTS)))],
            tool_calls=(
                ToolCall(id="c", name="calculate", arguments={"x": 2**70}, raw="{"),
                ToolCall(id="d", raw="<", status=ParseStatus.INVALID_JSON),
            ),
        ),
        parent=parent,
        origin=Origin.POLICY,
        token_ids=rng.integers(0, 150_000, tokens + 2, dtype=np.int32),
        runs=make_runs((0, 2), (2, tokens)),
        logprobs=-rng.exponential(1.0, tokens).astype(np.float32),
        rescored=np.array([tokens - 1], np.int32),
        versions=make_runs((3, tokens - 1), (4, 1)),
        segments=make_runs((call, tokens)),
        fork=fork,
    )


def finish(trace: Trace, reason: Reason = Reason.FINAL_ANSWER) -> Trace:
    """End and score a trace."""
    trace.end(Ending(reason, "done \udcff"))
    trace.score(0.5, {"exact": 0.5})
    return trace


def whole_trace(rollout: str, seed: int = 0, turns: int = 3, tokens: int = 6) -> Trace:
    """A trace ready to be sealed."""
    trace = new_trace(rollout, seed)
    for _ in range(turns):
        add_turn(trace, seed, tokens)
    return finish(trace)


def content(trace: Trace) -> tuple[bytes, ...]:
    """Everything that a trace says, as bytes: two traces are the same where these are."""
    part = encode_part(trace)
    return encode_head(trace), part["text"], part["tokens"], part["calls"], encode_tail(trace), part.get("experts", b"")


def sample_bits(trace: Trace) -> list[tuple[bytes, ...]]:
    """The arrays of all samples of a trace, bit for bit."""
    return [
        tuple(
            array.tobytes()
            for array in (
                sample.token_ids,
                sample.sampled,
                sample.loss_mask,
                sample.logprobs,
                sample.policy_version,
                sample.turn_id,
            )
        )
        for sample in samples(trace)
    ]


def summary_bits(trace: Trace) -> bytes:
    """The summary as text."""
    return repr(msgspec.to_builtins(summarise(trace))).encode("utf-8", "backslashreplace")
