import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given

from rollbook.audit import CHECKS, Gate, Status, audit, audit_traces
from rollbook.trace import Disposition, Fate, MemorySink, Reason, Trace
from rollbook.trace.wire import encode_part, encode_tail
from tests.audit.build import Build, Spelling, advantage, damage, disposition, sound
from tests.strategies import traces


def test_a_source_is_audited_with_its_annotations() -> None:
    sink = MemorySink()
    for name in "ab":
        sink.seal(sound(name, ids=(1, ord(name))))
    sink.annotate([advantage(name, "a", "b") for name in "ab"])
    report = audit(sink)
    assert (report.rollouts, report["baseline_errors"].n, report.exit_code) == (2, 2, 0)


def test_dispositions_of_the_caller_stand_in_place_of_the_recorded_ones() -> None:
    sink = MemorySink()
    sink.seal(sound("a"))
    sink.annotate([disposition("a", Disposition(Fate.DROPPED, "x"))])
    assert audit(sink)["tokens_lost"].value == 1
    assert audit(sink, dispositions={})["tokens_lost"].value == 0


def test_a_broken_limit_gives_1_and_an_empty_batch_2() -> None:
    broken = sound()
    damage(broken.graph.logprobs, 0, np.nan)
    assert audit_traces([broken]).exit_code == 1
    assert audit_traces([]).exit_code == audit_traces([], gate=Gate(must_judge=())).exit_code == 2
    assert audit_traces([sound()]).exit_code == 0


@pytest.mark.parametrize("name", [row.name for row in CHECKS if row.reads_tokens])
def test_a_misaligned_trace_is_kept_from_the_checks_that_read_tokens(name: str) -> None:
    broken = Build("b").observe().turn((1, 2)).end()
    damage(broken.graph.runs, (3, 1), 1)
    rows = [audit_traces(traces, renderer=Spelling())[name] for traces in ([sound()], [sound(), broken])]
    assert rows[0] == rows[1]


def test_a_demanded_answer_that_is_missing_gives_2() -> None:
    assert audit_traces([sound()], gate=Gate(must_judge=("drift",))).exit_code == 2
    text_only = Build(tokens=False).end()
    assert audit_traces([text_only]).exit_code == 2
    assert audit_traces([text_only], gate=Gate(must_judge=())).exit_code == 0


def test_a_broken_limit_outweighs_a_missing_answer() -> None:
    report = audit_traces([Build().end(Reason.HARNESS, None)])
    assert (report["alignment"].status, report.exit_code) == (Status.NOT_JUDGED, 1)


def test_the_report_is_plain_data() -> None:
    report = audit_traces([sound()])
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (plain["exit_code"], plain["rollouts"]) == (0, 1)
    assert [row["name"] for row in plain["checks"]] == [row.name for row in CHECKS]
    assert plain["checks"][0]["status"] == "ok"


def test_a_check_is_found_by_its_name() -> None:
    report = audit_traces([sound()])
    assert report["drift"].name == "drift"
    with pytest.raises(KeyError):
        report["drfit"]


def test_each_row_says_one_sentence() -> None:
    for report in (audit_traces([]), audit_traces([sound()]), audit_traces([Build().end(Reason.HARNESS, None)])):
        for row in report.checks:
            assert row.says.endswith(".")
            assert "\n" not in row.says
            assert (row.value is None) == (row.status is Status.NOT_JUDGED)


def test_a_broken_row_names_the_remedy() -> None:
    row = audit_traces([Build().end(Reason.HARNESS, None)])["error_rate"]
    counted = "rollouts that ended as an error, not counting interrupted ones"
    assert row.says.startswith(f"Too many {counted}: look at the reasons")
    assert audit_traces([sound()])["error_rate"].says == f"No {counted}."


def test_traces_are_read_one_at_a_time_and_left_as_they_are() -> None:
    alive = 0

    def stream() -> Iterator[Trace]:
        nonlocal alive
        for place in range(5):
            trace = sound(str(place))
            before = (*encode_part(trace).values(), encode_tail(trace))
            yield trace
            assert (*encode_part(trace).values(), encode_tail(trace)) == before
            alive += 1

    assert audit_traces(stream()).rollouts == 5
    assert alive == 5


@given(traces())
def test_any_trace_is_audited_and_comes_out_aligned(trace: Trace) -> None:
    report = audit_traces([trace, trace], renderer=Spelling())
    assert report.rollouts == 2
    assert report["alignment"].value in (None, 0)
    assert report["duplicate_ids"].value == 1
    json.dumps(report.to_dict(), allow_nan=False)
