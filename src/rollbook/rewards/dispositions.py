"""Ending rules applied: what becomes of each ended rollout.

Order of the rules; the first that decides stands. The row of the ending: ``retry`` (the next attempt while the
reason's own budget lasts, else dropped), ``drop``, ``mask``. Then, for ``score`` and ``penalize``: a rollout whose
scorer failed, that has no reward, or of which no turn trains (nothing was sampled, or every turn was rejected, demoted
or redacted) is dropped, for it could only distort its group. What is left votes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from rollbook.errors import RecordError
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Disposition, Drop, Ending, EndingRules, Fate, Mask, Penalize, Reason, Retry
from rollbook.trace.trace import ScoringStatus, Trace

__all__ = ["DEFAULT_RULES", "PRODUCER", "annotate", "decide", "dispositions", "rules_hash", "voting_reward"]

DEFAULT_RULES = EndingRules()
"""The table that applies unless the user gives one."""
PRODUCER = "rewards"
"""Who writes the annotations of this room."""


def decide(trace: Trace, rules: EndingRules = DEFAULT_RULES, *, earlier: Sequence[Reason] | None = None) -> Disposition:
    """What becomes of one ended rollout.

    `earlier`: how the earlier attempts of the same scheduled rollout ended; None: no further attempt will be made, as
    in a finished run. Raises `RecordError` for a trace that still runs.
    """
    ending = _ending(trace)
    row = rules.describe(ending.reason)
    match rules.rule(ending.reason):
        case Retry(times):
            if earlier is not None and earlier.count(ending.reason) < times:
                return Disposition(Fate.RETRIED, row)
            return Disposition(Fate.DROPPED, f"{row}, no attempt left")
        case Drop():
            return Disposition(Fate.DROPPED, row)
        case Mask():
            return Disposition(Fate.MASKED, row)
        case Penalize():
            return _no_vote(trace) or Disposition(Fate.PENALISED, row)
        case _:
            return _no_vote(trace) or Disposition(Fate.USED, row)


def dispositions(traces: Iterable[Trace], rules: EndingRules = DEFAULT_RULES) -> dict[str, Disposition]:
    """What became of each rollout of a finished run, by rollout id. A retryable attempt with a later attempt of the
    same group, seat and member is ``retried``."""
    kept = list(traces)
    last: dict[tuple[str, str, int], int] = {}
    for trace in kept:
        last[_place(trace)] = max(trace.head.attempt, last.get(_place(trace), 0))
    decided: dict[str, Disposition] = {}
    for trace in kept:
        reason = _ending(trace).reason
        if isinstance(rules.rule(reason), Retry) and trace.head.attempt < last[_place(trace)]:
            decided[trace.id] = Disposition(Fate.RETRIED, rules.describe(reason))
        else:
            decided[trace.id] = decide(trace, rules)
    return decided


def voting_reward(trace: Trace, rules: EndingRules = DEFAULT_RULES) -> float | None:
    """The reward with which a rollout enters its group, penalties included; None where it has no vote."""
    if trace.reward is None or not decide(trace, rules).votes:
        return None
    match rules.rule(_ending(trace).reason):
        case Penalize(amount):
            return trace.reward + amount
        case _:
            return trace.reward


def rules_hash(rules: EndingRules) -> str:
    """16 hex digits that are equal exactly where two tables decide the same for every reason."""
    table = [(reason, rules.rule(reason)) for reason in Reason]
    return hashlib.blake2b(msgspec.msgpack.encode(table), digest_size=8).hexdigest()


def annotate(decided: dict[str, Disposition], step: int = 0) -> list[Annotation]:
    """Dispositions as annotations, for a sink."""
    return [
        Annotation(
            producer=PRODUCER, name="disposition", rollout=rollout, step=step, value=msgspec.to_builtins(disposition)
        )
        for rollout, disposition in decided.items()
    ]


def _place(trace: Trace) -> tuple[str, str, int]:
    return trace.head.group, trace.head.agent.seat, trace.head.member


def _ending(trace: Trace) -> Ending:
    if trace.ending is None:
        raise RecordError(f"trace {trace.id} has no ending yet")
    return trace.ending


def _no_vote(trace: Trace) -> Disposition | None:
    if trace.tail.scoring.status is ScoringStatus.FAILED:
        return Disposition(Fate.DROPPED, "scoring failed")
    if trace.reward is None:
        return Disposition(Fate.DROPPED, "no reward")
    if all(turn.mark is not None for turn in trace.turns()):
        return Disposition(Fate.DROPPED, "no turn trains")
    return None
