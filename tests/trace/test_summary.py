"""The summary says in numbers what the trace holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from rollbook.trace import Summary, TimeSplit, Trace, summarise
from tests.strategies import traces
from tests.trace import naive


@given(traces())
def test_a_summary_counts_what_the_trace_holds(trace: Trace) -> None:
    row = summarise(trace)
    graph, turns = trace.graph, trace.turns()
    attempts = [call for turn in turns for call in turn.message.tool_calls]
    logprobs = [value for node in graph if node.logprobs is not None for value in node.logprobs.tolist()]
    assert trace.ending is not None
    assert (row.kind, row.reason) == (trace.ending.kind, trace.ending.reason)
    assert row.truncated == trace.ending.truncated
    assert (row.turns, row.branches, row.calls) == (len(turns), len(naive.leaves(graph)), len(trace.calls))
    assert row.failed_calls == sum(call.node is None for call in trace.calls)
    assert row.tool_calls == len(attempts) == sum(row.parse.values())
    assert row.parse == {status: sum(a.status == status for a in attempts) for status in row.parse}
    assert row.tokens == sum(len(node.token_ids) for node in graph)
    assert row.sampled == sum(len(node.sampled_ids) for node in graph)
    assert (row.logprob_mean is None) == (not logprobs)
    if row.logprob_mean is not None:
        assert np.isclose(row.logprob_mean, np.mean(logprobs))


@given(traces(sealed=False))
def test_a_running_trace_has_a_summary_too(trace: Trace) -> None:
    row = summarise(trace)
    assert (row.kind, row.reason, row.truncated, row.wall, row.finished) == (None, None, False, None, None)
    trace.update(times=TimeSplit(wall=2.0, engine=2.0), finished=5.0)
    timed = summarise(trace)
    assert isinstance(timed, Summary)
    assert (timed.wall, timed.finished) == (2.0, 5.0)
