"""The checks of an exporter: each finds the door that breaks it, and only that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.conformance import ExporterVerdict, check_exporter
from rollbook.export.conformance.judge import check_door
from rollbook.export.conformance.made import cases, made_up_samples, table_logprobs
from rollbook.export.doors import DOORS, Door, DoorModule, ExporterCheck, Row, find_door, open_door, verl_batch
from rollbook.trace.sample import Sample

DOOR = Door(name="mine", about="A door on trial.", module="")


class Bent:
    """verl's batch, read back with one thing wrong."""

    def __init__(self, bend: Callable[[list[Row]], list[Row]] = list) -> None:
        self.bend = bend

    def records(self, samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> Any:
        return verl_batch.records(samples, allow_unfit_logprobs=allow_unfit_logprobs)

    def rows(self, records: Any) -> list[Row]:
        return self.bend(verl_batch.rows(records))


def each(change: Callable[[Row], Row]) -> Bent:
    return Bent(lambda rows: [change(row) for row in rows])


def broken(module: DoorModule, door: Door = DOOR) -> set[ExporterCheck]:
    return {finding.about for finding in check_door(door, module).broken}


def changed(**fields: Callable[[Row], Any]) -> Bent:
    return each(lambda row: dataclasses.replace(row, **{name: make(row) for name, make in fields.items()}))


@pytest.mark.parametrize("name", sorted(DOORS))
def test_every_door_is_sound(name: str) -> None:
    report = check_exporter(name)
    assert [finding.about for finding in report.findings] == list(ExporterCheck)
    assert not report.broken
    assert report.fit
    door = find_door(name)
    for finding in report.findings:
        reason = door.lacks.get(finding.about) or door.refuses.get(finding.about)
        assert (finding.verdict is ExporterVerdict.FINE) == (reason is None)
        assert finding.detail == (reason or finding.detail)


def test_the_door_as_it_is_breaks_nothing() -> None:
    assert broken(Bent()) == set()


C = ExporterCheck
TOO_MANY = {C.MASKED_GRADIENT, C.SAMPLED_ONLY, C.LOGPROB_ALIGNMENT, C.REWARD_SEEN}


def rolled(experts: Any) -> Any:
    return None if experts is None else np.roll(experts, 1, axis=0)


def everywhere(row: Row) -> Any:
    return np.full(len(row.trains), row.advantages[row.trains][0])


BENT: dict[str, tuple[Bent, set[ExporterCheck]]] = {
    "observations train": (changed(trains=lambda row: np.arange(len(row.trains)) >= 5), TOO_MANY),
    "the demoted turn trains": (
        changed(trains=lambda row: row.trains | np.isin(row.token_ids, (46, 47))),
        {C.MASKED_GRADIENT, C.SAMPLED_ONLY, C.LOGPROB_ALIGNMENT, C.REWARD_SEEN},
    ),
    "shifted logprobs": (changed(logprobs=lambda row: np.roll(row.logprobs, 1)), {C.LOGPROB_ALIGNMENT}),
    "no logprobs": (changed(logprobs=lambda row: None), {C.LOGPROB_ALIGNMENT}),
    "NaN off the loss": (
        changed(logprobs=lambda row: np.where(row.trains, row.logprobs, np.nan)),
        {C.MASKED_GRADIENT},
    ),
    "advantages off the loss": (changed(advantages=everywhere), {C.MASKED_GRADIENT}),
    "no id of the attempt": (changed(rollout=lambda row: None), {C.BRANCH_WEIGHT}),
    "each branch an attempt": (
        changed(rollout=lambda row: (row.rollout, row.token_ids.tobytes())),
        {C.BRANCH_WEIGHT},
    ),
    "each branch whole": (changed(weight=lambda row: 1.0), {C.BRANCH_WEIGHT}),
    "a group for each": (changed(group=lambda row: row.rollout), {C.BRANCH_WEIGHT}),
    "no reward": (changed(reward=lambda row: None), {C.REWARD_SEEN}),
    "reward only where the last token trains": (
        changed(reward=lambda row: row.reward * row.trains[-1]),
        {C.REWARD_SEEN},
    ),
    "a cut row is not marked": (changed(truncated=lambda row: False), {C.LENGTH_CUT}),
    "two last rows": (changed(is_last=lambda row: True), {C.CONTIGUOUS}),
    "no last row": (changed(is_last=lambda row: False), {C.CONTIGUOUS}),
    "experts of the next pass": (changed(experts=lambda row: rolled(row.experts)), {C.EXPERT_ROWS}),
    "no experts": (changed(experts=lambda row: None), {C.EXPERT_ROWS}),
}


@pytest.mark.parametrize("what", BENT)
def test_a_bent_door_is_found_by_its_check(what: str) -> None:
    module, by = BENT[what]
    assert broken(module) == by


def test_a_row_too_many_or_another_sequence_is_found() -> None:
    assert broken(Bent(lambda rows: rows[:1])) >= {C.MASKED_GRADIENT, C.BRANCH_WEIGHT}
    closed = each(lambda row: dataclasses.replace(row, token_ids=np.append(row.token_ids, 0)))
    assert C.LENGTH_CUT in broken(closed)


def test_rows_that_stand_apart_are_found() -> None:
    class Apart(Bent):
        def records(self, samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> Any:
            made = [verl_batch.records([sample]) for sample in samples]
            return made or verl_batch.records(samples)

        def rows(self, records: Any) -> list[Row]:
            return [row for record in records for row in verl_batch.rows(record)]

    assert C.CONTIGUOUS in broken(Apart())


class Lax(Bent):
    """Takes whatever it is given."""

    def records(self, samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> Any:
        return list(samples)

    def rows(self, records: Any) -> list[Row]:
        return [
            Row(
                token_ids=sample.token_ids.astype(np.int64),
                trains=sample.loss_mask,
                logprobs=np.where(sample.loss_mask, sample.logprobs, 0),
                reward=sample.reward,
                rollout=sample.rollout,
                truncated=sample.truncated,
                experts=sample.routed_experts,
            )
            for sample in records
        ]


def test_a_door_that_takes_everything_is_found() -> None:
    assert C.EMPTY_REFUSED in broken(Lax())


def test_members_without_a_vote_that_shift_a_row_are_found() -> None:
    class Counting(Bent):
        """Gives every row the size of its batch as a weight, lost members included."""

        def rows(self, records: Any) -> list[Row]:
            names = set(records["non_tensors"]["rollout_id"])
            rows = verl_batch.rows(records)
            return rows if len(names) != 2 else [*rows[:1], dataclasses.replace(rows[1], reward=next(count))]

    count = iter(range(100))
    assert C.LOST_MEMBERS in broken(Counting())


def test_what_a_door_lacks_is_said_and_what_it_refuses_is_tried() -> None:
    lacking = dataclasses.replace(DOOR, lacks={C.EXPERT_ROWS: "There is no field for them."})
    report = check_door(lacking, changed(experts=lambda row: None))
    assert report.fit
    (finding,) = [each for each in report.findings if each.verdict is ExporterVerdict.LACKS]
    assert finding.detail == "There is no field for them."
    pretending = dataclasses.replace(DOOR, refuses={C.BRANCH_WEIGHT: "One row for each prompt."})
    assert broken(Bent(), pretending) == {C.BRANCH_WEIGHT}

    class OneRow(Bent):
        def records(self, samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> Any:
            if len({sample.rollout for sample in samples}) < len(samples):
                raise UsageError("one row for each prompt")
            return super().records(samples, allow_unfit_logprobs=allow_unfit_logprobs)

    honest = dataclasses.replace(pretending, refuses={C.BRANCH_WEIGHT: "One row.", C.CONTIGUOUS: "One row."})
    assert broken(OneRow(), honest) == set()
    assert broken(OneRow()) == {C.BRANCH_WEIGHT, C.CONTIGUOUS}


def test_an_unknown_door_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="no door 'vrel'; doors: "):
        check_exporter("vrel")


def test_the_made_up_policy_can_be_asked_again() -> None:
    for sample in made_up_samples(cases()):
        assert np.array_equal(table_logprobs(sample.token_ids)[sample.sampled], sample.logprobs[sample.sampled])
        assert np.exp(table_logprobs(np.array([3, 9]))[1]) < 1


def test_made_up_rollouts_without_a_vote_leave_no_sample() -> None:
    every = cases()
    names = {sample.rollout for sample in made_up_samples(every)}
    assert names == {case.name for case in every if case.votes}
    assert len(every) - len(names) == 2
    assert sum(sample.advantage or 0.0 for sample in made_up_samples(every) if sample.branch == 0) == pytest.approx(0)


def test_doors_are_there() -> None:
    for name in DOORS:
        assert {"records", "rows"} <= vars(open_door(name)).keys()
