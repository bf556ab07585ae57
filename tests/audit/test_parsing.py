import pytest

from rollbook.audit import Gate, Status
from rollbook.trace import ParseStatus, Role
from tests.audit.build import Build, call, check, sound

ROWS = {
    "malformed": {
        ParseStatus.INVALID_JSON,
        ParseStatus.NOT_AN_OBJECT,
        ParseStatus.UNCLOSED,
        ParseStatus.MISSING_NAME,
    },
    "bad_arguments": {ParseStatus.BAD_ARGUMENTS},
    "unknown_tool": {ParseStatus.UNKNOWN_TOOL},
    "inside_reasoning": {ParseStatus.INSIDE_REASONING},
    "cut_calls": {ParseStatus.CUT},
}


@pytest.mark.parametrize("status", ParseStatus)
def test_each_status_counts_in_exactly_its_row(status: ParseStatus) -> None:
    trace = Build().observe().turn(calls=(call("a"), call("b", status))).end()
    for name, statuses in ROWS.items():
        row = check(name, trace)
        assert (row.value, row.n) == (0.5 if status in statuses else 0.0, 2)
        assert row.found == (status in statuses)


def test_the_finding_names_the_turn_and_the_call() -> None:
    trace = Build().observe().turn(calls=(call("call_0_1", ParseStatus.UNCLOSED),)).end()
    row = check("malformed", trace, gate=Gate(limits={"malformed": 0.1}))
    assert row.status is Status.BROKE
    assert (row.findings[0].node, row.findings[0].text) == (1, "call 'call_0_1': unclosed")
    assert row.details["unclosed"] == 1


def test_without_an_attempted_call_there_is_no_rate() -> None:
    row = check("malformed", sound())
    assert (row.status, row.value, row.n) == (Status.NOT_JUDGED, None, 0)


def test_calls_that_the_policy_did_not_make_do_not_count() -> None:
    build = Build()
    build.observe(Role.ASSISTANT)
    assert check("malformed", build.turn(calls=(call(),)).end()).n == 1
