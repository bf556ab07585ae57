"""The message graph: each message once, pointing at its predecessor, with the tokens that it adds to the sequence.

Invariants, checked on entry (`MessageGraph.add`) in this order; a message that breaks one is refused and nothing
changes: the parent exists; the runs cover the ids; a logprob stands for each sampled token and is finite and <= 0;
segments and policy versions cover the sampled tokens; only the policy's own messages hold sampled tokens; a fork
carries its reason.

The ids along a path, concatenated, are what the engine was sent plus what it returned. Tokens lie in shared
columns, so a path without forks is one slice of them. Sampled ids never change: a rewritten message is a new node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.columns import Column
from rollbook.trace.message import Message, Origin, message_key
from rollbook.trace.runs import NO_RUNS, RunKind, Runs

__all__ = ["ROOT", "Branch", "Fork", "ForkReason", "Mark", "MessageGraph", "Node", "NodeText"]

ROOT = -1
"""The parent of a node that starts a path."""

LOGPROB_SLACK = 1e-3
"""How far above 0 a logprob may lie by float error."""

NO_IDS: npt.NDArray[np.int32] = np.zeros(0, np.int32)

_ORIGINS: tuple[Origin, ...] = tuple(Origin)


class ForkReason(StrEnum):
    """Why a path left another one."""

    COMPACTION = "compaction"
    """History was summarised."""
    SUBAGENT = "subagent"
    """A subagent began its own conversation."""
    EDITED_HISTORY = "edited_history"
    """The harness changed an earlier message."""
    TEMPLATE_REWRITE = "template_rewrite"
    """The template renders earlier turns differently now."""
    DRIFT = "drift"
    """The same text came back as other tokens."""
    TOOLS_CHANGED = "tools_changed"
    """The offered tools changed."""
    SYSTEM_CHANGED = "system_changed"
    """The system message changed."""
    RETRY = "retry"
    """The same prompt was sampled again."""
    SIDE_REQUEST = "side_request"
    """A request beside the conversation, e.g. for a title."""
    NEW_ROOT = "new_root"
    """A conversation of its own."""


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason that a fork carries."""

    reason: ForkReason
    detail: str = ""
    position: int | None = None
    """For `drift`: the first differing position along the path, in tokens."""
    kept: str | None = None
    """For `drift`: the text of the stored tokens there."""
    found: str | None = None
    """For `drift`: the text of the tokens that came instead."""

    def __post_init__(self) -> None:
        if self.reason is ForkReason.DRIFT and None in (self.position, self.kept, self.found):
            raise RecordError("a fork by drift needs the first differing position and both spellings")


class Mark(StrEnum):
    """Why a node does not train although it was sampled."""

    REJECTED = "rejected"
    """The attempt was thrown away and sampled again; its branch does not train."""
    DEMOTED = "demoted"
    """The turn was taken out of the loss; its branch trains without it."""
    REDACTED = "redacted"
    """Text and ids were removed; its branch does not train."""


class NodeText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a node that is not tokens, as it is stored."""

    message: Message
    origin: Origin
    fork: Fork | None = None
    mark: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A view of one node. Arrays are read-only."""

    index: int
    parent: int
    """Index of the predecessor, `ROOT` for none."""
    message: Message
    origin: Origin
    token_ids: npt.NDArray[np.int32]
    """int32, shape (tokens,): the tokens that the message adds."""
    runs: Runs
    """(RunKind, count) over `token_ids`."""
    logprobs: npt.NDArray[np.float32] | None
    """float32, one a sampled token; None where the engine gave none (imports, text-only engines)."""
    rescored: npt.NDArray[np.int32]
    """int32: positions among the sampled tokens whose logprob came from a second request."""
    versions: Runs
    """(policy version, count) over the sampled tokens; empty where the engine did not say."""
    segments: Runs
    """(call, count) over the sampled tokens."""
    fork: Fork | None
    mark: Mark | None

    @property
    def sampled_ids(self) -> npt.NDArray[np.int32]:
        """The ids that the engine returned: int32, shape (sampled,)."""
        return self.token_ids[np.repeat(self.runs[:, 0] == RunKind.SAMPLED, self.runs[:, 1])]


@dataclass(frozen=True, slots=True)
class Branch:
    """One root-to-leaf path."""

    index: int
    """Branches are numbered by their leaves, oldest first."""
    nodes: npt.NDArray[np.int32]
    """int32: node indices from root to leaf."""

    @property
    def leaf(self) -> int:
        """The last node."""
        return int(self.nodes[-1])


# Columns of the node table: the parent, the origin, and for each array column where the node's part ends.
PARENT, ORIGIN, TOKENS, RUNS, SAMPLED, LOGPROBS, RESCORED, VERSIONS, SEGMENTS = range(9)
TABLE_WIDTH = 9
COLUMN_KINDS = {
    "tokens": TOKENS,
    "runs": RUNS,
    "logprobs": LOGPROBS,
    "rescored": RESCORED,
    "versions": VERSIONS,
    "segments": SEGMENTS,
}
"""The array columns by name, with their place in the node table."""


class MessageGraph:
    """Messages and tokens of one trace; grows by `add` until the trace is sealed."""

    __slots__ = (
        "_children",
        "_forks",
        "_index",
        "_indexed",
        "_marks",
        "_stretch",
        "logprobs",
        "messages",
        "rescored",
        "runs",
        "segments",
        "table",
        "tokens",
        "versions",
    )

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.table = Column(np.int32, TABLE_WIDTH)
        self.tokens = Column(np.int32)
        self.runs = Column(np.int32, 2)
        self.logprobs = Column(np.float32)
        self.rescored = Column(np.int32)
        self.versions = Column(np.int32, 2)
        self.segments = Column(np.int32, 2)
        self._forks: dict[int, Fork] = {}
        self._marks: dict[int, Mark] = {}
        self._children: dict[int, int] = {}
        self._stretch: list[int] = []
        self._index: dict[tuple[int, bytes], int] = {}
        self._indexed = 0

    def __len__(self) -> int:
        return len(self.messages)

    def add(
        self,
        message: Message,
        *,
        parent: int,
        origin: Origin,
        token_ids: npt.NDArray[np.int32] = NO_IDS,
        runs: Runs = NO_RUNS,
        logprobs: npt.NDArray[np.float32] | None = None,
        rescored: npt.NDArray[np.int32] = NO_IDS,
        versions: Runs = NO_RUNS,
        segments: Runs = NO_RUNS,
        fork: Fork | None = None,
    ) -> int:
        """Add one message behind `parent` and return its index.

        Arrays as in `Node`. Raises `RecordError` where an invariant breaks; the graph is then unchanged.
        """
        sampled = _check_arrays(token_ids, runs, logprobs, rescored, versions, segments)
        self._check_place(parent, origin, sampled, fork)
        node = len(self.messages)
        self.tokens.extend(token_ids)
        self.runs.extend(runs)
        self.rescored.extend(rescored)
        self.versions.extend(versions)
        self.segments.extend(segments)
        if logprobs is not None:
            self.logprobs.extend(logprobs)
        ends = (
            len(self.tokens),
            len(self.runs),
            sampled + self._end_row()[SAMPLED],
            len(self.logprobs),
            len(self.rescored),
            len(self.versions),
            len(self.segments),
        )
        self.table.append((parent, _ORIGINS.index(origin), *ends))
        self._place(node, parent, message, fork)
        return node

    def _check_place(self, parent: int, origin: Origin, sampled: int, fork: Fork | None) -> None:
        if not ROOT <= parent < len(self.messages):
            raise RecordError(f"parent {parent} is not a node of this graph of {len(self.messages)}")
        if sampled and origin is not Origin.POLICY:
            raise RecordError(f"a message of origin '{origin}' holds {sampled} sampled tokens; only the policy samples")
        if fork is None and parent in self._children:
            where = "a second root" if parent == ROOT else f"a second child of node {parent}"
            raise RecordError(f"{where} needs a fork reason")

    def load(
        self, texts: Sequence[NodeText], counts: npt.NDArray[np.int32], columns: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        """Append nodes as they were stored; every invariant of `add` is checked again.

        `counts`: int32, shape (nodes, 9): parent, origin, then how many rows each node has in each column of
        `columns` (``tokens``, ``runs``, ``logprobs``, ``rescored``, ``versions``, ``segments``; the third count is
        of sampled tokens).
        """
        base, first = self._end_row(), len(self.messages)
        check_columns(texts, counts, columns, first, self._children)
        for name, kind in COLUMN_KINDS.items():
            self.column(kind).extend(columns[name])
        table = counts.astype(np.int64)
        table[:, TOKENS:] = table[:, TOKENS:].cumsum(axis=0) + base[TOKENS:]
        self.table.extend(table.astype(np.int32))
        for node, (text, row) in enumerate(zip(texts, counts.tolist(), strict=True), first):
            self._place(node, row[PARENT], text.message, text.fork)
            if text.mark is not None:
                self._marks[node] = text.mark

    @property
    def marks(self) -> Mapping[int, Mark]:
        """The marked nodes."""
        return self._marks

    def column(self, kind: int) -> Column:
        """The column whose ends stand at place `kind` of the node table."""
        return {
            TOKENS: self.tokens,
            RUNS: self.runs,
            LOGPROBS: self.logprobs,
            RESCORED: self.rescored,
            VERSIONS: self.versions,
            SEGMENTS: self.segments,
        }[kind]

    def _end_row(self) -> list[int]:
        return (
            self.table.slice(len(self.messages) - 1, len(self.messages)).tolist()[0]
            if self.messages
            else [0] * TABLE_WIDTH
        )

    def _place(self, node: int, parent: int, message: Message, fork: Fork | None) -> None:
        self.messages.append(message)
        self._stretch.append(self._stretch[parent] if node and parent == node - 1 else node)
        self._children[parent] = self._children.get(parent, 0) + 1
        if fork is not None:
            self._forks[node] = fork

    def mark(self, node: int, mark: Mark) -> None:
        """Take a sampled node out of training. A mark is never replaced by another one."""
        if self._marks.setdefault(node, mark) is not mark:
            raise RecordError(f"node {node} is already marked '{self._marks[node]}'")

    def __getitem__(self, node: int) -> Node:
        if not 0 <= node < len(self.messages):
            raise IndexError(node)
        rows: list[list[int]] = self.table.slice(max(node - 1, 0), node + 1).tolist()
        start, end = (rows[0] if node else [0] * TABLE_WIDTH), rows[-1]
        has_logprobs = end[LOGPROBS] - start[LOGPROBS] == end[SAMPLED] - start[SAMPLED]
        return Node(
            index=node,
            parent=end[PARENT],
            message=self.messages[node],
            origin=_ORIGINS[end[ORIGIN]],
            token_ids=self.tokens.slice(start[TOKENS], end[TOKENS]),
            runs=self.runs.slice(start[RUNS], end[RUNS]),
            logprobs=self.logprobs.slice(start[LOGPROBS], end[LOGPROBS]) if has_logprobs else None,
            rescored=self.rescored.slice(start[RESCORED], end[RESCORED]),
            versions=self.versions.slice(start[VERSIONS], end[VERSIONS]),
            segments=self.segments.slice(start[SEGMENTS], end[SEGMENTS]),
            fork=self._forks.get(node),
            mark=self._marks.get(node),
        )

    def __iter__(self) -> Iterator[Node]:
        return (self[node] for node in range(len(self.messages)))

    def text(self, node: int) -> NodeText:
        """The part of a node that is not tokens."""
        origin = _ORIGINS[int(self.table.view[node, ORIGIN])]
        return NodeText(
            message=self.messages[node], origin=origin, fork=self._forks.get(node), mark=self._marks.get(node)
        )

    def parent(self, node: int) -> int:
        """The predecessor of a node."""
        return int(self.table.view[node, PARENT])

    def stretches(self, leaf: int) -> list[tuple[int, int]]:
        """The path to `leaf` as stretches of consecutive nodes: (first, last + 1), root first."""
        found: list[tuple[int, int]] = []
        while leaf != ROOT:
            first = self._stretch[leaf]
            found.append((first, leaf + 1))
            leaf = self.parent(first)
        return found[::-1]

    def path(self, leaf: int) -> npt.NDArray[np.int32]:
        """Node indices from the root to `leaf`: int32."""
        parts = [np.arange(first, end, dtype=np.int32) for first, end in self.stretches(leaf)]
        return np.concatenate(parts) if parts else NO_IDS

    def path_ids(self, leaf: int) -> npt.NDArray[np.int32]:
        """The token ids along the path to `leaf`: int32, shape (tokens,). Without forks this is a view, not a
        copy."""
        return self.gather(self.tokens, TOKENS, self.stretches(leaf))

    def gather(self, column: Column, kind: int, stretches: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
        """The parts of `column` that belong to the nodes of `stretches`; `kind` is its place in the node table."""
        ends = self.table.view[:, kind]
        parts = [column.slice(int(ends[a - 1]) if a else 0, int(ends[b - 1])) for a, b in stretches]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else column.slice(0, 0)

    def branches(self) -> list[Branch]:
        """All root-to-leaf paths, oldest leaf first."""
        leaves = [node for node in range(len(self.messages)) if node not in self._children]
        return [Branch(index, self.path(leaf)) for index, leaf in enumerate(leaves)]

    def locate(self, messages: Sequence[Message], *, known: int = ROOT) -> tuple[int, int]:
        """The deepest node whose path says the first messages, and how many it covers: (node, matched).

        Matches by message identity, never by tokens. `known`: a node whose path is already known to say what comes
        before `messages`, so that only new messages are looked at: O(new), not O(history).
        """
        self._update_index()
        node = known
        for matched, message in enumerate(messages):
            following = self._index.get((node, message_key(message)))
            if following is None:
                return node, matched
            node = following
        return node, len(messages)

    def _update_index(self) -> None:
        for node in range(self._indexed, len(self.messages)):
            self._index[self.parent(node), message_key(self.messages[node])] = node
        self._indexed = len(self.messages)

    @property
    def leaf_count(self) -> int:
        """How many branches there are."""
        return len(self.messages) - sum(node != ROOT for node in self._children)

    @property
    def sampled_count(self) -> int:
        """How many token ids engines returned."""
        return int(self.table.view[-1, SAMPLED]) if self.messages else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the token columns and the node table, slack included."""
        return self.table.nbytes + sum(self.column(kind).nbytes for kind in COLUMN_KINDS.values())


def _check_arrays(
    token_ids: npt.NDArray[np.int32],
    runs: Runs,
    logprobs: npt.NDArray[np.float32] | None,
    rescored: npt.NDArray[np.int32],
    versions: Runs,
    segments: Runs,
) -> int:
    """Check one node's arrays against each other; returns the number of sampled tokens."""
    pairs = runs.tolist()
    if sum(count for _, count in pairs) != len(token_ids) or any(count <= 0 for _, count in pairs):
        raise RecordError(f"runs cover {sum(count for _, count in pairs)} of {len(token_ids)} token ids")
    if any(not RunKind.SCAFFOLD <= kind <= RunKind.FORCED for kind, _ in pairs):
        raise RecordError("unknown kind of run")
    sampled = sum(count for kind, count in pairs if kind == RunKind.SAMPLED)
    if token_ids.dtype != np.int32 or (len(token_ids) and int(token_ids.min()) < 0):
        raise RecordError("token ids must be int32 and >= 0")
    if logprobs is not None:
        _check_logprobs(logprobs, sampled)
    elif len(rescored):
        raise RecordError("rescored positions without logprobs")
    if len(rescored) and not (int(rescored.min()) >= 0 and int(rescored.max()) < sampled):
        raise RecordError("a rescored position lies outside the sampled tokens")
    for name, spans in (("versions", versions), ("segments", segments)):
        if len(spans) and int(spans[:, 1].sum()) != sampled:
            raise RecordError(f"{name} cover {int(spans[:, 1].sum())} of {sampled} sampled tokens")
    return sampled


def _check_logprobs(logprobs: npt.NDArray[np.float32], sampled: int) -> None:
    if logprobs.dtype != np.float32 or len(logprobs) != sampled:
        raise RecordError(
            f"{len(logprobs)} logprobs ({logprobs.dtype}) for {sampled} sampled tokens; want float32, one each"
        )
    if len(logprobs) and not (np.isfinite(logprobs).all() and float(logprobs.max()) <= LOGPROB_SLACK):
        raise RecordError("a logprob is not finite or above 0")


def check_columns(
    texts: Sequence[NodeText],
    counts: npt.NDArray[np.int32],
    columns: Mapping[str, npt.NDArray[Any]],
    first: int,
    parents_taken: Collection[int],
) -> None:
    """The checks of `MessageGraph.add` for many stored nodes at once; raises `RecordError` at the first break."""
    if counts.shape != (len(texts), TABLE_WIDTH) or (len(counts) and int(counts[:, TOKENS:].min()) < 0):
        raise RecordError("the node table does not fit the messages")
    for name, kind in COLUMN_KINDS.items():
        if int(counts[:, kind].sum()) != len(columns[name]):
            raise RecordError(f"the node table does not fit the column '{name}'")
    runs, sampled, logprobs = columns["runs"], counts[:, SAMPLED], columns["logprobs"]
    runs_of = np.repeat(np.arange(len(counts)), counts[:, RUNS])
    rescored_of = np.repeat(sampled, counts[:, RESCORED])
    origins = counts[:, ORIGIN]
    checks = (
        (((runs[:, 0] >= RunKind.SCAFFOLD) & (runs[:, 0] <= RunKind.FORCED)).all(), "unknown kind of run"),
        ((runs[:, 1] > 0).all(), "a run is empty"),
        ((_sums(runs_of, runs[:, 1], len(counts)) == counts[:, TOKENS]).all(), "runs do not cover the token ids"),
        (
            (_sums(runs_of, runs[:, 1] * (runs[:, 0] == RunKind.SAMPLED), len(counts)) == sampled).all(),
            "the count of sampled tokens does not fit the runs",
        ),
        (not len(columns["tokens"]) or columns["tokens"].min() >= 0, "a token id is negative"),
        (((counts[:, LOGPROBS] == sampled) | (counts[:, LOGPROBS] == 0)).all(), "not one logprob a sampled token"),
        (
            not len(logprobs) or (np.isfinite(logprobs).all() and logprobs.max() <= LOGPROB_SLACK),
            "a logprob is not finite or above 0",
        ),
        (
            ((columns["rescored"] >= 0) & (columns["rescored"] < rescored_of)).all(),
            "a rescored position lies outside the sampled tokens",
        ),
        (_covers(columns["versions"], counts[:, VERSIONS], sampled), "versions do not cover the sampled tokens"),
        (_covers(columns["segments"], counts[:, SEGMENTS], sampled), "segments do not cover the sampled tokens"),
        (((origins >= 0) & (origins < len(_ORIGINS))).all(), "unknown origin"),
        (((sampled == 0) | (origins == _ORIGINS.index(Origin.POLICY))).all(), "only the policy samples"),
    )
    for fine, problem in checks:
        if not fine:
            raise RecordError(problem)
    _check_parents(texts, counts[:, PARENT].tolist(), first, parents_taken)


def _check_parents(texts: Sequence[NodeText], parents: list[int], first: int, taken: Collection[int]) -> None:
    seen = set(taken)
    for node, (text, parent) in enumerate(zip(texts, parents, strict=True), first):
        if not ROOT <= parent < node:
            raise RecordError(f"parent {parent} of node {node} does not come before it")
        if parent in seen and text.fork is None:
            raise RecordError(f"node {node} forks at {parent} without a reason")
        seen.add(parent)


def _sums(owner: npt.NDArray[np.intp], values: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int64]:
    return np.bincount(owner, weights=values, minlength=size).astype(np.int64)


def _covers(spans: Runs, rows: npt.NDArray[np.int32], sampled: npt.NDArray[np.int32]) -> bool:
    covered = _sums(np.repeat(np.arange(len(rows)), rows), spans[:, 1], len(rows))
    return bool(((rows == 0) | (covered == sampled)).all())
