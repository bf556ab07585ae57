"""The arrays of one branch, full length: entry t is about token t of the branch.

Rule: what a node does not say is marked as absent (NaN, -1), never filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rollbook.trace.node import LOGPROBS, RUNS, SAMPLED, SEGMENTS, VERSIONS
from rollbook.trace.ownership import Ownership, Share
from rollbook.trace.runs import RunKind, Runs

__all__ = ["BranchArrays", "branch_arrays", "spread", "spread_versions"]

_Scalar = TypeVar("_Scalar", np.int32, np.float32)


@dataclass(frozen=True, slots=True)
class BranchArrays:
    """As in `Sample`, before any cut."""

    token_ids: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.bool_]
    loss_mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    policy_version: npt.NDArray[np.int32]
    turn_id: npt.NDArray[np.int32]
    versions: list[int]
    """The known versions of the nodes that train, one for each of their runs of versions."""
    calls: npt.NDArray[np.int32]
    """int32: the calls that the trained nodes name."""
    all_given: bool
    """Every node that trains has logprobs and calls."""


def branch_arrays(ownership: Ownership, share: Share) -> BranchArrays:
    """The arrays of a branch that trains something."""
    graph, nodes, trained = ownership.graph, share.branch.nodes, share.trained
    stretches = graph.stretches(share.branch.leaf)
    counts = ownership.counts[nodes]
    trains = np.zeros(len(graph), np.bool_)
    trains[trained] = True
    trains = trains[nodes]
    runs = graph.gather("runs", stretches)
    run_sampled, lengths = runs[:, 0] == RunKind.SAMPLED, runs[:, 1].astype(np.intp)
    turns = ownership.turn_of[nodes].repeat(counts[:, RUNS])
    turns[~run_sampled] = -1
    turn_id = turns.repeat(lengths)
    sampled = turn_id >= 0  # only turns hold sampled tokens
    spans = graph.gather("versions", stretches)
    segments = graph.gather("segments", stretches)
    all_train = len(trained) == np.count_nonzero(counts[:, SAMPLED])
    return BranchArrays(
        token_ids=graph.gather("tokens", stretches),
        sampled=sampled,
        loss_mask=sampled.copy() if all_train else (run_sampled & trains.repeat(counts[:, RUNS])).repeat(lengths),
        logprobs=spread(graph.gather("logprobs", stretches), counts, LOGPROBS, sampled, np.nan),
        policy_version=spread_versions(spans, runs, counts, sampled),
        turn_id=turn_id,
        versions=[version for version in spans[trains.repeat(counts[:, VERSIONS]), 0].tolist() if version >= 0],
        calls=segments[trains.repeat(counts[:, SEGMENTS]), 0],
        all_given=bool(np.count_nonzero(counts[trains][:, (LOGPROBS, SEGMENTS)]) == 2 * len(trained)),
    )


def spread(
    given: npt.NDArray[_Scalar],
    counts: npt.NDArray[np.int32],
    kind: int,
    sampled: npt.NDArray[np.bool_],
    absent: float,
) -> npt.NDArray[_Scalar]:
    """Values of the sampled tokens on the whole sequence; `absent` elsewhere and where a node has none.

    `counts`: the rows of the branch's nodes in each column; `kind`: the column that the values come from.
    """
    full = np.full(len(sampled), absent, given.dtype)
    if len(given) == counts[:, SAMPLED].sum():
        full[sampled] = given
    elif len(given):
        full[np.flatnonzero(sampled)[np.repeat(counts[:, kind] > 0, counts[:, SAMPLED])]] = given
    return full


def spread_versions(
    spans: Runs, runs: Runs, counts: npt.NDArray[np.int32], sampled: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int32]:
    """The policy version of each token. Nearly always each turn has one, and then its run tells for all of them."""
    run_sampled, lengths = runs[:, 0] == RunKind.SAMPLED, runs[:, 1].astype(np.intp)
    if not np.array_equal(spans[:, 1], lengths[run_sampled]):
        return spread(spans[:, 0].repeat(spans[:, 1]), counts, VERSIONS, sampled, -1)
    versions = np.full(len(runs), -1, np.int32)
    versions[run_sampled] = spans[:, 0]
    return versions.repeat(lengths)
