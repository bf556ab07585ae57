"""What an export says of itself: what went in, what came out, and where every sampled token of the batch went.

Rules: captured tokens = trained + lost by reason, those of traces without a sample included; what was decided by the
caller (unfit logprobs allowed, a length limit) and the annotations that were used stand in the report, so that the
export can be made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rollbook.trace.annotation import Annotation
from rollbook.trace.message import canonical_bytes

__all__ = ["ExportReport", "Snapshot", "snapshot"]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Names the annotations that an export used."""

    count: int
    hash: str
    """blake2b over the annotations sorted by key; the same facts give the same hash."""
    steps: dict[str, int]
    """The newest step by producer and name, e.g. ``rewards/advantage``."""


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one export did."""

    form: str
    out: str
    """The file that was written."""
    rollouts: int
    """Traces read."""
    samples: int
    """Rows written."""
    without_advantage: int
    """Of these, with no advantage: none was computed for their group, or none was given."""
    captured: int
    """Sampled tokens that the traces hold."""
    trained: int
    """Of these, in the loss of exactly one row."""
    lost: dict[str, int]
    """The others, by reason (`LossReason`)."""
    without_samples: dict[str, int]
    """Rollouts that gave no row, by reason: ``no_sampled_tokens``, or the reasons for which its tokens were lost."""
    refused: dict[str, int]
    """Rollouts that cannot be trained from, by reason: ``no_token_ids``."""
    unbound_turn_rewards: int
    """Turn rewards that go with no row, for none trains their turn."""
    dispositions: dict[str, int]
    """Rollouts by what decided on them: ``recorded`` (annotations or the caller), ``rules`` (the table of rules)."""
    unfit_logprobs_allowed: bool
    """True where the caller takes logprobs that are not of the sampled distribution."""
    unfit_samples: int
    """Rows with such logprobs; always 0 where they are not allowed."""
    max_tokens: int | None
    """Branches longer than this were left out; None: no limit."""
    snapshot: Snapshot
    """The annotations that were used."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return msgspec.to_builtins(self)


def snapshot(annotations: Sequence[Annotation]) -> Snapshot:
    """Name a set of annotations; their order does not matter."""
    digest = hashlib.blake2b(digest_size=16)
    for part in sorted(canonical_bytes(each) for each in annotations):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return Snapshot(count=len(annotations), hash=digest.hexdigest(), steps=_steps(annotations))


def _steps(annotations: Iterable[Annotation]) -> dict[str, int]:
    steps: dict[str, int] = {}
    for each in annotations:
        key = f"{each.producer}/{each.name}"
        steps[key] = max(each.step, steps.get(key, each.step))
    return dict(sorted(steps.items()))
