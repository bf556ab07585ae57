"""Samples from memory beside memcpy of the same bytes, both into fresh arrays that stay until the end.

Token ids of a trace without forks are handed on without a copy; those bytes count on neither side.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from bench.clock import least
from bench.effort import Effort
from bench.rows import At, Of, Peer, Row, Target
from bench.synthetic import Maker
from rollbook.trace import Sample, samples

__all__ = ["measure_samples"]


def fresh_arrays(sample: Sample) -> list[npt.NDArray[np.generic]]:
    """The arrays that building the sample wrote."""
    arrays = (
        sample.token_ids,
        sample.sampled,
        sample.loss_mask,
        sample.logprobs,
        sample.policy_version,
        sample.turn_id,
    )
    return [array for array in arrays if array.base is None]


def measure_samples(maker: Maker, effort: Effort) -> list[Row]:
    """Bytes per second of samples built from traces in memory."""
    traces = [maker.trace(number) for number in range(effort.in_flight)]
    built = [sample for trace in traces for sample in samples(trace)]
    sources = list(chain.from_iterable(map(fresh_arrays, built)))
    size = sum(array.nbytes for array in sources)
    ours, memcpy = least(
        effort.repeats,
        lambda: [samples(trace) for trace in traces],
        lambda: [array.copy() for array in sources],
    )
    row = Row(
        name="samples from memory",
        value=size / ours / 1e9,
        unit="GB/s",
        how=f"minimum of {effort.repeats} passes over {len(traces)} rollouts, {1e6 * ours / len(traces):.0f} us each",
        target=Target(limit=0.2, at=At.LEAST, of=Of.RATIO),
        peer=Peer("memcpy of the same arrays", size / memcpy / 1e9),
    )
    return [row]
