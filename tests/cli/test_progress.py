"""Progress: lines where nobody watches, a bar where somebody does, and the terminal as it was afterwards."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console

from rollbook.cli.pace import Pace
from rollbook.cli.progress import CheckBar, FetchBar, RunBar
from rollbook.models import Phase as Fetching
from rollbook.models import Progress
from rollbook.policy import PolicyCheck
from rollbook.rewards import Outcome, decide, outcome_of
from rollbook.rollout import GroupPlan, Limiter, Phase, Snapshot
from rollbook.rollout.pool import Closed
from rollbook.trace import Drop, Ending, EndingRules, Reason, Task
from tests.run.run_made import small_trace


def member(reason: Reason, reward: float | None, name: str = "a") -> Outcome:
    trace = small_trace(name)
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    once = EndingRules({Reason.HARNESS: Drop()})
    return outcome_of(trace, once, decide(trace, once))


def closed(*, cancelled: tuple[str, ...], unrecorded: int) -> Closed:
    plan = GroupPlan(id="g", task=Task(id="t", prompt="p"), size=4)
    return Closed(
        plan=plan,
        outcomes=(),
        advantages=(),
        refilled=0,
        unrecorded=unrecorded,
        cancelled=cancelled,
        changed={},
    )


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
        bar.ended(member(Reason.FINAL_ANSWER, 1.0), late=False)
        bar.ended(member(Reason.HARNESS, None, "b"), late=False)
    assert re.sub(r"\d+ s,", "0 s,", text(out)) == (
        "2 rollouts to run, 2 of 4 were finished before\n"
        "2 of 4 rollouts, 0 s, 1 turn, mean reward -, 0 errors\n"
        "4 of 4 rollouts, 0 s, 2 turns, mean reward 1.00, 1 error\n"
    )


def test_more_members_leave_what_is_done_as_it_is() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(2, 1)
        bar.ended(member(Reason.FINAL_ANSWER, 1.0), late=False)
        bar.planned(3, 1)
        bar.ended(member(Reason.FINAL_ANSWER, 1.0, "b"), late=False)
    assert text(out).count("to run") == 1
    assert "3 of 3 rollouts" in text(out).splitlines()[-1]


def test_members_that_a_close_cuts_off_are_done() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(4, 0)
        bar.ended(member(Reason.FINAL_ANSWER, 1.0), late=False)
        bar.closed(closed(cancelled=("b", "c"), unrecorded=1))
        bar.ended(member(Reason.CANCELLED, None, "b"), late=True)
    assert "4 of 4 rollouts" in text(out).splitlines()[-1]


def test_turns_that_the_last_snapshot_did_not_know_of_count() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(9, 0)
        bar.snapshot(Snapshot(turns=1))
        bar.ended(member(Reason.FINAL_ANSWER, 1.0), late=False)
        bar.ended(member(Reason.FINAL_ANSWER, 1.0, "b"), late=False)
    assert "2 turns" in text(out).splitlines()[-1]


def test_nothing_is_said_of_a_run_that_had_nothing_left() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(4, 4)
    assert text(out) == "0 rollouts to run, 4 of 4 were finished before\n"


def test_without_a_reward_there_is_no_mean() -> None:
    out = shown(terminal=False)
    with RunBar(out) as bar:
        bar.planned(1, 0)
        bar.ended(member(Reason.HARNESS, None), late=False)
    assert "mean reward -" in text(out)


@pytest.mark.parametrize("fails", [False, True])
def test_a_bar_gives_the_terminal_back(fails: bool) -> None:
    out = shown(terminal=True)
    try:
        with RunBar(out) as bar:
            bar.planned(2, 0)
            bar.ended(member(Reason.FINAL_ANSWER, 0.5), late=False)
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
        bar(Progress(Fetching.DOWNLOAD, 0, 98_000_000))
        for done in (1, 2, 98_000_000):
            bar(Progress(Fetching.UNPACK, done, 98_000_000))
        bar(Progress(Fetching.CHECK, 98_000_000, 98_000_000))
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


def standing(tokens: int, ended: int) -> Snapshot:
    return Snapshot(
        phases={Phase.SAMPLING: 3, Phase.TOOLS: 1},
        endings={Reason.FINAL_ANSWER: ended},
        turns=7,
        tokens=tokens,
        oldest=970.0,
        limiters=(msgspec.structs.replace(Limiter("engine", 3).stats(), waiting=2),),
    )


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace = Pace()
    assert (pace.last, pace.lines()) == (None, [])
    pace.take(standing(0, 0), 0.0, 985.0)
    assert pace.speed() == "- rollouts/s, - tokens/s"
    for second in range(1, 61):
        pace.take(standing(100 * second if second < 40 else 4000, second), float(second), 985.0 + second)
    assert pace.speed() == "1.00 rollouts/s, 0 tokens/s"
    assert pace.in_flight() == "4 in flight (3 sampling, 1 tools), the oldest for 75 s"
    assert pace.lines()[2:] == ["ended: 60 final_answer", "waiting for 2 engine"]


def test_many_endings_are_named_by_their_number() -> None:
    pace = Pace()
    pace.take(Snapshot(endings={reason: place + 1 for place, reason in enumerate(Reason)}), 0.0, 0.0)
    (line,) = [line for line in pace.lines() if line.startswith("ended")]
    assert line.count(",") == 5
    assert line.endswith(f"others {sum(range(1, len(Reason) - 4))}")
    assert pace.in_flight() == "0 in flight"


def test_how_things_stand_is_shown_below_the_bar() -> None:
    out = shown(terminal=True)
    with RunBar(out) as bar:
        bar.planned(9, 0)
        bar.snapshot(standing(10, 1))
        bar.snapshot(standing(20, 2))
        assert bar.bar is not None
        bar.bar.refresh()
    assert "4 in flight" in text(out)
    assert "7 turns" in text(out)


def test_lines_tell_how_things_stand_until_the_end() -> None:
    out = shown(terminal=False)
    bar = RunBar(out, every=0.0)
    with bar:
        bar.planned(9, 0)
        bar.snapshot(standing(10, 1))
    assert "  - rollouts/s, - tokens/s, 4 in flight (3 sampling, 1 tools), the oldest" in text(out)


def test_a_check_of_a_policy_shows_where_it_is_and_only_where_somebody_watches() -> None:
    for terminal in (True, False):
        out = shown(terminal=terminal)
        with CheckBar(out) as begins:
            for check in PolicyCheck:
                begins(check)
        said = text(out)
        if not terminal:
            assert said == ""
            continue
        assert "loading the model" in said
        assert all(check.value in said for check in PolicyCheck)
        assert f"{len(PolicyCheck) - 1}/{len(PolicyCheck)}" in said
