"""The report's tables: retries counted, missing shown as missing, everything within 100 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rollbook.cli.report_view import show_groups, show_report
from rollbook.rewards import advantages, annotate, dispositions
from rollbook.run import RunReport, report
from rollbook.trace import Ending, MemorySink, Reason, TimeSplit, Trace
from tests.run.run_made import small_trace


def ended(member: int, attempt: int, reason: Reason, reward: float | None) -> Trace:
    trace = small_trace(f"run-0000-{member}.{attempt}", group="run-0000", member=member, attempt=attempt)
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    trace.update(times=TimeSplit(wall=4.0, engine=3.0, other=1.0, engine_decode=2.0))
    return trace


def found() -> RunReport:
    traces = [
        ended(0, 0, Reason.ENGINE_TIMEOUT, None),
        ended(0, 1, Reason.FINAL_ANSWER, 1.0),
        ended(1, 0, Reason.FINAL_ANSWER, 0.0),
        ended(2, 0, Reason.SANDBOX_LOST, None),
    ]
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    sink.annotate(annotate(dispositions(traces)))
    sink.annotate(advantages(traces).annotations())
    return report(sink)


def page() -> Console:
    return Console(file=io.StringIO(), width=100, markup=False, highlight=False)


def lines(out: Console) -> list[str]:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_a_group_is_one_line_with_its_members_and_retries() -> None:
    out = page()
    show_groups(out, found())
    (row,) = [line.split() for line in lines(out) if line.startswith(" 0000")]
    assert row == ["0000", "t", "2/3", "0.500", *["1.00", "0.00", "-"], *["+0.50", "-0.50", "-"], "1", "engine_timeout"]
    assert any("no reward, which is not 0" in line for line in lines(out))


def test_members_of_a_large_group_stand_at_the_same_place_in_each_column() -> None:
    traces = [ended(member, 0, Reason.FINAL_ANSWER, float(member % 3)) for member in range(10)]
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    sink.annotate(annotate(dispositions(traces)))
    sink.annotate(advantages(traces).annotations())
    out = page()
    show_groups(out, report(sink))
    rows = [line.split()[-2 * (4 if number < 2 else 2) :] for number, line in enumerate(lines(out)[4:7])]
    assert [len(row) for row in rows] == [8, 8, 4]
    for row in rows:
        half = len(row) // 2
        assert [float(cell) - 0.9 for cell in row[:half]] == pytest.approx([float(cell) for cell in row[half:]])
    assert not any("retried" in line or "no reward" in line for line in lines(out))


def test_parts_of_the_engine_stand_behind_the_engine() -> None:
    out = page()
    show_report(out, found())
    shown = [line.split()[0:3] for line in lines(out)]
    engine = next(place for place, words in enumerate(shown) if words[:1] == ["engine"])
    assert [words[2] for words in shown[engine + 1 : engine + 4]] == ["queue", "prefill", "decode"]


def test_the_whole_report_fits_and_shows_what_is_missing() -> None:
    out = page()
    show_report(out, found())
    shown = {tuple(line.split()) for line in lines(out)}
    assert max(map(len, lines(out))) <= 100
    assert ("error", "sandbox_lost", "1", "25.0", "%") in shown
    assert ("retried", "engine_timeout:", "retry(2)", "1") in shown
    assert ("engine", "12.00", "75.0", "%") in shown
    assert ("of", "which", "decode", "8.00", "50.0", "%") in shown
    assert ("of", "which", "queue", "-", "-") in shown
    assert ("sampled", "tokens", "12:", "6", "to", "train,", "lost:", "6", "no_vote") in shown
    assert ("prompt", "tokens", "-", "(the", "engine", "did", "not", "tell)") in shown
