"""prime-rl: `TrainingSample` over its own wire, its packing into micro batches, and its default loss.

Its packages import servers and configurations when they are opened, so its modules are loaded one by one.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from rollbook.export.doors import prime_rl
from rollbook.trace.sample import Sample
from tests.slow.trainers.recorder import need_source
from tests.slow.trainers.toy import LINEAR, Table, made, token_logprobs

SOURCE = need_source("prime_rl")


def module(name: str, **fields: Any) -> ModuleType:
    """A stand-in for a package, or for what a module takes names from."""
    made_module = ModuleType(name)
    vars(made_module).update({"__path__": [], **fields})
    sys.modules[name] = made_module
    return made_module


def load(name: str, path: str) -> Any:
    """One module of prime-rl, from its source."""
    spec = importlib.util.spec_from_file_location(name, Path(SOURCE) / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


for package in (
    "prime_rl",
    "prime_rl.transports",
    "prime_rl.transports.rollouts",
    "prime_rl.configs",
    "prime_rl.utils",
):
    module(package)
module("prime_rl.configs.trainer", CustomLossConfig=Any, DefaultLossConfig=Any, IPOLossConfig=Any, LossConfig=Any)
module("prime_rl.utils.utils", import_object=None)
types = load("prime_rl.transports.rollouts.types", "src/prime_rl/transports/rollouts/types.py")
batching = load("prime_rl_batch", "src/prime_rl/trainer/batch.py")
losses = load("prime_rl_loss", "src/prime_rl/trainer/rl/loss.py")


def training_samples(samples: list[Sample]) -> list[Any]:
    found: list[Any] = []
    for record in prime_rl.records(samples, env_name="quiz"):
        experts = record["routed_experts"]
        routed = None if experts is None else types.RoutedExperts(**experts)
        found.append(types.TrainingSample(**{**record, "routed_experts": routed}))
    return found


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_a_sample_survives_its_wire(name: str) -> None:
    samples = made(name)
    for sample, each in zip(samples, training_samples(samples), strict=True):
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=types.TrainingSample)
        assert again == each
        assert again.token_ids == sample.token_ids.tolist()
        assert again.mask == sample.loss_mask.tolist()
        assert np.array_equal(np.float32(again.logprobs)[sample.loss_mask], sample.logprobs[sample.loss_mask])


def micro(sample: Any) -> Any:
    return batching.prepare_sample(sample, seq_len=64)


def test_a_micro_batch_holds_the_sample_token_for_token() -> None:
    samples = made(*LINEAR)
    for sample, each in zip(samples, training_samples(samples), strict=True):
        batch = micro(each)
        assert batch.input_ids == sample.token_ids.tolist()
        assert batch.loss_mask == sample.loss_mask.tolist()
        assert batch.advantages == (sample.loss_mask * np.float32(sample.advantage or 0.0)).tolist()
        assert batch.temperatures == [1.0] * len(sample)


def terms(samples: list[Sample]) -> dict[str, list[torch.Tensor]]:
    """What the loss takes of each row; the logprobs are the table's, after prime-rl's own shift."""
    batches = [micro(each) for each in training_samples(samples)]
    found: dict[str, list[torch.Tensor]] = {"trainer": [], "behaviour": [], "advantages": [], "mask": []}
    for batch in batches:
        ids = torch.tensor([batch.input_ids])
        last = torch.zeros(1, 1)
        shifted = torch.cat([token_logprobs(Table(), ids), last], dim=1)  # of the next token, as the model gives them
        found["trainer"].append(losses.shift_tensor_right(shifted)[0].detach().requires_grad_())
        found["behaviour"].append(torch.tensor(batch.inference_logprobs))
        found["advantages"].append(torch.tensor(batch.advantages))
        found["mask"].append(torch.tensor(batch.loss_mask))
    return found


def test_recomputed_logprobs_after_prime_rls_own_shift_are_the_behaviours() -> None:
    found = terms(made(*LINEAR))
    for trainer, behaviour, mask in zip(found["trainer"], found["behaviour"], found["mask"], strict=True):
        assert (trainer - behaviour)[mask].abs().max() < 1e-5


def test_masked_tokens_have_exactly_no_gradient_in_its_loss_and_an_attempt_weighs_by_its_tokens() -> None:
    samples = made(*LINEAR, "three_branches")
    found = terms(samples)
    config = SimpleNamespace(dppo_mask_high=1.0, dppo_mask_low=1.0, adv_tau=1.0, kl_tau=0.0)
    loss, _ = losses.compute_loss(
        trainer_logprobs=found["trainer"],
        inference_logprobs=found["behaviour"],
        ref_logprobs=None,
        advantages=found["advantages"],
        loss_mask=found["mask"],
        rl_weights=None,
        ce_weights=None,
        ref_kl_weights=None,
        rl_loss_fn=lambda inputs: losses.default_loss_fn(inputs, config),
        rl_scale=int(sum(int(mask.sum()) for mask in found["mask"])),
        ce_scale=1,
        ref_kl_scale=1,
    )
    loss.backward()
    total = sum(int(mask.sum()) for mask in found["mask"])
    for sample, trainer, mask in zip(samples, found["trainer"], found["mask"], strict=True):
        assert trainer.grad is not None
        assert not trainer.grad[~mask].any()
        want = -float(sample.advantage or 0.0) / total
        assert torch.allclose(trainer.grad[mask], torch.full((int(mask.sum()),), want), atol=1e-6)
