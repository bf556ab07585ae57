"""NeMo-RL: its flattening of message logs, and its clipped policy-gradient loss, from its public source."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.export.doors import nemo_rl, nemo_rl_batch
from rollbook.trace.sample import Sample
from tests.slow.trainers.absent import stand_in
from tests.slow.trainers.recorder import need_source
from tests.slow.trainers.toy import LINEAR, Table, made, token_logprobs

need_source("nemo_rl")
stand_in("decord", "vllm", "megatron", "nemo_automodel", "zmq", "pynvml", "nvidia_resiliency_ext", "uvicorn", "fastapi")
# it reports to services; the loss takes no more of it than its name
logger: Any = ModuleType("nemo_rl.utils.logger")
logger.Logger = object
sys.modules["nemo_rl.utils.logger"] = logger

from nemo_rl.algorithms.loss.loss_functions import ClippedPGLossConfig, ClippedPGLossFn
from nemo_rl.data.llm_message_utils import batched_message_log_to_flat_message
from nemo_rl.distributed.batched_data_dict import BatchedDataDict


def logs(samples: list[Sample]) -> list[list[dict[str, object]]]:
    """Message logs as tensors, with what its trainer adds: a mask of each message, and zeros for absent logprobs."""
    found: list[list[dict[str, object]]] = []
    for record in nemo_rl.records(samples):
        log: list[dict[str, object]] = []
        for message in record["message_log"]:
            ids = torch.from_numpy(message["token_ids"].copy())
            trains = message["role"] == "assistant" and "generation_logprobs" in message
            given = message.get("generation_logprobs", np.zeros(len(ids), np.float32))
            log.append(
                {
                    "role": message["role"],
                    "content": "",
                    "token_ids": ids,
                    "token_loss_mask": torch.full_like(ids, int(trains)),
                    "generation_logprobs": torch.from_numpy(given.copy()),
                }
            )
        found.append(log)
    return found


def batch(samples: list[Sample]) -> BatchedDataDict:
    return BatchedDataDict({name: torch.from_numpy(array) for name, array in nemo_rl_batch.records(samples).items()})


def test_flattened_message_logs_are_our_batch() -> None:
    samples = made(*LINEAR)
    flat, lengths = batched_message_log_to_flat_message(logs(samples), pad_value_dict={"token_ids": 0})
    ours = batch(samples)
    assert lengths.tolist() == ours["input_lengths"].tolist()
    assert torch.equal(flat["token_ids"], ours["input_ids"])
    assert torch.equal(flat["token_loss_mask"], ours["token_mask"])
    assert torch.equal(flat["generation_logprobs"], ours["generation_logprobs"])


@pytest.mark.parametrize("names", [LINEAR, ("one_turn", "three_branches")])
def test_masked_tokens_have_exactly_no_gradient_and_logprobs_fit_after_its_own_shift(names: tuple[str, ...]) -> None:
    samples = made(*names)
    data = batch(samples)
    data["prev_logprobs"] = data["generation_logprobs"]
    found = token_logprobs(Table(), data["input_ids"]).detach().requires_grad_()
    mask = data["token_mask"][:, 1:].bool()
    assert (found - data["generation_logprobs"][:, 1:])[mask].abs().max() < 1e-5
    loss_fn = ClippedPGLossFn(ClippedPGLossConfig(reference_policy_kl_penalty=0.0))
    total = mask.sum()
    loss, _ = loss_fn(found, data, torch.tensor(float(len(samples))), total)
    loss.backward()
    assert found.grad is not None
    assert not found.grad[~mask].any()
    want = -data["advantages"][:, 1:] / total
    assert torch.allclose(found.grad[mask], want[mask], atol=1e-5)
