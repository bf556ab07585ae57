from rollbook.audit import Status
from rollbook.trace import Reason
from tests.audit.build import Build, check, sound


def test_rollouts_without_a_vote_are_counted_and_have_no_limit() -> None:
    row = check("no_vote", sound("a"), Build("b").end(Reason.ENV_SETUP, None))
    assert (row.status, row.value, row.n) == (Status.INFO, 0.5, 2)
    assert [finding.rollout for finding in row.findings] == ["b"]
    assert row.details == {"ended as error/env_setup": 1}


def test_an_empty_batch_is_not_judged() -> None:
    assert check("no_vote").status is Status.NOT_JUDGED
