"""Memory of rollouts in flight: what the graph says it holds, and what the allocator says.

Text is apart: messages are made before anything is counted.
"""

from __future__ import annotations

import tracemalloc
from typing import cast

import numpy as np
from msgspec.structs import replace

from bench.effort import Effort
from bench.rows import Peer, Row, Target
from bench.synthetic import Maker
from rollbook.trace import Node, Trace

__all__ = ["measure_memory"]


def measure_memory(maker: Maker, effort: Effort) -> list[Row]:
    """Bytes per token of ids, logprobs, runs and tables."""
    made = [maker.trace(number) for number in range(effort.in_flight)]
    tokens = sum(len(trace.graph.tokens) for trace in made)
    sampled = sum(trace.graph.sampled_count for trace in made)
    floor = Peer("ids and logprobs alone", 4.0 + 4.0 * sampled / tokens)
    arrays, everything = _allocated(made)
    how = f"{effort.in_flight} rollouts in flight, {tokens / len(made):.0f} tokens each, once"
    rows = {
        "memory per token, by the graph": (sum(trace.graph.nbytes for trace in made), Target(limit=16.0)),
        "memory per token, token arrays by tracemalloc": (arrays, Target(limit=16.0)),
        "memory per token, all but text by tracemalloc": (everything, None),
    }
    return [
        Row(name=name, value=size / tokens, unit="bytes", how=how, target=target, peer=floor)
        for name, (size, target) in rows.items()
    ]


def _allocated(made: list[Trace]) -> tuple[int, int]:
    """Bytes of numpy's arrays, and of everything, that copies of these traces take; messages stand outside."""
    nodes = [list(trace.graph) for trace in made]
    tracemalloc.start()
    try:
        copies = [_rebuilt(trace, each) for trace, each in zip(made, nodes, strict=True)]
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    assert len(copies) == len(made)
    domain = cast("int", np.lib.tracemalloc_domain)
    arrays = taken.filter_traces([tracemalloc.DomainFilter(inclusive=True, domain=domain)])
    whole = taken.filter_traces([tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)])
    return tuple(sum(trace.size for trace in each.traces) for each in (arrays, whole))  # type: ignore[return-value]


def _rebuilt(trace: Trace, nodes: list[Node]) -> Trace:
    """The same trace, grown again as a rollout grows it; its messages are shared, its calls are not."""
    copy = Trace(trace.head)
    calls = iter(trace.calls)
    for node in nodes:
        if len(node.segments):
            call = next(calls)
            copy.add_call(replace(call, sampling=replace(call.sampling)))
        copy.graph.add(
            node.message,
            parent=node.parent,
            origin=node.origin,
            token_ids=node.token_ids,
            runs=node.runs,
            logprobs=node.logprobs,
            versions=node.versions,
            segments=node.segments,
        )
    return copy
