"""The message graph: each message once, pointing at its predecessor, with the tokens that it adds to the sequence.

What enters by `add` is checked in this order, and a message that breaks a rule is refused and changes nothing: the
graph is still open; its arrays fit each other (`rollbook.trace.checks`); the parent exists; only the policy's own
messages hold sampled tokens; a fork carries its reason; routed experts fit (`rollbook.trace.experts`). `load` and
`load_experts` check the same of stored nodes.

The ids along a path, concatenated, are what the engine was sent plus what it returned. Tokens lie in shared
columns, so a path without forks is one slice of them. Sampled ids never change: a rewritten message is a new node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.checks import check_columns, check_mark, check_node
from rollbook.trace.columns import Column
from rollbook.trace.experts import Experts, RoutedExperts
from rollbook.trace.message import Message, Origin, message_key
from rollbook.trace.node import (
    COLUMN_KINDS,
    LOGPROBS,
    ORIGIN,
    ORIGINS,
    PARENT,
    RESCORED,
    ROOT,
    RUNS,
    SAMPLED,
    SEGMENTS,
    TABLE_WIDTH,
    TOKENS,
    VERSIONS,
    Branch,
    Fork,
    Mark,
    Node,
    NodeText,
    TokenIds,
)
from rollbook.trace.runs import NO_RUNS, Runs

__all__ = ["MessageGraph"]

NO_IDS: TokenIds = np.zeros(0, np.int32)
"""No token ids."""

_CODES = {origin: code for code, origin in enumerate(ORIGINS)}


class MessageGraph:
    """Messages and tokens of one trace; grows by `add` until the trace is sealed."""

    __slots__ = (
        "_ends",
        "_forks",
        "_index",
        "_indexed",
        "_marks",
        "_parents",
        "_stretch",
        "columns",
        "experts",
        "logprobs",
        "messages",
        "rescored",
        "runs",
        "sealed",
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
        self.columns: dict[str, Column] = {
            "tokens": self.tokens,
            "runs": self.runs,
            "logprobs": self.logprobs,
            "rescored": self.rescored,
            "versions": self.versions,
            "segments": self.segments,
        }
        """The columns of `COLUMN_KINDS` by name."""
        self.experts = RoutedExperts()
        """Routed experts of the nodes that have them."""
        self._forks: dict[int, Fork] = {}
        self._marks: dict[int, Mark] = {}
        self._parents: set[int] = set()
        self._stretch: list[int] = []
        self._index: dict[tuple[int, bytes], int] = {}
        self._indexed = 0
        self._ends: list[int] = [0] * TABLE_WIDTH
        self.sealed = False
        """True once the trace is sealed: nothing enters any more."""

    def __len__(self) -> int:
        return len(self.messages)

    def add(  # noqa: PLR0913 - one keyword for each column of the record
        self,
        message: Message,
        *,
        parent: int,
        origin: Origin,
        token_ids: TokenIds = NO_IDS,
        runs: Runs = NO_RUNS,
        logprobs: npt.NDArray[np.float32] | None = None,
        rescored: npt.NDArray[np.int32] = NO_IDS,
        versions: Runs = NO_RUNS,
        segments: Runs = NO_RUNS,
        routed_experts: Experts | None = None,
        fork: Fork | None = None,
    ) -> int:
        """Add one message behind `parent` and return its index.

        Arrays as in `Node`. Raises `RecordError` where an invariant breaks; the graph is then unchanged.
        """
        self._check_open()
        sampled = check_node(token_ids, runs, logprobs, rescored, versions, segments)
        self._check_place(parent, origin, sampled, fork)
        node = len(self.messages)
        if routed_experts is not None:
            self.experts.check(routed_experts, sampled)
            self.experts.keep(node, routed_experts)
        self.tokens.extend(token_ids)
        self.runs.extend(runs)
        self.rescored.extend(rescored)
        self.versions.extend(versions)
        self.segments.extend(segments)
        if logprobs is not None:
            self.logprobs.extend(logprobs)
        self._ends = [
            parent,
            _CODES[origin],
            len(self.tokens),
            len(self.runs),
            self._ends[SAMPLED] + sampled,
            len(self.logprobs),
            len(self.rescored),
            len(self.versions),
            len(self.segments),
        ]
        self.table.append(self._ends)
        self.messages.append(message)
        self._parents.add(parent)
        self._stretch.append(self._stretch[parent] if node and parent == node - 1 else node)
        if fork is not None:
            self._forks[node] = fork
        return node

    def _check_place(self, parent: int, origin: Origin, sampled: int, fork: Fork | None) -> None:
        if not ROOT <= parent < len(self.messages):
            raise RecordError(f"parent {parent} is not a node of this graph of {len(self.messages)}")
        if sampled and origin is not Origin.POLICY:
            raise RecordError(f"a message of origin '{origin}' holds {sampled} sampled tokens; only the policy samples")
        if fork is None and parent in self._parents:
            where = "a second root" if parent == ROOT else f"a second child of node {parent}"
            raise RecordError(f"{where} needs a fork reason")

    def _check_open(self) -> None:
        if self.sealed:
            raise RecordError("a sealed graph takes no more messages or marks")

    def load(
        self, texts: Sequence[NodeText], counts: npt.NDArray[np.int32], columns: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        """Append nodes as they were stored; every invariant of `add` is checked again.

        `counts`: int32, shape (nodes, 9): parent, origin, then how many rows each node has in each column of
        `columns` (``tokens``, ``runs``, ``logprobs``, ``rescored``, ``versions``, ``segments``; the third count is
        of sampled tokens).
        """
        self._check_open()
        first = len(self.messages)
        ends = check_columns(texts, counts, columns, first, self._parents)
        for name, column in self.columns.items():
            column.extend(columns[name])
        table = counts.copy()
        table[:, TOKENS:] = ends[:, TOKENS:] + self._ends[TOKENS:]
        self.table.extend(table)
        parents: list[int] = counts[:, PARENT].tolist()
        self.messages += [text.message for text in texts]
        self._parents.update(parents)
        for node, (text, parent) in enumerate(zip(texts, parents, strict=True), first):
            self._stretch.append(self._stretch[parent] if node and parent == node - 1 else node)
            if text.fork is not None:
                self._forks[node] = text.fork
            if text.mark is not None:
                self._marks[node] = text.mark
        if len(table):
            self._ends = table[-1].tolist()

    def load_experts(self, rows: Iterable[tuple[int, Experts]]) -> None:
        """Give nodes that were loaded their routed experts; every rule of `add` is checked again."""
        self._check_open()
        ends = self.table.view[:, SAMPLED]
        for node, experts in rows:
            if not 0 <= node < len(ends) or self.experts.get(node) is not None:
                raise RecordError(f"routed experts of node {node}, which is not there or has some already")
            self.experts.check(experts, int(ends[node] - (ends[node - 1] if node else 0)))
            self.experts.keep(node, experts)

    def counts(self, first: int = 0) -> npt.NDArray[np.int32]:
        """The node table from node `first` on in the form that `load` takes: parent, origin, then how many rows each
        node has in each column. int32, shape (nodes, 9)."""
        table = self.table.view
        counts = table[first:].copy()
        counts[1:, TOKENS:] -= table[first:-1, TOKENS:]
        if first and len(counts):
            counts[0, TOKENS:] -= table[first - 1, TOKENS:]
        return counts

    @property
    def marks(self) -> Mapping[int, Mark]:
        """The marked nodes."""
        return self._marks

    def mark(self, node: int, mark: Mark) -> None:
        """Take a turn of the policy out of training. A mark is never replaced by another one.

        `redacted` is not set here: text and ids go together (`rollbook.trace.redact`).
        """
        self._check_open()
        if not 0 <= node < len(self.messages):
            raise RecordError(f"node {node} is not in this graph of {len(self.messages)}")
        if mark is Mark.REDACTED:
            raise RecordError("a redaction removes text and ids as well; use `redact`")
        check_mark(mark, self.origin(node))
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
            origin=ORIGINS[end[ORIGIN]],
            token_ids=self.tokens.slice(start[TOKENS], end[TOKENS]),
            runs=self.runs.slice(start[RUNS], end[RUNS]),
            logprobs=self.logprobs.slice(start[LOGPROBS], end[LOGPROBS]) if has_logprobs else None,
            rescored=self.rescored.slice(start[RESCORED], end[RESCORED]),
            versions=self.versions.slice(start[VERSIONS], end[VERSIONS]),
            segments=self.segments.slice(start[SEGMENTS], end[SEGMENTS]),
            routed_experts=self.experts.get(node),
            fork=self._forks.get(node),
            mark=self._marks.get(node),
        )

    def __iter__(self) -> Iterator[Node]:
        return (self[node] for node in range(len(self.messages)))

    def texts(self, first: int = 0) -> list[NodeText]:
        """The parts that are not tokens, of all nodes from `first` on."""
        codes: list[int] = self.table.view[first:, ORIGIN].tolist()
        return [
            NodeText(
                message=self.messages[node],
                origin=ORIGINS[code],
                fork=self._forks.get(node),
                mark=self._marks.get(node),
            )
            for node, code in enumerate(codes, first)
        ]

    def origin(self, node: int) -> Origin:
        """Who made the message of a node."""
        return ORIGINS[int(self.table.view[node, ORIGIN])]

    def parent(self, node: int) -> int:
        """The predecessor of a node."""
        return int(self.table.view[node, PARENT])

    def stretches(self, leaf: int) -> list[tuple[int, int]]:
        """The path to `leaf` as stretches of consecutive nodes: (first, last + 1), root first."""
        found: list[tuple[int, int]] = []
        while leaf != ROOT:
            first = self._stretch[leaf]
            found.append((first, leaf + 1))
            leaf = self.parent(first) if first else ROOT
        return found[::-1]

    def path(self, leaf: int) -> npt.NDArray[np.int32]:
        """Node indices from the root to `leaf`: int32."""
        parts = [np.arange(first, end, dtype=np.int32) for first, end in self.stretches(leaf)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else NO_IDS

    def path_ids(self, leaf: int) -> TokenIds:
        """The token ids along the path to `leaf`: int32, shape (tokens,). Without forks this is a view, not a
        copy."""
        return self.gather("tokens", self.stretches(leaf))

    def path_length(self, leaf: int) -> int:
        """How many token ids the path to `leaf` has. Costs nothing per token."""
        return sum(end - start for start, end in self._spans("tokens", self.stretches(leaf)))

    def path_column(self, leaf: int, behind: TokenIds) -> Column:
        """A column of its own with the token ids along the path to `leaf`, and `behind`; each is copied once."""
        return Column.of(*(self.tokens.slice(*span) for span in self._spans("tokens", self.stretches(leaf))), behind)

    def gather(self, name: str, stretches: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
        """The parts of a column that belong to the nodes of `stretches`; `name` is one of `COLUMN_KINDS`."""
        column = self.columns[name]
        if stretches == [(0, len(self.messages))]:
            return column.view
        parts = [column.slice(*span) for span in self._spans(name, stretches)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else column.slice(0, 0)

    def _spans(self, name: str, stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Where the rows of `stretches` lie in a column: (first, last + 1)."""
        ends = self.table.view[:, COLUMN_KINDS[name]]
        return ((int(ends[a - 1]) if a else 0, int(ends[b - 1])) for a, b in stretches)

    def branches(self) -> list[Branch]:
        """All root-to-leaf paths, oldest leaf first."""
        if self.leaf_count == 1:
            return [Branch(0, self.path(len(self.messages) - 1))]
        leaves = [node for node in range(len(self.messages)) if node not in self._parents]
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
        return len(self.messages) - len(self._parents) + (ROOT in self._parents)

    @property
    def sampled_count(self) -> int:
        """How many token ids engines returned."""
        return self._ends[SAMPLED]

    @property
    def nbytes(self) -> int:
        """Bytes of the token columns and the node table, slack included; routed experts apart."""
        return self.table.nbytes + sum(column.nbytes for column in self.columns.values())
