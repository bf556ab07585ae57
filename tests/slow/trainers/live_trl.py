"""TRL: `RolloutSample` and the packing of its asynchronous trainer. (Its synchronous trainer runs in `make test`.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import TreeRow

from rollbook.export.doors import trl_async
from rollbook.trace.sample import Sample
from tests.slow.trainers.toy import LINEAR, Table, made


def rows(samples: list[Sample]) -> list[RolloutSample]:
    return [RolloutSample(**record) for record in trl_async.records(samples)]


def packed(samples: list[Sample]) -> dict[str, torch.Tensor]:
    """As the trainer's queue hands rows on, its planner packs and its collator stacks them."""
    row = TreeRow()
    for each in rows(samples):
        names = ("input_ids", "completion_mask", "old_log_probs", "advantage", "group_id", "metrics")
        row.add({name: vars_of(each)[name] for name in names})
    return DataCollatorForRollout(pad_token_id=0).torch_call([[row]])


def vars_of(row: RolloutSample) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RolloutSample.__dataclass_fields__}


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_a_row_is_the_sample(name: str) -> None:
    samples = made(name)
    for sample, row in zip(samples, rows(samples), strict=True):
        assert row.input_ids.tolist() == sample.token_ids.tolist()
        assert row.completion_mask.astype(bool).tolist() == sample.loss_mask.tolist()
        assert row.advantage == sample.advantage


def test_each_trained_token_is_scored_off_the_one_before_it_with_its_own_logprob() -> None:
    samples = made(*LINEAR, "three_branches")
    batch = packed(samples)
    place, terms = 0, batch["token_index"].shape[1]
    for number, sample in enumerate(samples):
        for token in np.flatnonzero(sample.loss_mask).tolist():
            assert int(batch["segment_id"][0, place]) == number
            at = int(batch["token_index"][0, place])
            assert int(batch["input_ids"][0, at]) == sample.token_ids[token - 1]
            assert float(batch["old_log_probs"][0, place]) == sample.logprobs[token]
            assert float(batch["advantages"][0, place]) == np.float32(sample.advantage or 0.0)
            place += 1
    assert place == terms == int(batch["global_n_tokens"][0])


def test_the_loss_pulls_at_trained_tokens_alone_and_recomputed_logprobs_are_the_behaviours() -> None:
    """The trainer's own terms, over the table: its model needs a GPU kernel, its loss is this sum."""
    samples = made(*LINEAR)
    batch = packed(samples)
    model = Table()
    logits = model(batch["input_ids"][0])
    logits.retain_grad()
    targets = batch["shift_labels"][0].clamp(min=0)
    logprobs = torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0][batch["token_index"][0]]
    assert (logprobs - batch["old_log_probs"][0]).abs().max() < 1e-5
    ratio = (logprobs - batch["old_log_probs"][0]).exp()
    (-(ratio * batch["advantages"][0]).sum() / batch["global_n_tokens"][0]).backward()
    pulled = logits.grad.abs().sum(-1) != 0
    assert (pulled <= (batch["shift_labels"][0] != -100)).all()
    assert pulled.any()


def test_an_attempt_weighs_by_its_tokens_however_it_branches() -> None:
    samples = made("one_turn", "three_branches")
    batch = packed(samples)
    trained = sum(int(sample.loss_mask.sum()) for sample in samples)
    assert float(batch["global_n_tokens"][0]) == trained
    assert batch["token_index"].shape[1] == trained
