"""Made-up rollouts that an exporter is tried on: one group, one policy whose logprobs anyone can compute again.

The policy is a table: the logprob of a token depends on the token before it only, so a record whose logprobs are one
place off is found by computing them again from its ids. Every rollout asks the same question. Among them: a rollout
of one turn, one of two turns with a tool's answer between them, one with three branches that share their first turn,
one like it whose last branch has no part in the loss, one whose last turn was taken out of the loss, one that hit its
limit in the middle of a turn, one over two policy versions, and two without a vote (a lost host, and no reward).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from rollbook.trace.call import Call, Finish, LogprobKind, Sampling
from rollbook.trace.disposition import DEFAULT_RULES, decide
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.node import ROOT, Fork, ForkReason, Mark
from rollbook.trace.record import PolicyRecord, TraceHead
from rollbook.trace.runs import RunKind, make_runs
from rollbook.trace.sample import Sample, samples
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["GROUP", "VOCABULARY", "Case", "cases", "made_up_samples", "table_logprobs"]

VOCABULARY = 64
"""Ids 0 to 63."""

GROUP = "made-up"
QUESTION = (1, 2, 3, 4)
ANSWER = 5
"""The scaffold before each turn."""


@dataclass(frozen=True, slots=True)
class Case:
    """One made-up rollout."""

    name: str
    trace: Trace
    votes: bool
    """False: it must leave no row."""


@cache
def _table() -> npt.NDArray[np.float32]:
    logits = np.random.default_rng(8).normal(0, 2, (VOCABULARY, VOCABULARY))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def table_logprobs(token_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """float32, shape (tokens,): what the made-up policy gives each token after the one before it; 0 for the first."""
    given = np.zeros(len(token_ids), np.float32)
    given[1:] = _table()[token_ids[:-1], token_ids[1:]]
    return given


def cases() -> tuple[Case, ...]:
    """All made-up rollouts, those without a vote included."""
    return (
        Case("one_turn", _ended(_turn(_start("one_turn"), (10, 11, 12)), 1.0), votes=True),
        Case(
            "two_turns", _ended(_turn(_observed(_turn(_start("two_turns"), (13, 14))), (15, 16, 17)), 0.0), votes=True
        ),
        Case("three_branches", _ended(_branching("three_branches"), 1.0), votes=True),
        Case("lost_end", _ended(_demoted(_branching("lost_end")), 0.0), votes=True),
        Case("masked_end", _ended(_masked_end(), 1.0), votes=True),
        Case(
            "cut",
            _ended(_turn(_start("cut"), (25, 26, 27, 28), finish=Finish.LENGTH), 0.0, Reason.GENERATION_LIMIT),
            votes=True,
        ),
        Case(
            "two_versions",
            _ended(_turn(_turn(_start("two_versions"), (30, 31), version=3), (32, 33), version=4), 0.0),
            votes=True,
        ),
        Case("lost_host", _ended(_turn(_start("lost_host"), (40, 41)), None, Reason.SANDBOX_LOST), votes=False),
        Case("unscored", _ended(_turn(_start("unscored"), (42, 43)), None), votes=False),
    )


def made_up_samples(chosen: Sequence[Case], *, experts: bool = False) -> list[Sample]:
    """The samples of these rollouts under the default rules, advantages (reward minus mean of the voters) included."""
    voters = {case.name: case.trace.reward for case in chosen if case.votes}
    mean = sum(reward or 0.0 for reward in voters.values()) / len(voters)
    advantages: Mapping[str, float] = {name: (reward or 0.0) - mean for name, reward in voters.items()}
    found: list[Sample] = []
    for case in chosen:
        disposition = decide(case.trace, DEFAULT_RULES)
        found += samples(case.trace, disposition=disposition, advantage=advantages.get(case.name), experts=experts)
    return found


def _start(rollout: str) -> Trace:
    head = TraceHead(
        rollout=rollout,
        run="made-up",
        group=GROUP,
        task=Task(id="question", prompt="?"),
        policies=(PolicyRecord(name="table"),),
    )
    trace = Trace(head)
    trace.graph.add(
        Message(role=Role.USER, content="?"),
        parent=ROOT,
        origin=Origin.USER,
        token_ids=np.array(QUESTION, np.int32),
        runs=make_runs((RunKind.CONTENT, len(QUESTION))),
    )
    return trace


def _turn(
    trace: Trace,
    ids: Sequence[int],
    *,
    parent: int | None = None,
    version: int = 3,
    finish: Finish = Finish.STOP,
) -> Trace:
    place = len(trace.graph) - 1 if parent is None else parent
    call = trace.add_call(
        Call(node=len(trace.graph), after=place, sampling=Sampling(), logprob_kind=LogprobKind.RAW, finish=finish)
    )
    tokens = np.array([ANSWER, *ids], np.int32)
    trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=place,
        origin=Origin.POLICY,
        token_ids=tokens,
        runs=make_runs((RunKind.SCAFFOLD, 1), (RunKind.SAMPLED, len(ids))),
        logprobs=table_logprobs(tokens)[1:],
        versions=make_runs((version, len(ids))),
        segments=make_runs((call, len(ids))),
        routed_experts=(np.array(ids, np.uint16)[:, None, None] + np.arange(4, dtype=np.uint16).reshape(1, 2, 2)),
        fork=None if parent is None or parent == len(trace.graph) - 1 else Fork(reason=ForkReason.EDITED_HISTORY),
    )
    return trace


def _observed(trace: Trace, ids: Sequence[int] = (50, 51)) -> Trace:
    trace.graph.add(
        Message(role=Role.TOOL, content="!"),
        parent=len(trace.graph) - 1,
        origin=Origin.ENVIRONMENT,
        token_ids=np.array(ids, np.int32),
        runs=make_runs((RunKind.CONTENT, len(ids))),
    )
    return trace


def _branching(rollout: str) -> Trace:
    trace = _turn(_start(rollout), (20, 21))
    first = len(trace.graph) - 1
    _turn(trace, (22,))
    _turn(trace, (23, 24), parent=first)
    return _turn(trace, (18, 19, 29), parent=first)


def _masked_end() -> Trace:
    return _demoted(_turn(_observed(_turn(_start("masked_end"), (44, 45))), (46, 47)))


def _demoted(trace: Trace) -> Trace:
    trace.graph.mark(len(trace.graph) - 1, Mark.DEMOTED)
    return trace


def _ended(trace: Trace, reward: float | None, reason: Reason = Reason.FINAL_ANSWER) -> Trace:
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    return trace
