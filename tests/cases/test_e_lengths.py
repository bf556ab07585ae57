"""Lengths: what the policy said is counted by its own tokens, and padding is known from lengths alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.trace import (
    ROOT,
    Message,
    Origin,
    Role,
    RunKind,
    Sample,
    Trace,
    compress_runs,
    make_runs,
    samples,
    summarise,
)
from rollbook.trace.packing import attention_mask, pack, position_ids, segment_starts
from tests.cases.case import add_turn, add_user, head, report


def from_mask(ids: list[int], mask: list[int]) -> Trace:
    """Turns where the mask is 1, observations between them."""
    trace, place = Trace(head()), 0
    for sampled, count in compress_runs(mask).tolist():
        piece = ids[place : place + count]
        if not sampled:
            add_user(trace, "seen", piece, role=Role.TOOL if place else Role.USER)
        elif place:
            add_turn(trace, "said", piece)
        else:
            trace.graph.add(
                Message(role=Role.ASSISTANT),
                parent=ROOT,
                origin=Origin.POLICY,
                token_ids=np.array(piece, np.int32),
                runs=make_runs((RunKind.SAMPLED, count)),
                logprobs=np.full(count, -0.5, np.float32),
            )
        place += count
    return trace


def span(sample: Sample) -> int:
    """From the first trained token to the last one."""
    places = np.flatnonzero(sample.loss_mask)
    return int(places[-1] - places[0] + 1)


@report("E01")
def test_the_length_of_what_the_policy_said_leaves_tool_output_out(given: dict[str, Any]) -> None:
    trace = from_mask(list(range(len(given["mask"]))), given["mask"])
    (sample,) = samples(trace)
    assert sample.loss_mask.astype(int).tolist() == given["mask"]
    assert (sample.trained, span(sample)) == (9, 12)
    assert (summarise(trace).sampled, sample.rollout_trained) == (9, 9)


@examples(st.lists(st.booleans(), min_size=1, max_size=30).map(lambda mask: [0, *map(int, mask), 1]))
@settings(max_examples=50, deadline=None)
def test_the_length_is_the_sum_of_any_mask(mask: list[int]) -> None:
    (sample,) = samples(from_mask(list(range(len(mask))), mask))
    assert sample.trained == sum(mask) == summarise(from_mask(mask, mask)).sampled


@report("E02")
def test_attention_is_not_the_loss_mask_and_padding_is_not_found_by_its_id(given: dict[str, Any]) -> None:
    length, width = given["true_length"], len(given["ids"])
    (sample,) = samples(from_mask(given["ids"][:length], given["loss_mask"][:length]))
    assert sample.token_ids.tolist() == given["ids"][:length]
    mask = attention_mask([len(sample)], width)[0]
    assert np.flatnonzero(mask).tolist() == list(range(7))
    ends = [place for place, token in enumerate(sample.token_ids.tolist()) if token == given["eos_id"]]
    assert ends == [2, 6]
    assert sample.loss_mask[ends].all()
    assert sample.loss_mask.astype(int).tolist() == given["loss_mask"][:length]


@pytest.mark.parametrize("pad", [0, 2, 151_643])
def test_no_id_is_padding_by_itself(pad: int) -> None:
    ids = [pad, pad, 7, pad]
    (sample,) = samples(from_mask(ids, [0, 1, 1, 1]))
    assert attention_mask([len(sample)], 6).tolist() == [[True] * 4 + [False] * 2]
    assert sample.loss_mask.tolist() == [False, True, True, True]
    assert pack([len(sample)], 4) == [[0]]
    assert position_ids([len(sample), 2]).tolist() == [0, 1, 2, 3, 0, 1]
    assert segment_starts([len(sample), 2]).tolist() == [0, 4, 6]
