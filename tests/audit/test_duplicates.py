from rollbook.audit import Status
from rollbook.audit.duplicates import sampled_digest
from rollbook.trace import Reason
from tests.audit.build import Build, check, sound


def test_the_same_id_twice_breaks() -> None:
    row = check("duplicate_ids", sound("a"), sound("b"), sound("a", ids=(1, 2)))
    assert (row.status, row.value, row.findings[0].rollout) == (Status.BROKE, 1, "a")
    assert check("duplicate_ids", sound("a"), sound("b")).status is Status.OK


def test_equal_tokens_within_a_group_are_found() -> None:
    row = check("duplicates", sound("a"), sound("b"), sound("c", ids=(7,)), sound("d", group="g1"))
    assert (row.value, row.n) == (0.25, 4)
    assert row.findings[0].text == "the same 2 sampled tokens as rollout 'a' of its group"
    assert (row.details["within_groups"], row.details["in_batch"]) == (1, 2)


def test_different_tokens_are_no_duplicates() -> None:
    assert check("duplicates", sound("a"), sound("b", ids=(10, 12))).value == 0


def test_the_same_tokens_cut_into_other_turns_are_no_duplicates() -> None:
    one = Build("a").observe().turn((1, 2, 3)).end()
    two = Build("b").observe().turn((1,)).observe().turn((2, 3)).end()
    assert sampled_digest(one) != sampled_digest(two)


def test_what_the_environment_said_does_not_matter() -> None:
    one, two = Build("a").observe(tokens=9).turn().end(), Build("b").observe().turn(scaffold=1).end()
    assert sampled_digest(one) == sampled_digest(two)


def test_rollouts_without_sampled_tokens_are_not_compared() -> None:
    lost = [Build(name).end(Reason.ENV_SETUP, None) for name in "ab"]
    assert check("duplicates", *lost).status is Status.NOT_JUDGED
