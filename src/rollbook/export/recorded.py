"""The samples of a recorded batch, as its record says: one place for exports and for every door.

Rules: a rollout's disposition is the recorded one, else the one that the ending rules give; an advantage is the given
one, else the recorded one (with its own for each turn, where the estimator gave such); a reward that was given later
takes the place of the trace's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.disposition import DEFAULT_RULES, decide, decide_tail
from rollbook.trace.ending import Disposition, EndingRules, Reason
from rollbook.trace.facts import Reward
from rollbook.trace.facts import advantages as recorded_advantages
from rollbook.trace.facts import dispositions as recorded_dispositions
from rollbook.trace.facts import rewards as recorded_rewards
from rollbook.trace.protocols import TraceSource
from rollbook.trace.record import ScoringStatus
from rollbook.trace.rescored import rescored_all
from rollbook.trace.sample import Sample, SampleSet, samples
from rollbook.trace.stored import OpenedTrace
from rollbook.trace.trace import Trace

__all__ = ["Recorded", "recorded_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is recorded of the rollouts of a batch; it holds no trace."""

    rules: EndingRules
    """For rollouts on which nobody decided."""
    rewards: Mapping[str, Reward]
    dispositions: Mapping[str, Disposition]
    advantages: Mapping[str, float | None]
    turn_advantages: Mapping[str, Mapping[int, float]]
    max_tokens: int | None
    """Longer branches do not train."""
    _votes: dict[tuple[Reason, ScoringStatus, bool], bool] = field(
        default_factory=dict[tuple[Reason, ScoringStatus, bool], bool]
    )
    """What the rules give a rollout all of which may train, by all that they look at."""

    @classmethod
    def of(
        cls,
        facts: Sequence[Annotation],
        *,
        rules: EndingRules = DEFAULT_RULES,
        dispositions: Mapping[str, Disposition] | None = None,
        advantages: Mapping[str, float | None] | None = None,
        turn_advantages: Mapping[str, Mapping[int, float]] | None = None,
        max_tokens: int | None = None,
    ) -> Recorded:
        """Read the annotations; `dispositions`, `advantages` and `turn_advantages`, by rollout, go before what they
        say."""
        known = recorded_advantages(facts)
        given = advantages or {}
        return cls(
            rules=rules,
            rewards=recorded_rewards(facts),
            dispositions={**recorded_dispositions(facts), **(dispositions or {})},
            advantages={**{rollout: fact.advantage for rollout, fact in known.items()}, **given},
            turn_advantages={
                **{
                    rollout: by_turn
                    for rollout, fact in known.items()
                    if rollout not in given and (by_turn := fact.turn_advantages) is not None
                },
                **(turn_advantages or {}),
            },
            max_tokens=max_tokens,
        )

    def traces(self, source: TraceSource) -> Iterator[Trace]:
        """The traces of the batch, each with the reward that counts."""
        return rescored_all(source.traces(), self.rewards)

    def goes_whole(self, opened: OpenedTrace) -> bool:
        """True where the rollout votes and is not too long, so that all of it trains, and is as it was stored, each
        turn with the same advantage."""
        if opened.id in self.rewards or opened.id in self.turn_advantages:
            return False
        if self.max_tokens is not None and opened.tokens > self.max_tokens:
            return False
        disposition = self.dispositions.get(opened.id)
        if disposition is not None:
            return disposition.votes
        tail = opened.tail
        alike = (opened.ending.reason, tail.scoring.status, tail.reward is None)
        if alike not in self._votes:
            self._votes[alike] = decide_tail(opened.ending, tail, self.rules, trains=True).votes
        return self._votes[alike]

    def disposition(self, trace: Trace) -> Disposition:
        """What becomes of one of `traces`."""
        recorded = self.dispositions.get(trace.id)
        return decide(trace, self.rules) if recorded is None else recorded

    def samples(self, trace: Trace) -> SampleSet:
        """The samples of one of `traces`; raises `RecordError` for one without token ids."""
        return samples(
            trace,
            disposition=self.disposition(trace),
            advantage=self.advantages.get(trace.id),
            turn_advantages=self.turn_advantages.get(trace.id),
            max_tokens=self.max_tokens,
        )


def recorded_samples(
    source: TraceSource,
    *,
    rules: EndingRules = DEFAULT_RULES,
    annotations: Sequence[Annotation] | None = None,
    max_tokens: int | None = None,
) -> Iterator[Sample]:
    """The samples of all rollouts of a batch that vote, those of one rollout together; rollouts without token ids give
    none. What `export` writes, for a door: ``open_door("verl").records(list(recorded_samples(run)))``.

    `rules`: for rollouts on which nobody decided. `annotations`: the snapshot to use (None: the source's, as they are
    now). `max_tokens`: longer branches do not train. One trace at a time is held.
    """
    facts = fold(source.annotations() if annotations is None else annotations)
    recorded = Recorded.of(facts, rules=rules, max_tokens=max_tokens)
    for trace in recorded.traces(source):
        if trace.head.tokens:
            yield from recorded.samples(trace)
