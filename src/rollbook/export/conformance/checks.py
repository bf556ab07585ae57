"""The ten checks, each a function from a door on trial to the sentence that says what was seen; `Broken` where not.

The table `CHECKS` names for each the made-up rollouts that it stands on: the same that a door, where its trainer
cannot hold them, must refuse.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError, UsageError
from rollbook.export.conformance.made import Case, cases, made_up_samples, table_logprobs
from rollbook.export.doors.door import DoorModule, ExporterCheck, Row
from rollbook.trace.sample import Sample

__all__ = ["CHECKS", "Broken", "Check", "Tried"]


class Broken(Exception):
    """A check that does not hold; its text says what was seen."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A door on trial."""

    module: DoorModule

    def rows(self, names: Sequence[str], *, experts: bool = False) -> list[tuple[Sample, Row]]:
        """What the door makes of these made-up rollouts: each sample with its row."""
        return self.of(made_up_samples(_chosen(names), experts=experts))

    def of(self, given: Sequence[Sample]) -> list[tuple[Sample, Row]]:
        """What the door makes of these samples."""
        rows = self.module.rows(self.module.records(given))
        if len(rows) != len(given):
            raise Broken(f"{len(given)} samples gave {len(rows)} rows")
        for sample, row in zip(given, rows, strict=True):
            if row.token_ids.tolist() != sample.token_ids.tolist():
                raise Broken(f"the row of {sample.rollout!a} holds {row.token_ids.tolist()}, not the sample's tokens")
        return list(zip(given, rows, strict=True))

    def refused(self, names: Sequence[str], *, experts: bool = False) -> None:
        """Raise `Broken` unless the door refuses these made-up rollouts."""
        given = made_up_samples(_chosen(names), experts=experts)
        try:
            self.module.records(given)
        except UsageError:
            return
        raise Broken(f"says that it refuses them, and takes them: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table."""

    run: Callable[[Tried], str]
    cases: tuple[str, ...]
    """The rollouts that it stands on, by name."""
    experts: bool = False


def _chosen(names: Sequence[str]) -> list[Case]:
    by_name = {case.name: case for case in cases()}
    return [by_name[name] for name in names]


_LINEAR = ("one_turn", "two_turns", "masked_end", "cut", "two_versions")
"""Rollouts of one branch, each with a vote: every trainer takes them."""


def _masked_gradient(tried: Tried) -> str:
    off = 0
    for sample, row in tried.rows(_LINEAR):
        if not np.array_equal(row.trains, sample.loss_mask):
            raise Broken(f"{sample.rollout}: trains {_places(row.trains)}, must train {_places(sample.loss_mask)}")
        for name, numbers in (("logprob", row.logprobs), ("advantage", row.advantages)):
            if numbers is not None and not np.isfinite(numbers).all():
                raise Broken(f"{sample.rollout}: an {name} is not finite; times a mask of 0 that is NaN, not 0")
        if row.advantages is not None:
            want = np.where(sample.loss_mask, np.float32(sample.advantage or 0.0), np.float32(0))
            if not np.array_equal(row.advantages, want):
                raise Broken(f"{sample.rollout}: advantages {row.advantages.tolist()}, want {want.tolist()}")
        pull = _pull(row, sample)
        if pull[~sample.loss_mask].any() or not np.isfinite(pull).all():
            raise Broken(f"{sample.rollout}: the loss pulls at {_places((pull != 0) & ~sample.loss_mask)}")
        off += int((~sample.loss_mask).sum())
    return f"the loss pulls at none of {off} tokens out of it"


def _pull(row: Row, sample: Sample) -> npt.NDArray[np.float32]:
    """d loss / d logprob of each token, with an importance weight, as trainers have it: everything times the mask."""
    current = table_logprobs(row.token_ids) + np.float32(0.125)
    behaviour = current if row.logprobs is None else row.logprobs
    advantages = np.full(len(current), sample.advantage, np.float32) if row.advantages is None else row.advantages
    return -np.exp(current - behaviour) * advantages * row.trains


def _logprob_alignment(tried: Tried) -> str:
    count = 0
    for sample, row in tried.rows(_LINEAR):
        if row.logprobs is None:
            raise Broken("the record holds no logprobs")
        want = table_logprobs(row.token_ids)[row.trains]
        if not np.array_equal(row.logprobs[row.trains], want):
            raise Broken(f"{sample.rollout}: logprobs {row.logprobs[row.trains].tolist()}, recomputed {want.tolist()}")
        count += len(want)
    return f"{count} logprobs are those computed again from the rows' own ids"


def _sampled_only(tried: Tried) -> str:
    seen: Counter[tuple[str, int]] = Counter()
    for names in (_LINEAR, ("three_branches",)):
        try:
            found = tried.rows(names)
        except UsageError:
            continue  # several branches of one attempt: `branch_weight` says whether that is refused rightly
        for sample, row in found:
            if (row.trains & ~sample.sampled).any():
                raise Broken(
                    f"{sample.rollout}: a token trains that was not sampled, at {_places(row.trains & ~sample.sampled)}"
                )
            if not np.array_equal(row.trains, sample.loss_mask):
                raise Broken(f"{sample.rollout}: trains {_places(row.trains)}, must train {_places(sample.loss_mask)}")
            seen.update((sample.rollout, int(token)) for token in row.token_ids[row.trains])
    if twice := [rollout for (rollout, _), count in seen.items() if count > 1]:
        raise Broken(f"{twice[0]}: a token trains in two of its rows")
    return f"{len(seen)} tokens train, all of them sampled, none twice"


def _lost_members(tried: Tried) -> str:
    voters, lost = ("one_turn", "two_turns"), ("lost_host", "unscored")
    alone, beside = tried.rows(voters), tried.rows((*voters, *lost))
    if len(alone) != len(beside):
        raise Broken(f"two members without a vote make {len(beside)} rows of {len(alone)}")
    for (sample, row), (_, other) in zip(alone, beside, strict=True):
        if any(not _same(getattr(row, field.name), getattr(other, field.name)) for field in dataclasses.fields(Row)):
            raise Broken(f"the row of {sample.rollout} is another beside members without a vote")
    return f"{len(lost)} members without a vote change none of {len(alone)} rows"


def _branch_weight(tried: Tried) -> str:
    names = ("one_turn", "three_branches", "two_turns")
    found = tried.rows(names)
    shared: dict[object, set[str]] = {}
    for sample, row in found:
        if row.rollout is None:
            raise Broken("the record does not say which rows are of one attempt")
        shared.setdefault(row.rollout, set()).add(sample.rollout)
    if sorted(len(each) for each in shared.values()) != [1] * len(names):
        raise Broken(f"rows of {len(names)} attempts have the ids {sorted(map(str, shared))}")
    weights: dict[str, float] = {}
    for sample, row in found:
        if row.weight is not None:
            weights[sample.rollout] = weights.get(sample.rollout, 0.0) + row.weight
    if any(abs(weight - 1.0) > 1e-6 for weight in weights.values()):
        raise Broken(f"attempts weigh {weights}")
    if len({row.group for _, row in found}) > 1:
        raise Broken(f"rows of one group have the groups {sorted({str(row.group) for _, row in found})}")
    carried = ", and their weights sum to 1" if weights else ""
    return f"{len(found)} rows of {len(names)} attempts share {len(shared)} ids{carried}"


def _reward_seen(tried: Tried) -> str:
    found = tried.rows(_LINEAR)
    for sample, row in found:
        if row.reward != sample.reward:
            raise Broken(f"{sample.rollout}: reward {row.reward}, must be {sample.reward}")
    masked = sum(not row.trains[-1] for _, row in found)
    if not masked:
        raise Broken("no row ends on a token out of the loss")
    return f"{len(found)} rewards, {masked} of them on a last token out of the loss"


def _length_cut(tried: Tried) -> str:
    (_, row), (_, whole) = tried.rows(("cut",))[0], tried.rows(("one_turn",))[0]
    if row.truncated is None:
        return "the cut row ends where its generation was cut; the record has no place to mark it"
    if not row.truncated or whole.truncated:
        raise Broken(f"a cut row is marked {row.truncated}, a finished one {whole.truncated}")
    return "the cut row ends where its generation was cut, and is marked"


def _contiguous(tried: Tried) -> str:
    given = made_up_samples(_chosen(("one_turn", "three_branches", "lost_end", "two_turns")))
    mixed = given[::2] + given[1::2]
    rows = tried.module.rows(tried.module.records(mixed))
    order = [row.rollout for row in rows]
    if len([index for index, each in enumerate(order) if not index or order[index - 1] != each]) != len(set(order)):
        raise Broken(f"rows of one attempt stand apart: {order}")
    lasts = [row.is_last for row in rows]
    if None in lasts:
        return f"{len(rows)} rows of {len(set(order))} attempts stand together"
    ends = [index + 1 == len(order) or order[index + 1] != each for index, each in enumerate(order)]
    if lasts != ends:
        raise Broken(f"marked as last: {lasts}; must be {ends}")
    return f"{len(rows)} rows of {len(set(order))} attempts stand together, each with one last row, at its end"


def _expert_rows(tried: Tried) -> str:
    count = 0
    for sample, row in tried.of([_routed_everywhere(each) for each in made_up_samples(_chosen(_LINEAR))]):
        if row.experts is None or sample.routed_experts is None:
            raise Broken("the record holds no routed experts")
        if not np.array_equal(row.experts[1:], sample.routed_experts[1:]):
            raise Broken(f"{sample.rollout}: routed experts stand with other tokens")
        count += len(sample) - 1
    return f"routed experts of {count} tokens stand with theirs"


def _routed_everywhere(sample: Sample) -> Sample:
    """With made-up experts of each token but the first, which no pass gives."""
    known = np.arange(len(sample)) > 0
    experts = np.arange(len(sample) * 4, dtype=np.uint16).reshape(len(sample), 2, 2) * known[:, None, None]
    return dataclasses.replace(sample, routed_experts=experts.astype(np.uint16), experts_known=known)


def _empty_refused(tried: Tried) -> str:
    sample = made_up_samples(_chosen(("one_turn",)))[0]
    nothing = np.zeros(len(sample), np.bool_)
    wrong: dict[str, list[Sample]] = {
        "no samples at all": [],
        "a row that trains nothing": [dataclasses.replace(sample, loss_mask=nothing)],
        "a response without a sampled token": [dataclasses.replace(sample, loss_mask=nothing, sampled=nothing)],
        "logprobs of another distribution": [dataclasses.replace(sample, logprobs_fit=False)],
        "a token without a logprob": [dataclasses.replace(sample, logprobs=np.full(len(sample), np.nan, np.float32))],
        "the same branch twice": [sample, dataclasses.replace(sample)],
    }
    for what, given in wrong.items():
        try:
            tried.module.records(given)
        except (UsageError, RecordError):
            continue
        raise Broken(f"takes {what}")
    return f"refuses {', '.join(wrong)}"


CHECKS: Mapping[ExporterCheck, Check] = MappingProxyType(
    {
        ExporterCheck.MASKED_GRADIENT: Check(_masked_gradient, _LINEAR),
        ExporterCheck.LOGPROB_ALIGNMENT: Check(_logprob_alignment, _LINEAR),
        ExporterCheck.SAMPLED_ONLY: Check(_sampled_only, _LINEAR),
        ExporterCheck.LOST_MEMBERS: Check(_lost_members, _LINEAR),
        ExporterCheck.BRANCH_WEIGHT: Check(_branch_weight, ("three_branches",)),
        ExporterCheck.REWARD_SEEN: Check(_reward_seen, _LINEAR),
        ExporterCheck.LENGTH_CUT: Check(_length_cut, ("cut",)),
        ExporterCheck.CONTIGUOUS: Check(_contiguous, ("three_branches", "lost_end")),
        ExporterCheck.EXPERT_ROWS: Check(_expert_rows, _LINEAR, experts=True),
        ExporterCheck.EMPTY_REFUSED: Check(_empty_refused, ("one_turn",)),
    }
)
"""All checks."""


def _places(mask: npt.NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(cast("npt.NDArray[Any]", one), other, equal_nan=True))
    return one == other
