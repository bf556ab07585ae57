from rollbook.audit import Gate, Status
from rollbook.trace import Reason
from tests.audit.build import Build, check, sound


def test_the_widest_span_counts() -> None:
    spread = Build("b").observe().turn(version=2).observe().turn(version=5).end()
    row = check("version_span", sound("a"), spread, gate=Gate(limits={"version_span": 2}))
    assert (row.status, row.value, row.n) == (Status.BROKE, 3, 2)
    assert (row.details["version_min"], row.details["version_max"], row.details["rollouts_spread"]) == (0, 5, 1)
    assert row.findings[0].rollout == "b"


def test_one_version_spans_nothing() -> None:
    assert check("version_span", sound("a"), gate=Gate(limits={"version_span": 0})).status is Status.OK


def test_a_version_that_nobody_said_is_not_zero() -> None:
    trace = Build().observe().turn(version=None).end()
    row = check("version_span", trace)
    assert (row.status, row.value, row.details["tokens_without_version"]) == (Status.NOT_JUDGED, None, 3)
    assert "the engine did not say" in row.says
    assert "no trace" in check("version_span", Build().end(Reason.ENV_SETUP, None)).says
