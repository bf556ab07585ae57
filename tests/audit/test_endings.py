import pytest

from rollbook.audit import Status
from rollbook.trace import Ending, EndingKind, Reason
from tests.audit.build import Build, check, sound


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_counts_under_its_kind(reason: Reason) -> None:
    traces = [sound(str(place)) for place in range(9)]
    row = check("endings", *traces, Build("x").observe().turn().end(reason))
    assert (row.status, row.value, row.n) == (Status.OK, 0, 10)
    submitted = 9 + (reason.kind is EndingKind.SUBMITTED)
    assert row.details["submitted"] == submitted
    assert row.details[f"{reason.kind}/{reason}"] == (10 if reason is Reason.FINAL_ANSWER else 1)
    assert sum(count for name, count in row.details.items() if "/" not in name and isinstance(count, int)) == 10


def test_a_rollout_without_an_ending_breaks() -> None:
    row = check("endings", sound("a"), Build("b").observe().turn().trace)
    assert (row.status, row.value, row.findings[0].rollout) == (Status.BROKE, 1, "b")


@pytest.mark.parametrize(("bad", "status"), [(1, Status.OK), (2, Status.BROKE)])
def test_the_error_rate_breaks_above_its_limit(bad: int, status: Status) -> None:
    errors = [Build(f"e{place}").end(Reason.SANDBOX_LOST, None) for place in range(bad)]
    row = check("error_rate", *(sound(f"s{place}") for place in range(7 - bad)), *errors)
    assert (row.status, row.value, row.found) == (status, bad / 7, bad)
    assert row.findings[0].text == "error/sandbox_lost"


def test_truncated_covers_budgets_and_cut_generations() -> None:
    reasons = (Reason.MAX_TURNS, Reason.GENERATION_LIMIT, Reason.FINAL_ANSWER, Reason.HARNESS)
    row = check("truncated", *(Build(str(reason)).observe().turn().end(reason) for reason in reasons))
    assert (row.status, row.value) == (Status.INFO, 0.5)
    assert [finding.rollout for finding in row.findings] == ["max_turns", "generation_limit"]


def test_a_failed_scoring_is_found_with_its_reason() -> None:
    failed = Build("b").observe().turn()
    failed.trace.score_failed("judge timed out")
    row = check("scoring_failed", sound("a"), failed.end(reward=None))
    assert (row.status, row.value) == (Status.BROKE, 0.5)
    assert row.findings[0].text == "scoring failed: judge timed out"
    assert check("scoring_failed", sound("a")).status is Status.OK


def test_an_interruption_is_no_error_of_the_infrastructure() -> None:
    assert check("error_rate", Build("x").observe().turn().end(Reason.INTERRUPTED, None)).value == 0


@pytest.mark.parametrize("name", ["endings", "error_rate", "truncated", "scoring_failed"])
def test_an_empty_batch_is_not_judged(name: str) -> None:
    assert check(name).status is Status.NOT_JUDGED


def test_the_finding_quotes_the_detail() -> None:
    trace = Build().trace
    trace.end(Ending(Reason.SANDBOX_LOST, "the host went away"))
    assert check("error_rate", trace).findings[0].text == "error/sandbox_lost: the host went away"
