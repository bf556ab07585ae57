"""The roster: what is told of rollouts in flight and of those that are over adds up, and each call counts once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.rollout import Limits, Stopwatch
from rollbook.rollout.histogram import SECONDS, Histogram
from rollbook.rollout.limits import Budget
from rollbook.rollout.phase import phase_of
from rollbook.rollout.roster import Roster
from rollbook.rollout.snapshot import Snapshot
from rollbook.rollout.stopwatch import Part
from rollbook.trace import Reason, RolloutFailure, Trace
from tests.rollout.made import Talk, play, says

RESET = RolloutFailure(Reason.ENGINE_UNREACHABLE, "reset")


def snapshot(roster: Roster) -> Snapshot:
    return roster.snapshot((), Histogram(bounds=SECONDS))


def played(number: int) -> tuple[Trace, Budget]:
    """A rollout with so many turns, and one request that failed."""
    answers = ["And?"] * number
    trace = play(Talk(*answers), RESET, says("five"), name=f"g{number}")
    return trace, Budget(Limits(), turns=number + 1, tokens=10 * number, tool_calls=number % 2)


PLAYED = [played(number) for number in range(4)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=16))
def test_whoever_comes_and_goes_the_counts_add_up(events: list[int]) -> None:
    """Each number is a rollout that begins, or that is over where it is in flight; each is so once."""
    roster, running, over = Roster(), list[int](), list[int]()
    for number in events:
        trace, budget = PLAYED[number]
        if number in running:
            running.remove(number)
            over.append(number)
            roster.leave(trace)
        elif number not in over:
            running.append(number)
            roster.enter(trace, budget, Stopwatch())
        told = snapshot(roster)
        known = [*running, *over]
        assert roster.counts() == (len(running), len(over)) == (told.in_flight, told.finished)
        assert told.started == len(known)
        assert told.turns == sum(PLAYED[each][1].turns for each in known)
        assert told.tokens == sum(PLAYED[each][1].tokens for each in known)
        assert told.tool_calls == sum(PLAYED[each][1].tool_calls for each in known)
        assert told.calls.failed == len(known)
        assert told.calls.seconds.count == sum(each + 1 for each in known)
        assert (told.rewarded, told.rewards) == (len(over), float(len(over)))
        assert (told.oldest is None) == (not running)
        assert told.endings == ({Reason.FINAL_ANSWER: len(over)} if over else {})


def test_what_a_rollout_does_now_is_its_phase() -> None:
    roster, watch = Roster(), Stopwatch()
    trace, budget = PLAYED[0]
    roster.enter(trace, budget, watch)
    with watch.span(Part.ENGINE):
        assert snapshot(roster).phases == {phase_of(Part.ENGINE): 1}
    roster.leave(trace)
    assert snapshot(roster).phases == {}


def test_a_snapshot_does_not_change_with_what_comes_later() -> None:
    roster = Roster()
    before = snapshot(roster)
    roster.enter(*PLAYED[1], Stopwatch())
    snapshot(roster)
    assert (before.calls.seconds.count, before.calls.failed) == (0, 0)
