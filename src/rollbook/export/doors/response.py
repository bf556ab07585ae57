"""Convention R: a sample cut into its prompt and its response, as verl, slime, Miles, SkyRL and TRL take it.

The response begins with the first sampled token and goes on to the end, observations included; entry t of an array is
about token ``prompt_len + t``. Off the loss the mask is 0 and the logprob exactly 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.export.doors.admission import loss_logprobs
from rollbook.trace.sample import Sample

__all__ = ["Response", "full", "response", "version_runs"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Response:
    """One sample in convention R."""

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    """1: this token trains; one for each of `response_ids`."""
    logprobs: list[float]
    """Behaviour logprobs; one for each of `response_ids`."""


def response(sample: Sample) -> Response:
    """Cut a sample; raises `UsageError` where a token that trains has no logprob."""
    start = sample.prompt_len
    ids = sample.token_ids.tolist()
    return Response(
        prompt_ids=ids[:start],
        response_ids=ids[start:],
        mask=sample.loss_mask[start:].astype(np.int64).tolist(),
        logprobs=loss_logprobs(sample)[start:].tolist(),
    )


def full(prompt: int, given: Sequence[Any] | npt.NDArray[Any], kind: type[np.generic]) -> npt.NDArray[Any]:
    """An array of convention R as one of convention F: `prompt` zeros before it."""
    return np.concatenate([np.zeros(prompt, kind), np.asarray(given, kind)])


def version_runs(sample: Sample) -> list[str]:
    """The policy versions of the tokens that train, in their order, each run of equal ones once; none where the engine
    did not say."""
    found = sample.policy_version[sample.loss_mask]
    found = found[found >= 0]
    return [str(version) for version in found[np.flatnonzero(np.diff(found, prepend=-1))].tolist()]
