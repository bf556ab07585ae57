"""The time split: parts add up to the wall time, whatever is nested in what."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.rollout import Part, Stopwatch

PARTS = [part for part in Part if part is not Part.OTHER]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[float, Part | None]]:
    """(seconds that pass, then the span that opens; None closes the last one or nothing)."""
    step = st.tuples(st.integers(0, 64).map(lambda n: n / 16), st.none() | st.sampled_from(PARTS))
    return draw(st.lists(step, max_size=30))


@given(histories())
def test_each_moment_belongs_to_the_innermost_span(history: list[tuple[float, Part | None]]) -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    expected = dict.fromkeys(Part, 0.0)
    stack: list[tuple[Part, ExitStack]] = []
    for seconds, part in history:
        clock.now += seconds
        expected[stack[-1][0] if stack else Part.OTHER] += seconds
        if part is not None:
            opened = ExitStack()
            opened.enter_context(watch.span(part))
            stack.append((part, opened))
        elif stack:
            stack.pop()[1].close()
    split = watch.split()
    assert {part: vars_of(split)[part] for part in Part} == expected
    assert split.wall == sum(expected.values()) == watch.elapsed


def vars_of(split: object) -> dict[str, float]:
    return {str(part): getattr(split, str(part)) for part in Part}


def test_a_span_that_fails_is_closed() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    def fail() -> None:
        with watch.span(Part.ENGINE), watch.span(Part.CPU):
            clock.now += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now += 1
    split = watch.split()
    assert (split.cpu, split.engine, split.other, split.wall) == (2, 0, 1, 3)


def test_what_the_engine_does_not_report_is_unknown_and_not_zero() -> None:
    watch = Stopwatch(Clock())
    assert (watch.split().engine_queue, watch.split().engine_decode) == (None, None)
    watch.add_engine(queue=None, prefill=0.5, decode=None)
    watch.add_engine(queue=0.0, prefill=0.25, decode=None)
    split = watch.split()
    assert (split.engine_queue, split.engine_prefill, split.engine_decode) == (0.0, 0.75, None)
