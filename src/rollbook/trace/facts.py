"""The annotations that more than one room understands, as typed values.

Rules: a value of another shape is refused with the annotation's key (`UsageError`), never skipped. Where several
producers or steps say the same thing of a rollout, the highest step wins, then the one that came last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from rollbook.errors import UsageError
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Disposition
from rollbook.trace.episode import GroupKey
from rollbook.trace.record import ScoringStatus, TurnReward

__all__ = [
    "ADVANTAGE",
    "DISPOSITION",
    "MISMATCH",
    "REWARD",
    "STALENESS",
    "Advantage",
    "GroupAdvantages",
    "Mismatch",
    "Reward",
    "StaleBy",
    "Staleness",
    "advantages",
    "closed_groups",
    "dispositions",
    "fact",
    "flat_groups",
    "mismatches",
    "rewards",
    "scored_rewards",
    "stalenesses",
]

ADVANTAGE = "advantage"
"""Name of the annotation whose value is an `Advantage`."""

DISPOSITION = "disposition"
"""Name of the annotation whose value is a `Disposition`."""

MISMATCH = "mismatch"
"""Name of the annotation whose value is a `Mismatch`."""

REWARD = "reward"
"""Name of the annotation whose value is a `Reward`."""

STALENESS = "staleness"
"""Name of the annotation whose value is a `Staleness`."""


class GroupAdvantages(msgspec.Struct, frozen=True, kw_only=True):
    """The advantages of one closed group, and how they were computed: once, when it closed."""

    group: str
    seat: str
    values: dict[str, float]
    """Advantage by rollout, of the members that vote; nobody else has one."""
    members: tuple[str, ...]
    """Every rollout that the group held when it closed, those without a vote included."""
    baseline: float | None
    """The mean of the voters' rewards, penalties included; None where nobody votes."""
    scheduled: int
    """How many rollouts were asked for."""
    used: int
    """How many vote."""
    estimator: str
    """By name."""
    rules: str
    """Hash of the ending rules that were applied before."""
    turns: dict[str, tuple[tuple[int, float], ...]] = {}
    """(turn, advantage) by rollout, of those whose turns have advantages of their own; else all have the rollout's. In
    a member's annotation only its own are kept."""
    no_signal: str | None = None
    """Why all advantages are 0 though the rewards differ; None: no such rule applied."""

    @property
    def key(self) -> GroupKey:
        """What was compared with each other."""
        return GroupKey(self.group, self.seat)

    @property
    def zero_variance(self) -> bool:
        """True where there are votes, and all of them count alike: nothing is learned from the group."""
        by_turn = any(value for rows in self.turns.values() for _, value in rows)
        return len(set(self.values.values())) == 1 and not by_turn


class Advantage(GroupAdvantages, frozen=True, kw_only=True):
    """One rollout's advantage, with all that is known of its group."""

    advantage: float | None
    """None: the rollout has no vote."""

    @property
    def turn_advantages(self) -> dict[int, float] | None:
        """Its advantage by turn; None: all of its turns have the same."""
        own = next(iter(self.turns.values()), ())
        return dict(own) or None


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout was given when it was scored again; it takes the place of all that its trace says of rewards."""

    total: float | None
    """None: no reward, which is not zero."""
    parts: dict[str, float] = {}
    """What it is made of, by name."""
    turn_rewards: tuple[TurnReward, ...] = ()
    """Of single turns."""
    status: ScoringStatus = ScoringStatus.SCORED
    reason: str = ""
    """Why scoring failed; empty otherwise."""
    counted: bool = False
    """True where nobody scored it: a what-if counted its ending as this much, until the groups are closed again."""


class StaleBy(StrEnum):
    """Which of a rollout's sampled tokens says how stale it is."""

    OLDEST = "oldest"
    """The one of the oldest policy version."""
    MEAN = "mean"
    """All of them: the mean over tokens."""
    NEWEST = "newest"
    """The one of the newest policy version."""


class Staleness(msgspec.Struct, frozen=True, kw_only=True):
    """How many versions behind the trainer a rollout was, where it waited for one."""

    finished: int | None
    """The trainer's version when the rollout ended; None: nobody kept it."""
    taken: int | None = None
    """The trainer's version when its group was handed out or given up; None: neither has happened."""
    by: StaleBy = StaleBy.OLDEST
    """Which tokens `in_flight` is about."""
    in_flight: float | None = None
    """Versions that the trainer gained while the rollout ran: `finished` minus its own version. None: not known."""
    in_queue: int | None = None
    """Versions that the trainer gained while it waited: `taken` minus `finished`. None: not known."""
    queued: float | None = None
    """Seconds between the close of its group and its being taken; None: it was not taken."""
    dropped: bool = False
    """True where the bound took it out of the batch."""

    @property
    def total(self) -> float | None:
        """Versions behind the trainer when it was taken; None: not known."""
        return None if self.in_flight is None or self.in_queue is None else self.in_flight + self.in_queue


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """How far the engine's logprobs and a trainer's are apart on the same trained tokens, in nats."""

    tokens: int
    """Tokens that were compared."""
    unknown: int = 0
    """Trained tokens of which the engine gave no logprob; they are in no other number."""
    mean: float | None = None
    """Mean of the absolute difference; None: nothing was compared. Likewise below."""
    most: float | None = None
    """The largest absolute difference."""
    k1: float | None = None
    """Estimate of KL(engine, trainer): the mean of log engine - log trainer."""
    k3: float | None = None
    """Another one, never below 0: the mean of r - 1 - log r with r = trainer / engine."""
    version: int | None = None
    """Of the trainer's weights; None: not said."""


_Fact = TypeVar("_Fact", Advantage, GroupAdvantages, Disposition, Mismatch, Reward, Staleness)


def advantages(annotations: Iterable[Annotation]) -> dict[str, Advantage]:
    """The advantage of each rollout that has one."""
    return _newest(annotations, ADVANTAGE, Advantage)


def dispositions(annotations: Iterable[Annotation]) -> dict[str, Disposition]:
    """The disposition of each rollout that has one."""
    return _newest(annotations, DISPOSITION, Disposition)


def rewards(annotations: Iterable[Annotation]) -> dict[str, Reward]:
    """The reward of each rollout that was scored again."""
    return _newest(annotations, REWARD, Reward)


def scored_rewards(annotations: Iterable[Annotation]) -> dict[str, Reward]:
    """The same without those that a what-if counted: what a scorer said last, where it was asked again."""
    return _newest((each for each in annotations if not _counted(each)), REWARD, Reward)


def _counted(annotation: Annotation) -> bool:
    return annotation.name == REWARD and annotation.node is None and fact(annotation, Reward).counted


def closed_groups(members: Mapping[str, Advantage]) -> dict[GroupKey, GroupAdvantages]:
    """The groups whose members have these advantages, each whole again, in the order in which they come."""
    whole: dict[GroupKey, GroupAdvantages] = {}
    for each in members.values():
        known = whole.get(each.key)
        plain = msgspec.structs.asdict(each)
        plain["turns"] = {**({} if known is None else known.turns), **each.turns}
        whole[each.key] = msgspec.convert(plain, GroupAdvantages)
    return whole


def stalenesses(annotations: Iterable[Annotation]) -> dict[str, Staleness]:
    """The staleness of each rollout that has one."""
    return _newest(annotations, STALENESS, Staleness)


def mismatches(annotations: Iterable[Annotation]) -> dict[str, Mismatch]:
    """The mismatch of each rollout that was trained from."""
    return _newest(annotations, MISMATCH, Mismatch)


def flat_groups(values: Iterable[GroupAdvantages]) -> set[str]:
    """The groups from which nothing is learned: somebody votes, and in each seat all votes count alike."""
    flat: dict[str, bool] = {}
    for each in values:
        if each.used:
            flat[each.group] = flat.get(each.group, True) and each.zero_variance
    return {group for group, every in flat.items() if every}


def _newest(annotations: Iterable[Annotation], name: str, kind: type[_Fact]) -> dict[str, _Fact]:
    newest: dict[str, Annotation] = {}
    for each in annotations:
        if each.name != name or each.node is not None:
            continue
        known = newest.get(each.rollout)
        if known is None or each.step >= known.step:
            newest[each.rollout] = each
    return {rollout: fact(each, kind) for rollout, each in newest.items()}


def fact(annotation: Annotation, kind: type[_Fact]) -> _Fact:
    """The value of one annotation as a `kind`; raises `UsageError` where it has another shape."""
    try:
        return msgspec.convert(annotation.value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"annotation {annotation.key} is no {kind.__name__}: {error}; its producer, '{annotation.producer}', can "
            "write it again with the same key, or its stream can be moved out of the run"
        ) from error
