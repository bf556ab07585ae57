from rollbook.audit import Status
from rollbook.trace import Disposition, Fate, Mark
from tests.audit.build import Build, check, disposition, sound


def test_every_loss_has_its_reason() -> None:
    rejected = Build("b").observe().turn((1, 2, 3)).end()
    rejected.graph.mark(1, Mark.REJECTED)
    notes = [disposition("c", Disposition(Fate.DROPPED, "x"))]
    row = check("tokens_lost", sound("a"), rejected, sound("c"), annotations=notes)
    assert (row.status, row.value, row.n) == (Status.INFO, 5 / 7, 7)
    assert (row.details["trained"], row.details["lost_rejected"], row.details["lost_no_vote"]) == (2, 3, 2)
    assert [finding.rollout for finding in row.findings] == ["b", "c"]


def test_a_batch_that_trains_whole_loses_nothing() -> None:
    row = check("tokens_lost", sound("a"), sound("b"))
    assert (row.value, row.details["samples"]) == (0, 2)


def test_without_tokens_there_is_no_ledger() -> None:
    assert check("tokens_lost", Build(tokens=False).end()).status is Status.NOT_JUDGED
