"""Miles: the fields of `Sample` (miles/utils/types.py), as its `to_dict` writes and its `from_dict` reads them.

Miles is a fork of slime and keeps its convention (`rollbook.export.doors.slime`); it has no kept top-p ids, and adds
the indices of sparse attention, which are not recorded. Its own group norm takes one reward for each `rollout_id`
and refuses siblings with different rewards, so several branches of an attempt vote once without a hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollbook.export.doors.admission import admitted
from rollbook.export.doors.experts import passes
from rollbook.export.doors.slime import Numbers, core, rows
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> list[dict[str, Any]]:
    """One `Sample` as a dictionary for each sample."""
    numbers = Numbers()
    return [record(each, numbers) for each in admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)]


def record(sample: Sample, numbers: Numbers) -> dict[str, Any]:
    """One `Sample` as a dictionary."""
    return core(sample, numbers) | {
        "rollout_routed_experts": passes(sample),
        "rollout_indexer_topk": None,
        "opd_reverse_kl": None,
        "adapter": None,
        "reward_spec": None,
        "routing_key": sample.rollout,
    }
