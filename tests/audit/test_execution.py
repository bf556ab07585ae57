import pytest

from rollbook.audit import Status
from rollbook.trace import Fault, Finish, Fork, ForkReason, ParseStatus, Reason, redact
from tests.audit.build import Build, call, check


def test_results_of_well_formed_calls_are_fine() -> None:
    build = Build().observe().turn(calls=(call("a"), call("b"))).result("a").result("b", Fault.ENVIRONMENT)
    row = check("executed_after_fault", build.turn().end())
    assert (row.status, row.value, row.n) == (Status.OK, 0, 2)


@pytest.mark.parametrize("status", [status for status in ParseStatus if status is not ParseStatus.OK])
@pytest.mark.parametrize("fault", [None, Fault.ENVIRONMENT, Fault.UNKNOWN])
def test_a_faulty_call_with_a_result_breaks(status: ParseStatus, fault: Fault | None) -> None:
    build = Build().observe().turn(calls=(call("a", status),)).result("a", fault)
    row = check("executed_after_fault", build.end())
    assert (row.status, row.value, row.details["faulty_call"]) == (Status.BROKE, 1, 1)
    assert (row.findings[0].rollout, row.findings[0].node) == ("r0", 2)
    assert str(status) in row.findings[0].text


@pytest.mark.parametrize("status", [status for status in ParseStatus if status is not ParseStatus.OK])
def test_telling_the_policy_of_its_fault_is_no_execution(status: ParseStatus) -> None:
    build = Build().observe().turn(calls=(call("a", status),)).result("a", Fault.POLICY)
    assert check("executed_after_fault", build.end()).value == 0


@pytest.mark.parametrize("call_id", ["b", None])
def test_a_result_without_its_call_breaks(call_id: str | None) -> None:
    build = Build().observe().turn(calls=(call("a"),)).result(call_id)
    row = check("executed_after_fault", build.end())
    assert (row.value, row.details["no_such_call"]) == (1, 1)


def test_a_call_on_another_branch_is_not_the_one_that_was_answered() -> None:
    build = Build().observe().turn(calls=(call("a"),)).result("a")
    build.turn(parent=0, fork=Fork(reason=ForkReason.RETRY)).result("a")
    row = check("executed_after_fault", build.end())
    assert (row.value, row.findings[0].node) == (1, 4)


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.ABORT])
def test_a_cut_turn_executes_nothing(finish: Finish) -> None:
    build = Build().observe().turn(calls=(call("a"),), finish=finish).result("a")
    row = check("executed_after_fault", build.end(Reason.GENERATION_LIMIT))
    assert (row.value, row.details["cut_turn"]) == (1, 1)
    assert str(finish) in row.findings[0].text


def test_a_turn_that_stopped_at_a_stop_string_is_not_cut() -> None:
    build = Build().observe().turn(calls=(call("a"),), finish=Finish.STOP_STRING).result("a")
    assert check("executed_after_fault", build.end()).value == 0


def test_without_tool_results_nothing_ran() -> None:
    row = check("executed_after_fault", Build().observe().turn().end())
    assert (row.status, row.value, row.n) == (Status.OK, 0, 0)


@pytest.mark.parametrize("node", [1, 2])
def test_what_a_redaction_took_away_cannot_be_told(node: int) -> None:
    trace = Build().observe().turn(calls=(call("a"),)).result("a").end()
    row = check("executed_after_fault", redact(trace, node))
    assert (row.value, row.details["redacted"]) == (0, 1)
