"""Staleness by token: what a bound says, what nobody can say, and the two parts that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.rewards import decide, outcome_of
from rollbook.rollout.staleness import StaleBy, StalenessBound, TokenVersions, Verdict, split
from rollbook.trace import EndingRules, Message, Origin, Reason, Role, RunKind, Trace, make_runs
from tests.audit.build import Build
from tests.rollout.made import versions_of

SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 200)), min_size=1, max_size=8)


def versions(*spans: tuple[int, int], unknown: int = 0) -> TokenVersions:
    return TokenVersions(counts=tuple(sorted(spans)), unknown=unknown)


def trace_of(*turns: list[tuple[int, int]]) -> Trace:
    """A turn for each list of (version, tokens); an empty list: 3 tokens of which nobody told."""
    build = Build().observe()
    for spans in turns:
        ids = list(range(10, 10 + (sum(count for _, count in spans) or 3)))
        build.leaf = build.trace.graph.add(
            Message(role=Role.ASSISTANT, content="y"),
            parent=build.leaf,
            origin=Origin.POLICY,
            token_ids=np.array(ids, np.int32),
            runs=make_runs((RunKind.SAMPLED, len(ids))),
            logprobs=np.full(len(ids), -0.5, np.float32),
            versions=make_runs(*spans),
        )
        build.observe()
    return build.end(Reason.FINAL_ANSWER)


@given(SPANS)
def test_a_trace_and_its_row_say_the_same_as_its_tokens(spans: list[tuple[int, int]]) -> None:
    trace = trace_of(spans[:3], spans[3:]) if spans[3:] else trace_of(spans)
    found = versions_of(trace)
    rules = EndingRules()
    assert found == TokenVersions.of_outcome(outcome_of(trace, rules, decide(trace, rules)))
    tokens = np.repeat(trace.graph.versions.view[:, 0], trace.graph.versions.view[:, 1])
    assert found.unknown == 0
    assert found.at(StaleBy.OLDEST) == tokens.min()
    assert found.at(StaleBy.NEWEST) == tokens.max()
    assert found.at(StaleBy.MEAN) == pytest.approx(tokens.mean())


def test_tokens_without_a_version_make_it_unknown() -> None:
    found = versions_of(trace_of([(4, 10)], []))
    assert (found.counts, found.unknown) == (((4, 10),), 3)
    assert [found.at(by) for by in StaleBy] == [None, None, None]
    bound = StalenessBound(most=2)
    assert bound.judge(found, 6) is Verdict.UNKNOWN
    assert bound.drops(found, 6) is None
    # An old token decides, whatever the others are; the mean does not know yet.
    assert bound.judge(found, 7) is Verdict.TOO_STALE
    assert bound.drops(found, 7) == "staleness by oldest at most 2: more behind version 7"
    assert StalenessBound(most=2, by=StaleBy.MEAN).judge(found, 99) is Verdict.UNKNOWN
    nothing = versions()
    assert bound.judge(nothing, 0) is Verdict.UNKNOWN
    assert StalenessBound(most=2, drop_unknown=True).drops(nothing, 0) == "staleness by oldest at most 2: not known"


@example([(3, 1)], 6, 2, StaleBy.OLDEST)  # one behind the bound
@example([(4, 1)], 6, 2, StaleBy.OLDEST)  # at it
@given(SPANS, st.integers(0, 20), st.integers(0, 5), st.sampled_from(StaleBy))
def test_a_bound_holds_what_it_says(spans: list[tuple[int, int]], trainer: int, most: int, by: StaleBy) -> None:
    found = versions_of(trace_of(spans))
    behind = found.behind(trainer, by)
    assert behind is not None
    bound = StalenessBound(most=most, by=by)
    assert (bound.judge(found, trainer) is Verdict.FITS) == (behind <= most) == (bound.drops(found, trainer) is None)
    oldest, newest = found.behind(trainer, StaleBy.OLDEST), found.behind(trainer, StaleBy.NEWEST)
    assert oldest is not None
    assert newest is not None
    assert newest <= behind <= oldest


@given(SPANS, st.integers(0, 20), st.integers(0, 9), st.sampled_from(StaleBy))
def test_the_two_parts_add_up(spans: list[tuple[int, int]], finished: int, waited: int, by: StaleBy) -> None:
    found = versions_of(trace_of(spans))
    row = split(found, by, finished=finished, taken=finished + waited)
    assert row.in_queue == waited
    assert row.total == pytest.approx(found.behind(finished + waited, by))


def test_what_is_not_known_is_not_zero() -> None:
    for row in (
        split(versions((3, 5)), StaleBy.OLDEST, finished=None, taken=4),
        split(versions((3, 5)), StaleBy.OLDEST, finished=3, taken=None),
        split(versions((3, 5), unknown=1), StaleBy.OLDEST, finished=3, taken=4),
    ):
        assert row.total is None


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4), SPANS)
def test_only_what_is_certain_not_to_fit_is_given_up(
    started: int, gained: int, most: int, spans: list[tuple[int, int]]
) -> None:
    """A rollout that may not fit any more would not fit when it ends: it holds a token of the version it began with."""
    trainer = started + gained
    ended = versions((started, 1), *((version + started, count) for version, count in spans))
    for by in StaleBy:
        bound = StalenessBound(most=most, by=by)
        assert bound.may_fit(started, trainer) or bound.judge(ended, trainer) is Verdict.TOO_STALE


def test_less_than_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="most is -1"):
        StalenessBound(most=-1)
