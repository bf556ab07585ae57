"""The selection ledger: what was lost, by task, length, tool and version; and what staleness did to a batch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.audit import Evidence, Facet, Gate, SelectionLedger, Status
from rollbook.audit.selection import LENGTHS, length_bucket
from rollbook.trace import Annotation, Disposition, Fate, Reason, Trace
from rollbook.trace.facts import STALENESS, Staleness
from tests.audit.build import Build, advantage, call, check, disposition, sound

LOST = Disposition(Fate.DROPPED, "x")
USED = Disposition(Fate.USED, "x")


def stale(rollout: str, flight: float | None, queue: int | None, *, dropped: bool = False) -> Annotation:
    row = Staleness(finished=3, taken=3 + (queue or 0), in_flight=flight, in_queue=queue, dropped=dropped)
    return Annotation(producer="stream", name=STALENESS, rollout=rollout, value=msgspec.to_builtins(row))


def batch(*parts: tuple[int, int, int]) -> tuple[list[Trace], list[Annotation]]:
    """For each part (attempts, lost, sampled tokens of each)."""
    traces: list[Trace] = []
    notes: list[Annotation] = []
    for place, (attempts, lost, tokens) in enumerate(parts):
        for number in range(attempts):
            name = f"{place}-{number}"
            traces.append(sound(name, ids=range(10, 10 + tokens)))
            notes.append(disposition(name, LOST if number < lost else USED))
    return traces, notes


def test_a_length_that_is_lost_more_often_stands_out() -> None:
    traces, notes = batch((40, 2, 10), (10, 8, 300))
    row = check("selection", *traces, annotations=notes, gate=Gate(limits={"selection": 0.2}))
    assert (row.status, row.n) == (Status.BROKE, 50)
    assert row.value == pytest.approx(0.8 - 0.05)
    assert row.findings[0].text == "length 256 to 1023: 8 of 10 attempts lost, 75% more than elsewhere"
    assert row.findings[0].rollout == "1-0"
    assert (row.details["used"], row.details["dropped"]) == (40, 10)


@pytest.mark.parametrize(
    "parts", [((40, 2, 10), (7, 7, 300)), ((40, 10, 10), (10, 3, 300)), ((40, 40, 10), (10, 10, 300))]
)
def test_too_few_or_chance_do_not(parts: Sequence[tuple[int, int, int]]) -> None:
    traces, notes = batch(*parts)
    row = check("selection", *traces, annotations=notes)
    assert (row.status, row.value, row.found) == (Status.INFO, 0, 0)


def test_each_fate_has_its_count() -> None:
    fates = [
        ("used", USED),
        ("retried", Disposition(Fate.RETRIED, "x")),
        ("dropped", LOST),
        ("masked", Disposition(Fate.MASKED, "x")),
        ("stale", LOST),
        ("penalised", Disposition(Fate.PENALISED, "x")),
    ]
    notes = [disposition(name, fate) for name, fate in fates]
    traces = [sound(name) for name, _ in fates]
    row = check("selection", *traces, sound("nobody"), annotations=[*notes, stale("stale", 4, 0, dropped=True)])
    assert row.details == {
        "used": 2,
        "retried": 1,
        "dropped": 1,
        "masked": 1,
        "stale": 1,
        "refills": 0,
        "undecided": 1,
    }


def test_nobody_decided_is_no_answer() -> None:
    row = check("selection", sound("a"))
    assert (row.status, row.details["undecided"]) == (Status.NOT_JUDGED, 1)


def test_the_facets_of_an_attempt() -> None:
    traces = [
        Build("a").observe().turn(calls=(call(),), version=4).observe().turn(version=6).end(),
        Build("b").observe().turn(version=None).end(),
        Build("c").observe().end(Reason.ENV_SETUP, None),
    ]
    ledger = SelectionLedger(Evidence(dispositions={each.id: USED for each in traces}))
    for each in traces:
        ledger.see(each)
    assert {key: row.attempts for key, row in ledger.rows.items()} == {
        (Facet.TASK, "t"): 3,
        (Facet.LENGTH, "1 to 63"): 2,
        (Facet.TOOL, "add"): 1,
        (Facet.TOOL, "none"): 1,
        (Facet.VERSION, "4"): 1,
        (Facet.VERSION, "not told"): 1,
    }


def test_members_beyond_the_scheduled_ones_are_refills() -> None:
    notes = [disposition("a", USED), advantage("a", "a", scheduled=0)]
    assert check("selection", sound("a"), annotations=notes).details["refills"] == 1


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_buckets_are_in_order_and_have_no_gap(one: int, other: int) -> None:
    low, high = sorted((one, other))
    same = not any(low < begin <= high for begin in LENGTHS)
    assert (length_bucket(low) == length_bucket(high)) == same


@given(st.lists(st.sampled_from([*Fate]), max_size=30))
def test_every_decided_attempt_is_in_one_row_of_each_facet(fates: list[Fate]) -> None:
    ledger = SelectionLedger(
        Evidence(dispositions={str(place): Disposition(fate, "x") for place, fate in enumerate(fates)})
    )
    for place in range(len(fates)):
        ledger.see(sound(str(place), ids=range(10, 11 + 3 * place)))
    for facet in Facet:
        rows = [row for (mine, _), row in ledger.rows.items() if mine is facet]
        assert sum(row.attempts for row in rows) == ledger.whole.attempts == len(fates)
        assert sum(row.lost for row in rows) == ledger.whole.lost


# Staleness


def test_the_stalest_that_was_used_counts() -> None:
    notes = [stale("a", 1, 1), stale("b", 0.5, 3), stale("c", 9, 9, dropped=True), disposition("c", LOST)]
    row = check(
        "staleness", *map(sound, "abcd"), annotations=[*notes, stale("d", None, 2)], gate=Gate(limits={"staleness": 3})
    )
    assert (row.status, row.value, row.n) == (Status.BROKE, 3.5, 3 - 1)
    assert row.details == {"in_flight_mean": 0.75, "in_queue_mean": 2.0, "unknown": 1}
    assert row.findings[-1].text == "3.5 behind: 0.5 in flight, 3 in queue, by oldest"


def test_an_unknown_staleness_is_not_zero() -> None:
    row = check("staleness", sound("a"), annotations=[stale("a", None, 1)])
    assert (row.status, row.details["unknown"]) == (Status.NOT_JUDGED, 1)
    assert "did not say" in row.says
    assert "no trainer" in check("staleness", sound("a")).says


def test_what_the_bound_dropped_is_a_share() -> None:
    notes = [stale("a", 0, 0), stale("b", 4, 0, dropped=True)]
    rule = disposition("b", Disposition(Fate.DROPPED, "staleness by oldest at most 2: 4 behind version 7"))
    row = check("stale_dropped", *map(sound, "abc"), annotations=[*notes, rule])
    assert (row.value, row.n, row.details["tasks_hit"]) == (0.5, 2, 1)
    assert row.findings[0].text == "task 't': staleness by oldest at most 2: 4 behind version 7"
    assert check("stale_dropped", sound("a")).status is Status.NOT_JUDGED
