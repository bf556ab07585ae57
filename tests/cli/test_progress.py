"""Progress: lines where nobody watches, a bar where somebody does, and the terminal as it was afterwards."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rollbook.cli.progress import FetchBar, RunBar
from rollbook.models import Phase, Progress
from rollbook.trace import Ending, Reason, Trace
from tests.run.run_made import small_trace


def member(reason: Reason, reward: float | None) -> Trace:
    trace = small_trace("a")
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    return trace


def shown(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, markup=False)


def text(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_lines_tell_the_state_at_the_end_and_what_was_done_before() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(4, 2)
        bar.turn(small_trace("a"))
        bar.turn(small_trace("b"))
        bar.finished(member(Reason.FINAL_ANSWER, 1.0))
        bar.finished(member(Reason.HARNESS, None))
    assert text(out) == (
        "2 rollouts to run, 2 of 4 were finished before\n"
        "2 of 4 rollouts, 0 s, 1 turn, mean reward -, 0 errors\n"
        "4 of 4 rollouts, 0 s, 2 turns, mean reward 1.00, 1 error\n"
    )


def test_without_a_reward_there_is_no_mean() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(1, 0)
        bar.finished(member(Reason.HARNESS, None))
    assert "mean reward -" in text(out)


@pytest.mark.parametrize("fails", [False, True])
def test_a_bar_gives_the_terminal_back(fails: bool) -> None:
    out = shown(terminal=True)
    try:
        with RunBar(out) as bar:
            bar.planned(2, 0)
            bar.finished(member(Reason.FINAL_ANSWER, 0.5))
            if fails:
                raise ValueError("stop")
    except ValueError:
        assert fails
    assert "loading the model" in text(out)
    assert "waiting for the first replies" in text(out)
    assert "1/2" in text(out)
    assert text(out).count("\x1b[?25h") == text(out).count("\x1b[?25l") == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_fetching_tells_each_phase_once(terminal: bool) -> None:
    out = shown(terminal=terminal)
    with FetchBar(out) as bar:
        bar(Progress(Phase.DOWNLOAD, 0, 98_000_000))
        for done in (1, 2, 98_000_000):
            bar(Progress(Phase.UNPACK, done, 98_000_000))
        bar(Progress(Phase.CHECK, 98_000_000, 98_000_000))
    if terminal:
        assert "checking its sum (98 MB)" in text(out)
    else:
        words = ("downloading the model", "unpacking it", "checking its sum")
        assert text(out) == "".join(f"{each} (98 MB) ...\n" for each in words)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_model_that_lies_there_is_not_talked_about(terminal: bool) -> None:
    out = shown(terminal=terminal)
    with FetchBar(out):
        pass
    assert text(out) == ""
