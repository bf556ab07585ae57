from rollbook.audit import Status
from rollbook.trace import Disposition, Fate, Reason
from tests.audit.build import Build, advantage, check, disposition, sound


def baseline(*names: str) -> list:
    return [advantage(name, *names) for name in names]


def test_a_baseline_of_rollouts_that_may_vote_is_fine() -> None:
    lost = Build("lost").end(Reason.SANDBOX_LOST, None)
    row = check("baseline_errors", sound("a"), sound("b"), lost, annotations=baseline("a", "b"))
    assert (row.status, row.value, row.n) == (Status.OK, 0, 2)


def test_a_member_without_a_vote_is_not_in_the_baseline() -> None:
    lost = Build("retried").end(Reason.SANDBOX_LOST, None)
    notes = [advantage(name, "a", "b") for name in ("a", "b", "retried")]
    assert check("baseline_errors", sound("a"), sound("b"), lost, annotations=notes).status is Status.OK


def test_an_error_in_a_baseline_breaks() -> None:
    lost = Build("lost").observe().turn().end(Reason.SANDBOX_LOST, 0.0)
    row = check("baseline_errors", sound("a"), lost, annotations=baseline("a", "lost"))
    assert (row.status, row.value, row.n) == (Status.BROKE, 1, 2)
    assert row.findings[0].rollout == "lost"
    assert "error/sandbox_lost" in row.findings[0].text


def test_a_failed_scoring_in_a_baseline_breaks() -> None:
    failed = Build("failed").observe().turn()
    failed.trace.score_failed("boom")
    row = check("baseline_errors", sound("a"), failed.end(reward=None), annotations=baseline("a", "failed"))
    assert (row.value, row.findings[0].text) == (1, "entered a baseline, but its scoring failed")


def test_a_rollout_without_a_reward_in_a_baseline_breaks() -> None:
    row = check("baseline_errors", sound("a"), sound("b", reward=None), annotations=baseline("a", "b"))
    assert row.value == 1


def test_a_rollout_whose_disposition_has_no_vote_breaks() -> None:
    notes = [*baseline("a", "b"), disposition("b", Disposition(Fate.MASKED, "max_turns: mask"))]
    row = check("baseline_errors", sound("a"), sound("b"), annotations=notes)
    assert (row.value, row.findings[0].text) == (1, "entered a baseline, but masked (max_turns: mask)")


def test_without_advantages_it_is_not_judged() -> None:
    assert check("baseline_errors", sound("a")).status is Status.NOT_JUDGED


def test_voters_that_are_not_in_the_batch_leave_it_unjudged_unless_something_is_wrong_anyway() -> None:
    row = check("baseline_errors", sound("a"), annotations=baseline("a", "b"))
    assert (row.status, row.details["unseen"]) == (Status.NOT_JUDGED, 1)
    lost = Build("a").end(Reason.HARNESS, 0.0)
    assert check("baseline_errors", lost, annotations=baseline("a", "b")).status is Status.BROKE
