"""What must hold of a node before it enters a graph: the same rules for one new node and for many stored ones.

`check_node` and `check_columns` refuse the same data (a property test compares them). The rules, in order: array
types; the runs cover the ids with known kinds; ids are >= 0; a logprob stands for each sampled token, finite and not
above 0; rescored positions rise, lie among the sampled tokens and have logprobs; versions and segments cover the
sampled tokens with positive counts and values >= 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.message import Message, Origin
from rollbook.trace.node import (
    COLUMN_KINDS,
    LOGPROBS,
    ORIGIN,
    ORIGINS,
    POLICY,
    RESCORED,
    ROOT,
    RUNS,
    SAMPLED,
    SEGMENTS,
    TABLE_WIDTH,
    TOKENS,
    VERSIONS,
    Mark,
    NodeText,
    TokenIds,
)
from rollbook.trace.runs import RunKind, Runs

__all__ = ["LOGPROB_SLACK", "check_columns", "check_mark", "check_node", "columns_fit"]

LOGPROB_SLACK = 1e-3
"""How far above 0 a logprob may lie by float error."""

_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)
_ZERO = np.zeros(1, np.int64)
_KINDS = frozenset(int(kind) for kind in RunKind)


def check_node(
    token_ids: TokenIds,
    runs: Runs,
    logprobs: npt.NDArray[np.float32] | None,
    rescored: npt.NDArray[np.int32],
    versions: Runs,
    segments: Runs,
) -> int:
    """Check one node's arrays against each other; returns the number of sampled tokens. Raises `RecordError`."""
    if not (token_ids.dtype == runs.dtype == rescored.dtype == versions.dtype == segments.dtype == _INT32):
        raise RecordError("token ids, runs, rescored positions, versions and segments must be int32")
    if not (token_ids.ndim == rescored.ndim == 1 and (logprobs is None or logprobs.ndim == 1)):
        raise RecordError("token ids, logprobs and rescored positions must be flat arrays")
    covered = sampled = 0
    for kind, count in runs.tolist():
        if kind not in _KINDS or count <= 0:
            raise RecordError(f"({kind}, {count}) is no run")
        covered += count
        if kind == RunKind.SAMPLED:
            sampled += count
    if covered != len(token_ids):
        raise RecordError(f"runs cover {covered} of {len(token_ids)} token ids")
    if covered and token_ids.min() < 0:
        raise RecordError("a token id is negative")
    if logprobs is not None:
        _check_logprobs(logprobs, sampled)
    if len(rescored):
        _check_rescored(rescored, logprobs, sampled)
    _check_spans("versions", versions, sampled)
    _check_spans("segments", segments, sampled)
    return sampled


def _check_logprobs(logprobs: npt.NDArray[np.float32], sampled: int) -> None:
    if logprobs.dtype != _FLOAT32 or len(logprobs) != sampled:
        raise RecordError(
            f"{len(logprobs)} logprobs ({logprobs.dtype}) for {sampled} sampled tokens; want float32, one each"
        )
    if not _are_logprobs(logprobs):
        raise RecordError("a logprob is not finite or above 0")


def _are_logprobs(values: npt.NDArray[np.float32]) -> bool:
    # NaN makes both bounds false.
    return not len(values) or bool(values.max() <= LOGPROB_SLACK and values.min() > -np.inf)


def _check_rescored(rescored: npt.NDArray[np.int32], logprobs: npt.NDArray[np.float32] | None, sampled: int) -> None:
    if logprobs is None:
        raise RecordError("rescored positions without logprobs")
    if rescored[0] < 0 or rescored[-1] >= sampled or bool((rescored[1:] <= rescored[:-1]).any()):
        raise RecordError("rescored positions do not rise within the sampled tokens")


def _check_spans(name: str, spans: Runs, sampled: int) -> None:
    if not len(spans):
        return
    covered = 0
    for value, count in spans.tolist():
        if value < 0 or count <= 0:
            raise RecordError(f"{name} hold ({value}, {count}); want values >= 0 and counts > 0")
        covered += count
    if covered != sampled:
        raise RecordError(f"{name} cover {covered} of {sampled} sampled tokens")


def check_mark(mark: Mark, origin: Origin) -> None:
    """Only the policy's own turns can be rejected or demoted: nothing else trains. Raises `RecordError`."""
    if mark is not Mark.REDACTED and origin is not Origin.POLICY:
        raise RecordError(f"a message of origin '{origin}' cannot be '{mark}'; it does not train")


def check_columns(
    texts: Sequence[NodeText],
    counts: npt.NDArray[np.int32],
    columns: Mapping[str, npt.NDArray[Any]],
    first: int,
    parents_taken: Collection[int],
) -> npt.NDArray[np.int64]:
    """The checks of `MessageGraph.add` and `mark` for many stored nodes at once; raises `RecordError`.

    `counts` and `columns` as in `MessageGraph.load`; `first`: the index that the first node gets; `parents_taken`:
    the nodes that have a child already. Returns the running totals of `counts`: int64, shape (nodes, 9).
    """
    if counts.shape != (len(texts), TABLE_WIDTH) or counts[:, TOKENS:].min(initial=0) < 0:
        raise RecordError("the node table does not fit the messages")
    # Each check below compares running totals over all nodes; 64 bits hold any total of stored 32-bit counts.
    ends = counts.cumsum(axis=0, dtype=np.int64)
    totals: list[int] = ends[-1].tolist() if len(ends) else [0] * TABLE_WIDTH
    for name, kind in COLUMN_KINDS.items():
        if totals[kind] != len(columns[name]):
            raise RecordError(f"the node table does not fit the column '{name}'")
    for fine, problem in _array_checks(counts, ends, columns):
        if not fine:
            raise RecordError(problem)
    _check_texts(texts, counts, first, parents_taken)
    return ends


def columns_fit(
    counts: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], columns: Mapping[str, npt.NDArray[Any]]
) -> bool:
    """True where the arrays of stored nodes fit each other: what `check_columns` checks of them. `ends`: the running
    totals of `counts`."""
    return all(fine for fine, _ in _array_checks(counts, ends, columns))


def _array_checks(
    counts: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], columns: Mapping[str, npt.NDArray[Any]]
) -> tuple[tuple[bool | np.bool_, str], ...]:
    runs, rescored, versions, segments = columns["runs"], columns["rescored"], columns["versions"], columns["segments"]
    kinds, lengths = runs[:, 0], runs[:, 1]
    sampled, logprob_rows, origins = counts[:, SAMPLED], counts[:, LOGPROBS], counts[:, ORIGIN]
    run_ends, sampled_runs = ends[:, RUNS], lengths * (kinds == RunKind.SAMPLED)
    return (
        (kinds.min(initial=0) >= RunKind.SCAFFOLD and kinds.max(initial=0) <= RunKind.FORCED, "unknown kind of run"),
        (lengths.min(initial=1) > 0, "a run is empty"),
        ((_totals(lengths, run_ends) == ends[:, TOKENS]).all(), "runs do not cover the token ids"),
        ((_totals(sampled_runs, run_ends) == ends[:, SAMPLED]).all(), "the runs hold another count of sampled tokens"),
        (columns["tokens"].min(initial=0) >= 0, "a token id is negative"),
        (((logprob_rows == sampled) | (logprob_rows == 0)).all(), "not one logprob per sampled token"),
        (_are_logprobs(columns["logprobs"]), "a logprob is not finite or above 0"),
        (not len(rescored) or _rescored_fit(rescored, counts), "rescored positions do not rise within the logprobs"),
        (
            _covers(versions, counts[:, VERSIONS], ends[:, VERSIONS], sampled),
            "versions do not cover the sampled tokens",
        ),
        (
            _covers(segments, counts[:, SEGMENTS], ends[:, SEGMENTS], sampled),
            "segments do not cover the sampled tokens",
        ),
        (origins.min(initial=0) >= 0 and origins.max(initial=0) < len(ORIGINS), "unknown origin"),
        (((sampled == 0) | (origins == POLICY)).all(), "only the policy samples"),
    )


def _check_texts(
    texts: Sequence[NodeText], counts: npt.NDArray[np.int32], first: int, parents_taken: Collection[int]
) -> None:
    seen = set(parents_taken)
    for node, (text, (parent, origin, tokens)) in enumerate(
        zip(texts, counts[:, : TOKENS + 1].tolist(), strict=True), first
    ):
        if not ROOT <= parent < node:
            raise RecordError(f"parent {parent} of node {node} does not come before it")
        if text.fork is None and parent in seen:
            raise RecordError(f"node {node} forks at {parent} without a reason")
        seen.add(parent)
        if text.origin is not ORIGINS[origin]:
            raise RecordError(f"node {node} is of origin '{text.origin}' in its text and of another in the table")
        if text.mark is not None:
            check_mark(text.mark, text.origin)
            if text.mark is Mark.REDACTED and (tokens or text.message != Message(role=text.message.role)):
                raise RecordError(f"node {node} is marked redacted and still holds text or ids")


def _totals(values: npt.NDArray[np.int32], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The running total of `values` at the end of each node's rows: int64, shape (nodes,)."""
    return np.concatenate((_ZERO, values.cumsum(dtype=np.int64)))[ends]


def _rescored_fit(rescored: npt.NDArray[np.int32], counts: npt.NDArray[np.int32]) -> bool:
    owner = np.repeat(np.arange(len(counts)), counts[:, RESCORED])
    rises = (rescored[1:] > rescored[:-1]) | (owner[1:] != owner[:-1])
    # A node without logprobs has none that could be rescored, so the bound is its count of logprobs.
    return bool(((rescored >= 0) & (rescored < counts[owner, LOGPROBS])).all() and rises.all())


def _covers(
    spans: Runs, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], sampled: npt.NDArray[np.int32]
) -> bool:
    if not len(spans):
        return True
    wanted = (sampled * (rows > 0)).cumsum(dtype=np.int64)
    return bool(spans[:, 0].min() >= 0 and spans[:, 1].min() > 0 and (_totals(spans[:, 1], ends) == wanted).all())
