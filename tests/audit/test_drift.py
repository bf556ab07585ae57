import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.audit import Status
from rollbook.audit.drift import first_difference
from rollbook.trace import Fork, ForkReason
from tests.audit.build import Build, Spelling, check, sound


def test_a_turn_that_comes_back_with_other_ids_is_found_at_its_first_difference() -> None:
    traces = sound("a", ids=(10, 11)), Build("b").observe().turn((10, 7, 8)).end()
    row = check("drift", *traces, renderer=Spelling(i7=(70, 71)))
    assert (row.status, row.value, row.n, row.found) == (Status.INFO, 0.5, 2, 1)
    (finding,) = row.findings
    assert (finding.rollout, finding.node, finding.token) == ("b", 1, 2 + 1)
    assert finding.text == "sampled [7, 8], re-encoded [70, 71, 8]"
    assert traces[1].graph[1].sampled_ids.tolist() == [10, 7, 8]


def test_a_shorter_spelling_differs_where_it_ends() -> None:
    row = check("drift", sound(ids=(10, 11)), renderer=Spelling(i11=()))
    assert (row.value, row.findings[0].token) == (1.0, 3)


def test_without_a_reencoder_it_is_not_judged_and_not_zero() -> None:
    row = check("drift", sound())
    assert (row.status, row.value) == (Status.NOT_JUDGED, None)
    assert "pass the run's renderer" in row.says


def test_turns_of_another_or_an_unknown_tokenizer_are_not_judged() -> None:
    other = Build("a", tokenizer="other").observe().turn().end()
    unknown = Build("b", tokenizer="").observe().turn().end()
    row = check("drift", other, other, unknown, renderer=Spelling())
    assert row.status is Status.NOT_JUDGED
    assert (row.details["other_tokenizer"], row.details["unknown_tokenizer"]) == (2, 1)
    assert check("drift", other, sound("c"), renderer=Spelling()).n == 1


def test_forks_that_were_recorded_as_drift_are_counted() -> None:
    build = Build().observe().turn()
    fork = Fork(reason=ForkReason.DRIFT, position=4, kept="a", found="b")
    assert check("drift", build.turn(parent=0, fork=fork).end(), renderer=Spelling()).details["forks_by_drift"] == 1


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_first_difference_splits_two_sequences(kept: list[int], found: list[int]) -> None:
    place = first_difference(np.array(kept, np.int32), np.array(found, np.int32))
    if place is None:
        assert kept == found
    else:
        assert kept[:place] == found[:place]
        assert kept[place : place + 1] != found[place : place + 1]
