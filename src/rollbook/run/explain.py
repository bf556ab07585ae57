"""Why a rollout trains as it does: token by token, and for its advantage with whom and how it was compared.

Rules: what is told is what an export of the run would do now, with the recorded dispositions and advantages, else the
default ending rules; nothing is computed anew but the spans (`rollbook.trace.reasons`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from rollbook.errors import UsageError
from rollbook.export.recorded import Recorded
from rollbook.store import RunReader
from rollbook.trace import TokenIds, Trace, facts
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Disposition
from rollbook.trace.ownership import Ownership
from rollbook.trace.packing import PrefixReport, prefix_report
from rollbook.trace.reasons import REASONS, Span, token_spans
from rollbook.trace.rescored import rescored, rescored_all

__all__ = ["AdvantageSource", "BranchSpans", "Explanation", "Member", "RunSharing", "explain", "sharing"]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of the group that was compared."""

    rollout: str
    reward: float | None
    """None: no reward, or nothing of it is stored."""
    advantage: float | None
    """None: it has no vote."""
    disposition: str | None
    """What became of it and by which rule; None: nobody decided."""


class AdvantageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rollout's advantage comes from."""

    advantage: float | None
    estimator: str
    baseline: float | None
    """The mean of the voters' rewards."""
    rules: str
    """Hash of the ending rules."""
    scheduled: int
    used: int
    turns: dict[int, float] | None
    """Advantage by turn; None: all of its turns have the rollout's."""
    no_signal: str | None
    """Why all advantages of the group are 0 though the rewards differ; None: no such rule applied."""
    members: tuple[Member, ...]


class BranchSpans(msgspec.Struct, frozen=True, kw_only=True):
    """One branch and its tokens."""

    branch: int
    loss: str | None
    """Why the whole branch does not train; None: it may."""
    tokens: int
    trained: int
    weight: float | None
    """Its part of the rollout's vote; None: no token of it trains."""
    spans: tuple[Span, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why one rollout trains as it does."""

    rollout: str
    disposition: Disposition
    decided: str
    """``recorded``, or ``rules``: nobody decided, so the default ending rules do."""
    captured: int
    trained: int
    lost: dict[str, int]
    branches: tuple[BranchSpans, ...]
    advantage: AdvantageSource | None
    """None: none was recorded."""
    reasons: dict[str, str]
    """A sentence for each reason that occurs."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return msgspec.to_builtins(self)


def explain(
    source: RunReader, rollout: str, branch: int | None = None, *, max_tokens: int | None = None
) -> Explanation:
    """Explain one rollout, or one branch of it. `max_tokens`: as in the export.

    Raises `KeyError` for a rollout that is not there, `UsageError` for such a branch or a trace without token ids.
    """
    notes = source.annotations()
    recorded = Recorded.of(notes)
    trace = rescored(source.get(rollout), recorded.rewards.get(rollout))
    if not trace.head.tokens:
        raise UsageError(f"rollout {rollout} has no token ids (text-only engine); none of it can train")
    fate = recorded.disposition(trace)
    ownership = Ownership(trace, fate, max_tokens)
    if branch is not None and not 0 <= branch < len(ownership.shares):
        raise UsageError(f"rollout {rollout} has no branch {branch}; it has {len(ownership.shares)}, numbered from 0")
    chosen = range(len(ownership.shares)) if branch is None else (branch,)
    branches = tuple(_branch(ownership, each) for each in chosen)
    found = dict.fromkeys(span.reason for each in branches for span in each.spans)
    return Explanation(
        rollout=rollout,
        disposition=fate,
        decided="recorded" if rollout in recorded.dispositions else "rules",
        captured=ownership.ledger.captured,
        trained=ownership.ledger.trained,
        lost={str(reason): count for reason, count in sorted(ownership.ledger.lost.items())},
        branches=branches,
        advantage=_advantage(source, notes, rollout),
        reasons={reason: REASONS[reason] for reason in found},
    )


def _branch(ownership: Ownership, branch: int) -> BranchSpans:
    share, spans = ownership.shares[branch], token_spans(ownership, branch)
    trained = sum(len(span) for span in spans if span.trains)
    return BranchSpans(
        branch=branch,
        loss=share.loss,
        tokens=spans[-1].end if spans else 0,
        trained=trained,
        weight=trained / ownership.ledger.trained if trained else None,
        spans=spans,
    )


def _advantage(source: RunReader, notes: Sequence[Annotation], rollout: str) -> AdvantageSource | None:
    known = facts.advantages(notes).get(rollout)
    if known is None:
        return None
    fates = facts.dispositions(notes)
    rewards = {row.rollout: row.reward for row in source.summaries()}
    rewards |= {each: given.total for each, given in facts.rewards(notes).items()}
    return AdvantageSource(
        advantage=known.advantage,
        estimator=known.estimator,
        baseline=known.baseline,
        rules=known.rules,
        scheduled=known.scheduled,
        used=known.used,
        turns=known.turn_advantages,
        no_signal=known.no_signal,
        members=tuple(
            Member(
                rollout=each,
                reward=rewards.get(each),
                advantage=known.values.get(each),
                disposition=f"{fates[each].fate} by '{fates[each].rule}'" if each in fates else None,
            )
            for each in known.members
        ),
    )


class RunSharing(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer would save on a run's samples if it computed shared prefixes once."""

    within_rollouts: PrefixReport
    """Between the branches of one rollout."""
    within_groups: PrefixReport
    """Between all samples of one group, which mostly share their prompt too."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, the saved shares included."""
        parts = {"within_rollouts": self.within_rollouts, "within_groups": self.within_groups}
        return {name: {**msgspec.to_builtins(part), "saved": part.saved} for name, part in parts.items()}


def sharing(source: RunReader) -> RunSharing:
    """The prefixes that the samples of a run share; holds the token ids of one group at a time."""
    recorded = Recorded.of(source.annotations())
    groups: dict[str, list[str]] = defaultdict(list)
    for row in source.summaries():
        groups[row.group].append(row.rollout)
    inner, outer = PrefixReport(), PrefixReport()
    for members in groups.values():
        sets = list(_sequences(recorded, (source.get(rollout) for rollout in members)))
        inner += prefix_report(sets)
        outer += prefix_report([[ids for each in sets for ids in each]])
    return RunSharing(within_rollouts=inner, within_groups=outer)


def _sequences(recorded: Recorded, traces: Iterable[Trace]) -> Iterator[list[TokenIds]]:
    """The ids of each trace's samples."""
    for trace in rescored_all(traces, recorded.rewards):
        if trace.head.tokens:
            yield [sample.token_ids for sample in recorded.samples(trace)]
