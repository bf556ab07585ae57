"""Ending rules applied to a batch (the rules stand in `rollbook.trace.disposition`), and what follows for rewards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from rollbook.trace.annotation import Annotation
from rollbook.trace.disposition import DEFAULT_RULES, decide, ending_of
from rollbook.trace.ending import Disposition, EndingRules, Fate, Penalize, Reason, Retry
from rollbook.trace.facts import DISPOSITION
from rollbook.trace.trace import Trace

__all__ = ["DEFAULT_RULES", "PRODUCER", "annotate", "decide", "dispositions", "rules_hash", "voting_reward"]

PRODUCER = "rewards"
"""Who writes the annotations of this room."""


def dispositions(traces: Iterable[Trace], rules: EndingRules = DEFAULT_RULES) -> dict[str, Disposition]:
    """What became of each rollout of a finished run, by rollout id. A retryable attempt with a later attempt of the
    same group, seat and member is ``retried``."""
    kept = list(traces)
    last: dict[tuple[str, str, int], int] = {}
    for trace in kept:
        last[_place(trace)] = max(trace.head.attempt, last.get(_place(trace), 0))
    decided: dict[str, Disposition] = {}
    for trace in kept:
        reason = ending_of(trace).reason
        if isinstance(rules.rule(reason), Retry) and trace.head.attempt < last[_place(trace)]:
            decided[trace.id] = Disposition(Fate.RETRIED, rules.describe(reason))
        else:
            decided[trace.id] = decide(trace, rules)
    return decided


def voting_reward(trace: Trace, rules: EndingRules = DEFAULT_RULES) -> float | None:
    """The reward with which a rollout enters its group, penalties included; None where it has no vote."""
    if trace.reward is None or not decide(trace, rules).votes:
        return None
    match rules.rule(ending_of(trace).reason):
        case Penalize(amount):
            return trace.reward + amount
        case _:
            return trace.reward


def rules_hash(rules: EndingRules) -> str:
    """16 hex digits that are equal exactly where two tables decide the same for every reason."""
    table = [(reason, rules.rule(reason)) for reason in Reason]
    return hashlib.blake2b(msgspec.msgpack.encode(table), digest_size=8).hexdigest()


def annotate(decided: dict[str, Disposition], step: int = 0, producer: str = PRODUCER) -> list[Annotation]:
    """Dispositions as annotations, for a sink."""
    return [
        Annotation(
            producer=producer, name=DISPOSITION, rollout=rollout, step=step, value=msgspec.to_builtins(disposition)
        )
        for rollout, disposition in decided.items()
    ]


def _place(trace: Trace) -> tuple[str, str, int]:
    return trace.head.group, trace.head.agent.seat, trace.head.member
