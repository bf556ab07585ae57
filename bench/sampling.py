"""Samples from memory beside memcpy of the same bytes, both into fresh arrays that stay until the end.

Token ids of a trace without forks are handed on as a view; the benchmark copies them, so that both sides write the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from bench.clock import least
from bench.effort import Effort
from bench.rows import At, Of, Peer, Row, Target
from bench.synthetic import Maker
from rollbook.trace import Sample, SampleSet, Trace, samples

__all__ = ["measure_samples"]

LONGER = 20
"""Long rollouts have so many times the turns, and there are so many times fewer."""


def arrays(sample: Sample) -> tuple[npt.NDArray[np.generic], ...]:
    """All full-length arrays of a sample: 18 bytes a token."""
    return (
        sample.token_ids,
        sample.sampled,
        sample.loss_mask,
        sample.logprobs,
        sample.policy_version,
        sample.turn_id,
    )


def build(traces: Sequence[Trace]) -> list[tuple[SampleSet, list[npt.NDArray[np.int32]]]]:
    """The samples of each trace, with ids of their own."""
    sets = map(samples, traces)
    return [(each, [sample.token_ids.copy() for sample in each]) for each in sets]


def measure_samples(maker: Maker, effort: Effort) -> list[Row]:
    """Bytes per second of samples built from traces in memory: many rollouts, and fewer long ones."""
    traces = [maker.trace(number) for number in range(effort.in_flight)]
    longer = maker.longer(LONGER)
    long = [longer.trace(number) for number in range(max(1, effort.in_flight // LONGER))]
    return [
        _row("samples from memory", traces, effort, Target(limit=0.2, at=At.LEAST, of=Of.RATIO)),
        _row("samples from memory, long rollouts", long, effort, None),
    ]


def _row(name: str, traces: Sequence[Trace], effort: Effort, target: Target | None) -> Row:
    built = [sample for trace in traces for sample in samples(trace)]
    sources = list(chain.from_iterable(map(arrays, built)))
    size = sum(array.nbytes for array in sources)
    ours, memcpy = least(effort.repeats, lambda: build(traces), lambda: [array.copy() for array in sources])
    tokens = sum(map(len, built)) / len(traces)
    return Row(
        name=name,
        value=size / ours / 1e9,
        unit="GB/s",
        how=f"minimum of {effort.repeats} passes over {len(traces)} rollouts of {tokens:.0f} tokens, "
        f"{1e6 * ours / len(traces):.0f} us each",
        target=target,
        peer=Peer("memcpy of the same arrays", size / memcpy / 1e9),
    )
