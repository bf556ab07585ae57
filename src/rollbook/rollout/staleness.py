"""How stale a rollout is: how many versions its sampled tokens are behind the trainer. Pure: no clock, no I/O.

Rules: the version of a token is what the engine said of it; a token of which nobody said it has none, and what cannot
be told for certain without it is unknown, never 0. Staleness has two parts that add up: in flight (what the trainer
gained while the rollout ran) and in queue (what it gained while the rollout waited to be taken). Which tokens decide,
the oldest, all of them by their mean, or the newest, is the bound's own setting and stands in the record.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rollbook.errors import ConfigError
from rollbook.rewards import Outcome
from rollbook.trace.facts import StaleBy, Staleness

__all__ = ["StaleBy", "Staleness", "StalenessBound", "TokenVersions", "Verdict", "split"]


class TokenVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy versions of a rollout's sampled tokens."""

    counts: tuple[tuple[int, int], ...]
    """(version, tokens), the oldest version first."""
    unknown: int = 0
    """Tokens of which nobody told the version."""

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> TokenVersions:
        """Those of an ended attempt, by its row: all sampled tokens, whatever branch they are on."""
        return cls(counts=outcome.versions, unknown=outcome.sampled - sum(tokens for _, tokens in outcome.versions))

    def at(self, by: StaleBy) -> float | None:
        """The version that counts; None where a token's version is missing, or nothing was sampled."""
        if self.unknown or not self.counts:
            return None
        match by:
            case StaleBy.OLDEST:
                return self.counts[0][0]
            case StaleBy.NEWEST:
                return self.counts[-1][0]
            case StaleBy.MEAN:
                return sum(version * tokens for version, tokens in self.counts) / sum(n for _, n in self.counts)

    def behind(self, trainer: int, by: StaleBy) -> float | None:
        """Versions behind the trainer's; negative where the engine is ahead of it. None: not known."""
        version = self.at(by)
        return None if version is None else trainer - version


class Verdict(StrEnum):
    """What a bound says of a rollout."""

    FITS = "fits"
    TOO_STALE = "too_stale"
    UNKNOWN = "unknown"
    """The engine did not tell the versions that it would take to know."""


class StalenessBound(msgspec.Struct, frozen=True, kw_only=True):
    """How stale a rollout may be when the trainer takes it."""

    most: int
    """Versions behind the trainer that are still allowed."""
    by: StaleBy = StaleBy.OLDEST
    """Which tokens decide."""
    drop_unknown: bool = False
    """Drop rollouts of which it cannot be told. False: they are used and counted as unknown."""

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ConfigError(f"StalenessBound: most is {self.most}; want a whole number >= 0")

    def judge(self, versions: TokenVersions, trainer: int) -> Verdict:
        """What the bound says of a rollout that ended, were it taken now."""
        behind = versions.behind(trainer, self.by)
        if behind is None:
            # One token that is too old decides, whatever the versions of the others.
            known = self.by is StaleBy.OLDEST and versions.counts
            return Verdict.TOO_STALE if known and trainer - versions.counts[0][0] > self.most else Verdict.UNKNOWN
        return Verdict.FITS if behind <= self.most else Verdict.TOO_STALE

    def drops(self, versions: TokenVersions, trainer: int) -> str | None:
        """The rule that takes a rollout out of the batch, as text for the record; None: it stays."""
        match self.judge(versions, trainer):
            case Verdict.FITS:
                return None
            case Verdict.TOO_STALE:
                behind = versions.behind(trainer, self.by)
                shown = "more" if behind is None else f"{behind:.4g}"
                return f"{self}: {shown} behind version {trainer}"
            case Verdict.UNKNOWN:
                return f"{self}: not known" if self.drop_unknown else None

    def may_fit(self, started: int, trainer: int) -> bool:
        """False where a rollout that began when the trainer was at `started` is certain not to fit any more. Only its
        oldest token is certain while it runs: what it samples next is newer."""
        return self.by is not StaleBy.OLDEST or trainer - started <= self.most

    def __str__(self) -> str:
        return f"staleness by {self.by} at most {self.most}"


def split(versions: TokenVersions, by: StaleBy, *, finished: int | None, taken: int | None) -> Staleness:
    """The two parts. `finished`, `taken`: the trainer's version when the rollout ended and when it was taken; None: not
    known, or not yet."""
    return Staleness(
        finished=finished,
        taken=taken,
        by=by,
        in_flight=None if finished is None else versions.behind(finished, by),
        in_queue=None if finished is None or taken is None else taken - finished,
    )
