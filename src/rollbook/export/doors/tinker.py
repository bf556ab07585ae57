"""Tinker: the fields of `Datum`, as the cookbook's `trajectory_to_data` makes them, one for each branch.

Convention S: the input drops the last token and the targets the first, so entry t of `target_tokens`, `logprobs`,
`advantages` and `mask` is about token t + 1. Off the loss all but the targets are 0. Advantages are ours; Tinker's
losses sum over the tokens, so an attempt weighs by its tokens however it branches. The advantage alone takes a token
out of the loss, so `mask` says nothing more, and servers that speak Tinker's protocol and refuse the key can do without
it. The cookbook itself takes the mask out before it asks for a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.export.doors.admission import admitted, loss_logprobs, token_advantages
from rollbook.export.doors.door import Row
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(
    samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False, with_mask: bool = True
) -> list[dict[str, Any]]:
    """``{"model_input": ids, "loss_fn_inputs": arrays}`` for each sample. `with_mask`: False: leave the mask out."""
    return [record(each, with_mask) for each in admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)]


def record(sample: Sample, with_mask: bool = True) -> dict[str, Any]:
    """One `Datum`: `model_input` for `ModelInput.from_ints`."""
    inputs = {
        "target_tokens": sample.token_ids[1:].astype(np.int64),
        "logprobs": loss_logprobs(sample)[1:],
        "advantages": token_advantages(sample)[1:],
    }
    if with_mask:
        inputs["mask"] = sample.loss_mask[1:].astype(np.float32)
    return {"model_input": sample.token_ids[:-1].tolist(), "loss_fn_inputs": inputs}


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What Tinker reads."""
    return [_row(each["model_input"], each["loss_fn_inputs"]) for each in records]


def _row(given: Sequence[int], inputs: Mapping[str, Any]) -> Row:
    trains = inputs["mask"] if "mask" in inputs else inputs["advantages"]
    return Row(
        token_ids=np.concatenate([np.array(given[:1], np.int64), inputs["target_tokens"]]),
        trains=np.concatenate([[False], trains != 0]),
        logprobs=np.concatenate([np.zeros(1, np.float32), inputs["logprobs"]]),
        advantages=np.concatenate([np.zeros(1, np.float32), inputs["advantages"]]),
    )
