"""What a door is: one trainer's record, made of samples, and read back as that trainer reads it.

Rules: a door's module is small and imports no trainer; its docstring says the convention (below). `records` makes
plain data with the trainer's own field names from samples, in their order; it refuses what `admitted` refuses, and
what its trainer cannot hold (`UsageError`), never bends it. `rows` reads records back by the trainer's convention and
by nothing else, so that the checks of `check_exporter` see what the trainer would see.

The three conventions, N tokens, of which the first P are before the first sampled one:

- R, response: N - P entries, entry t is about token P + t;
- F, full: N entries, entry t is about token t;
- S, shifted: N - 1 entries, entry t is about token t + 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rollbook.trace.sample import Sample

__all__ = ["Door", "DoorModule", "ExporterCheck", "Row"]


class ExporterCheck(StrEnum):
    """What is asked of every door, in the order of the bugs that were found in the field."""

    MASKED_GRADIENT = "masked_gradient"
    """A token out of the loss has no part in it: its mask is 0, its advantage 0, no number beside it is NaN."""
    LOGPROB_ALIGNMENT = "logprob_alignment"
    """The logprob of token t is that of token t, after the trainer's own shift."""
    SAMPLED_ONLY = "sampled_only"
    """No token trains that the engine did not return as sampled, and none twice."""
    LOST_MEMBERS = "lost_members"
    """Members without a vote change no row, and the group counts without them."""
    BRANCH_WEIGHT = "branch_weight"
    """The branches of one attempt share an id, and weigh together as much as one."""
    REWARD_SEEN = "reward_seen"
    """The reward is seen whatever the mask of the last token."""
    LENGTH_CUT = "length_cut"
    """A cut span ends where the engine ended it, and is marked as cut where the record can say so."""
    CONTIGUOUS = "contiguous"
    """The rows of one attempt stand together, and exactly one is the last."""
    EXPERT_ROWS = "expert_rows"
    """Routed experts stand with the token that the trainer means."""
    EMPTY_REFUSED = "empty_refused"
    """An empty response, a row that trains nothing and unfit logprobs are refused; there is no placeholder."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One training sequence as the trainer sees it. Arrays have full length, entry t is about token t; None: the
    record does not say."""

    token_ids: npt.NDArray[np.int64]
    """int64, shape (tokens,); without padding."""
    trains: npt.NDArray[np.bool_]
    """bool, shape (tokens,): in the loss."""
    logprobs: npt.NDArray[np.float32] | None = None
    """float32, shape (tokens,): as the record has them, off the loss too; 0 where it has no entry."""
    advantages: npt.NDArray[np.float32] | None = None
    """float32, shape (tokens,): as the record has them; 0 where it has no entry."""
    reward: float | None = None
    """Of the whole rollout."""
    rollout: Hashable = None
    """What the rows of one attempt share, and no others."""
    group: Hashable = None
    """What the rows that are compared with each other share."""
    weight: float | None = None
    """The row's part of its attempt, where the record carries it: the rows of one attempt sum to 1."""
    is_last: bool | None = None
    """True for the row that the attempt ended on."""
    truncated: bool | None = None
    versions: npt.NDArray[np.int32] | None = None
    """int32, shape (tokens,): policy version; -1 where the record has none."""
    experts: npt.NDArray[np.integer[Any]] | None = None
    """Shape (tokens, layers, k): of the pass that each token was sampled from; -1 where the record has no entry."""


class DoorModule(Protocol):
    """What the module of a door defines."""

    def records(self, samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> Any:
        """The samples in the trainer's form: plain data and numpy arrays, the trainer's field names."""
        ...

    def rows(self, records: Any) -> list[Row]:
        """What the trainer sees in such records, one row a sample, in their order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One way to a trainer."""

    name: str
    about: str
    """One sentence: the trainer's own name for the record, and who reads it."""
    module: str
    """Where its `records` and `rows` are."""
    lacks: Mapping[ExporterCheck, str] = field(default_factory=dict[ExporterCheck, str])
    """What the trainer's record cannot say, each with what that means, in a sentence: not checked."""
    refuses: Mapping[ExporterCheck, str] = field(default_factory=dict[ExporterCheck, str])
    """What the door refuses in place of the check, each with the reason, in a sentence: that it refuses is checked."""
