import numpy as np
import pytest

from rollbook.audit import Gate, Status
from rollbook.trace import LogprobKind, Message, Origin, Reason, Role, RunKind, Sampling, Trace, make_runs
from rollbook.trace.node import LOGPROBS, SAMPLED
from tests.audit.build import Build, check, damage, sound


def two_turns() -> Trace:
    return Build().observe().turn((10, 11)).observe().turn((12, 13, 14), rescored=(1,)).end()


def test_a_sound_record_is_aligned() -> None:
    row = check("alignment", two_turns(), sound("b"))
    assert (row.status, row.value, row.n) == (Status.OK, 0, 7)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5])
@pytest.mark.parametrize(("place", "node", "token"), [(0, 1, 2), (1, 1, 3), (2, 3, 2), (4, 3, 4)])
def test_a_logprob_that_is_none_is_found_at_its_token(value: float, place: int, node: int, token: int) -> None:
    trace = two_turns()
    damage(trace.graph.logprobs, place, value)
    row = check("alignment", trace)
    assert (row.status, row.value) == (Status.BROKE, 1)
    assert (row.findings[0].node, row.findings[0].token) == (node, token)


def test_float_error_above_zero_is_none() -> None:
    trace = two_turns()
    damage(trace.graph.logprobs, 0, 1e-6)
    assert check("alignment", trace).value == 0


def test_a_missing_logprob_is_found() -> None:
    trace = two_turns()
    damage(trace.graph.table, (3, LOGPROBS), 4)
    row = check("alignment", trace)
    assert (row.findings[0].node, row.findings[0].text) == (3, "2 logprobs for 3 sampled tokens")


def test_runs_that_do_not_cover_the_ids_are_found() -> None:
    trace = two_turns()
    damage(trace.graph.runs, (3, 1), 1)
    row = check("alignment", trace)
    assert {finding.node for finding in row.findings} == {1}
    assert any("runs cover 3 of 4" in finding.text for finding in row.findings)


def test_a_count_that_does_not_fit_the_mask_is_found() -> None:
    trace = two_turns()
    damage(trace.graph.table, (3, SAMPLED), 4)
    assert any("the node table 2" in finding.text for finding in check("alignment", trace).findings)


@pytest.mark.parametrize(("place", "value", "text"), [((0, 0), 7, "names call 7"), ((0, 1), 1, "cover 1 of 2")])
def test_segments_that_do_not_fit_are_found(place: tuple[int, int], value: int, text: str) -> None:
    trace = two_turns()
    damage(trace.graph.segments, place, value)
    row = check("alignment", trace)
    assert (row.value, row.findings[0].node) == (1, 1)
    assert text in row.findings[0].text


def test_a_segment_of_another_turn_is_found() -> None:
    trace = two_turns()
    damage(trace.graph.segments, (0, 0), 1)
    assert "gave node 3" in check("alignment", trace).findings[0].text


def test_without_sampled_tokens_alignment_is_not_judged() -> None:
    row = check("alignment", Build().end(Reason.ENV_SETUP, None), Build("b", tokens=False).end())
    assert (row.status, row.details["rollouts_without_ids"]) == (Status.NOT_JUDGED, 1)


def test_absent_logprobs_are_counted_by_token() -> None:
    trace = Build().observe().turn((1, 2, 3), logprobs=None, kind=None).observe().turn((4,)).end()
    row = check("logprobs_absent", trace)
    assert (row.status, row.value, row.n) == (Status.BROKE, 0.75, 4)
    assert row.findings[0].node == 1
    assert check("logprobs_absent", sound()).status is Status.OK


@pytest.mark.parametrize(
    ("kind", "sampling", "fits"),
    [
        (LogprobKind.RAW, Sampling(), True),
        (LogprobKind.RAW, Sampling(temperature=0.7), False),
        (LogprobKind.TEMPERATURE, Sampling(temperature=0.7), True),
        (LogprobKind.TEMPERATURE, Sampling(top_p=0.9), False),
        (LogprobKind.PROCESSED, Sampling(top_k=5), True),
        (LogprobKind.UNKNOWN, Sampling(), False),
        (None, Sampling(), False),
    ],
)
def test_the_kind_must_fit_the_transform(kind: LogprobKind | None, sampling: Sampling, fits: bool) -> None:
    trace = Build().observe().turn((1, 2), kind=kind, sampling=sampling).observe().turn((3, 4)).end()
    row = check("logprob_kind", trace)
    assert (row.status, row.value) == ((Status.OK, 0.0) if fits else (Status.BROKE, 0.5))
    assert [finding.node for finding in row.findings] == ([] if fits else [1])


def test_logprobs_of_no_call_do_not_fit() -> None:
    build = Build().observe().turn((1, 2, 3))
    build.trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=1,
        origin=Origin.POLICY,
        token_ids=np.array([7], np.int32),
        runs=make_runs((RunKind.SAMPLED, 1)),
        logprobs=np.array([-1], np.float32),
    )
    row = check("logprob_kind", build.end())
    assert (row.value, row.details["no_call"], row.findings[0].node) == (0.25, 1, 2)
    assert row.findings[0].text == "1 logprobs of no call: what they are of is not known"


def test_a_record_without_calls_says_nothing_of_its_logprobs() -> None:
    build = Build().observe()
    build.trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=0,
        origin=Origin.POLICY,
        token_ids=np.array([7, 8], np.int32),
        runs=make_runs((RunKind.SAMPLED, 2)),
        logprobs=np.array([-1, -1], np.float32),
    )
    imported = build.end()
    row = check("logprob_kind", imported)
    assert (row.status, row.value, row.details) == (Status.NOT_JUDGED, None, {"not_recorded": 2})
    beside = check("logprob_kind", imported, sound("s"))
    assert (beside.status, beside.details["not_recorded"]) == (Status.OK, 2)


def test_absent_logprobs_have_no_kind() -> None:
    trace = Build().observe().turn(logprobs=None, kind=None).end()
    assert check("logprob_kind", trace).status is Status.NOT_JUDGED


def test_rescored_logprobs_are_a_rate() -> None:
    row = check("rescored", two_turns(), gate=Gate(limits={"rescored": 0.1}))
    assert (row.status, row.value, row.n) == (Status.BROKE, 0.2, 5)
    assert (row.findings[0].node, row.findings[0].token) == (3, 3)
    assert check("rescored", sound()).value == 0
