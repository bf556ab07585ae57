"""The ending rules applied to one rollout: what becomes of it.

Order of the rules; the first that decides stands. The row of the ending: ``retry`` (the next attempt while the
reason's own budget lasts, else dropped), ``drop``, ``mask``. Then, for ``score`` and ``penalize``: a rollout whose
scorer failed, that has no reward, or of which no turn trains (nothing was sampled, or every turn was rejected, demoted
or redacted) is dropped, for it could only distort its group. What is left votes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.errors import RecordError
from rollbook.trace.ending import Disposition, Drop, Ending, EndingRules, Fate, Mask, Penalize, Reason, Retry
from rollbook.trace.record import ScoringStatus, TraceTail
from rollbook.trace.trace import Trace

__all__ = ["DEFAULT_RULES", "decide", "decide_tail", "ending_of"]

DEFAULT_RULES = EndingRules()
"""The table that applies unless the user gives one."""


def decide(trace: Trace, rules: EndingRules = DEFAULT_RULES, *, earlier: Sequence[Reason] | None = None) -> Disposition:
    """What becomes of one ended rollout.

    `earlier`: how the earlier attempts of the same scheduled rollout ended; None: no further attempt will be made, as
    in a finished run. Raises `RecordError` for a trace that still runs.
    """
    turns: list[int] = trace.policy_nodes.tolist()
    trains = any(turn not in trace.graph.marks for turn in turns)
    return decide_tail(ending_of(trace), trace.tail, rules, trains=trains, earlier=earlier)


def decide_tail(
    ending: Ending,
    tail: TraceTail,
    rules: EndingRules = DEFAULT_RULES,
    *,
    trains: bool,
    earlier: Sequence[Reason] | None = None,
) -> Disposition:
    """The same from what is known when a rollout stopped. `trains`: one of its turns is not marked."""
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
            return _no_vote(tail, trains=trains) or Disposition(Fate.PENALISED, row)
        case _:
            return _no_vote(tail, trains=trains) or Disposition(Fate.USED, row)


def ending_of(trace: Trace) -> Ending:
    """The ending of a trace; raises `RecordError` where it still runs."""
    if trace.ending is None:
        raise RecordError(f"trace {trace.id} has no ending yet")
    return trace.ending


def _no_vote(tail: TraceTail, *, trains: bool) -> Disposition | None:
    if tail.scoring.status is ScoringStatus.FAILED:
        return Disposition(Fate.DROPPED, "scoring failed")
    if tail.reward is None:
        return Disposition(Fate.DROPPED, "no reward")
    if not trains:
        return Disposition(Fate.DROPPED, "no turn trains")
    return None
