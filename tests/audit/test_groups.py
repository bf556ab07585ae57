from rollbook.audit import Gate, Status
from rollbook.trace import Disposition, Fate, Reason
from tests.audit.build import Build, advantage, check, disposition, sound


def test_a_group_whose_rewards_are_equal_is_found() -> None:
    flat = [sound("a", group="g0", reward=0.0), sound("b", group="g0", reward=0.0)]
    mixed = [sound("c", group="g1", reward=0.0), sound("d", group="g1", reward=1.0)]
    row = check("zero_variance", *flat, *mixed)
    assert (row.status, row.value, row.n, row.found) == (Status.INFO, 0.5, 2, 1)
    assert row.findings[0].text == "group 'g0' (solver): its 2 voters are alike"
    assert row.details["all_at_or_below_0"] == 1
    assert check("zero_variance", *flat, gate=Gate(limits={"zero_variance": 0.9})).status is Status.BROKE


def test_rollouts_without_a_vote_give_no_variance() -> None:
    lost = Build("c").end(Reason.SANDBOX_LOST, 0.0)
    row = check("zero_variance", sound("a"), sound("b"), lost)
    assert row.value == 1.0
    dropped = disposition("c", Disposition(Fate.DROPPED, "x"))
    assert check("zero_variance", sound("a"), sound("b"), sound("c", reward=0.0), annotations=[dropped]).value == 1.0


def test_recorded_advantages_decide() -> None:
    traces = sound("a", reward=0.0), sound("b", reward=1.0)
    for values, share in (((0.0, 0.0), 1.0), ((0.5, -0.5), 0.0)):
        notes = [advantage(name, "a", "b", values=values) for name in "ab"]
        assert check("zero_variance", *traces, annotations=notes).value == share


def test_seats_are_groups_of_their_own() -> None:
    traces = [
        Build(f"{seat}{place}", seat=seat).observe().turn().end(reward=reward)
        for seat, rewards in (("solver", (0.0, 1.0)), ("judge", (1.0, 1.0)))
        for place, reward in enumerate(rewards)
    ]
    row = check("zero_variance", *traces)
    assert (row.value, row.n) == (0.5, 2)


def test_a_group_of_one_voter_is_not_judged() -> None:
    assert check("zero_variance", sound("a"), sound("b", reward=None)).status is Status.NOT_JUDGED


def test_a_group_that_lost_members_is_found() -> None:
    full = [advantage(name, "a", "b", scheduled=2) for name in ("a", "b")]
    small = [advantage("c", "c", scheduled=3)]
    row = check(
        "group_sizes", sound("a"), sound("b"), sound("c", group="g1"), sound("d", group="g1"), annotations=full + small
    )
    assert (row.value, row.n) == (0.5, 2)
    assert row.findings[0].text == "group 'g1' (solver): used 1 of 3"
    assert (row.details["scheduled_max"], row.details["used_min"], row.details["rollouts_max"]) == (3, 1, 2)


def test_without_advantages_the_scheduled_size_is_not_known() -> None:
    row = check("group_sizes", sound("a"), sound("b"))
    assert (row.status, row.details["rollouts_min"], row.details["scheduled_min"]) == (Status.NOT_JUDGED, 2, None)
