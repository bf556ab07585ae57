"""Nodes: one message each with the tokens that it adds, and why a path forked or a node does not train.

A fork always carries its reason; one by drift also carries the first differing position and both spellings. Masks
and counts are never part of a node: they follow from its runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.message import Message, Origin
from rollbook.trace.runs import RunKind, Runs

__all__ = [
    "COLUMN_KINDS",
    "LOGPROBS",
    "ORIGIN",
    "ORIGINS",
    "PARENT",
    "POLICY",
    "RESCORED",
    "ROOT",
    "RUNS",
    "SAMPLED",
    "SEGMENTS",
    "TABLE_WIDTH",
    "TOKENS",
    "VERSIONS",
    "Branch",
    "Fork",
    "ForkReason",
    "Mark",
    "Node",
    "NodeText",
    "TokenIds",
]

TokenIds = npt.NDArray[np.int32]
"""Token ids: int32, shape (tokens,)."""

ROOT = -1
"""The parent of a node that starts a path."""

ORIGINS: tuple[Origin, ...] = tuple(Origin)
"""Origins by their code in the node table."""

POLICY = ORIGINS.index(Origin.POLICY)
"""The code of the policy's own messages."""


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


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
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
        if self.position is not None and self.position < 0:
            raise RecordError(f"a fork cannot lie at position {self.position}")


class Mark(StrEnum):
    """Why a node does not train although it was sampled."""

    REJECTED = "rejected"
    """The attempt was thrown away and sampled again; its branch does not train."""
    DEMOTED = "demoted"
    """The turn was taken out of the loss; its branch trains without it."""
    REDACTED = "redacted"
    """Text and ids were removed; its branch does not train."""


class NodeText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
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
    token_ids: TokenIds
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
    routed_experts: npt.NDArray[np.uint16] | None
    """uint16, shape (sampled, layers, k): the experts of the pass that each token was sampled from; None where the
    engine did not say, or where the trace was read without them (`MessageGraph.experts`)."""
    fork: Fork | None
    """None where the path only goes on."""
    mark: Mark | None
    """None where nothing keeps it from training."""

    @property
    def sampled_ids(self) -> TokenIds:
        """The ids that the engine returned: int32, shape (sampled,)."""
        return self.token_ids[self.sampled_positions]

    @property
    def sampled_positions(self) -> npt.NDArray[np.intp]:
        """Where the sampled tokens stand among the node's ids: shape (sampled,)."""
        return np.flatnonzero(np.repeat(self.runs[:, 0] == RunKind.SAMPLED, self.runs[:, 1]))


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
