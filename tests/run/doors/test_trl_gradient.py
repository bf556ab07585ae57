"""What TRL's own loss makes of our rows: masked tokens, lost members, and logprobs after its own shift."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.export.doors import trl as door
from rollbook.rollout import Limits, RolloutSettings
from rollbook.run.doors.trl import RolloutFunc
from rollbook.trace import MemorySink
from tests.rollout.made import SMOLLM
from tests.run.doors import trl_made as made


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rolled(model: Any, count: int) -> dict[str, list[Any]]:
    """Columns of so many rollouts of one task."""
    trainer: Any = SimpleNamespace(
        model=model,
        args=SimpleNamespace(temperature=1.0),
        tools=None,
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0, unwrap_model=lambda wrapped: wrapped),
    )
    settings = RolloutSettings(limits=Limits(max_generation=8))
    rollouts = RolloutFunc(made.Letters, made.Letters().tasks(1), SMOLLM.renderer, settings=settings, sink=MemorySink())
    columns = rollouts(["Say 0."] * count, trainer)
    rollouts.close()
    return columns


def taken(columns: dict[str, list[Any]], places: Sequence[int]) -> dict[str, list[Any]]:
    return {name: [column[place] for place in places] for name, column in columns.items()}


class Learned:
    """One pass of TRL's real loss over given columns."""

    def __init__(self, columns: dict[str, list[Any]], out: Path) -> None:
        size = len(columns["rollout"])
        dataset = RolloutFunc(made.Letters, made.Letters().tasks(1), SMOLLM.renderer)
        self.model = made.model()
        trainer = made.trainer(dataset, self.model, out, steps=1, group=size)
        dataset.close()
        trainer.rollout_func = lambda prompts, _: columns
        trainer.current_gradient_accumulation_steps = 1
        self.model.train()
        self.inputs = trainer._generate_and_score_completions([{"prompt": "Say 0."} for _ in range(size)])
        kept: list[torch.Tensor] = []

        def keep(_module: Any, _given: Any, output: torch.Tensor) -> None:
            output.retain_grad()
            kept.append(output)

        hook = self.model.model.norm.register_forward_hook(keep)
        trainer.compute_loss(self.model, self.inputs).backward()
        hook.remove()
        (hidden,) = kept
        before = slice(-self.inputs["completion_ids"].shape[1] - 1, -1)
        self.hidden = hidden[:, before]
        """What the last layer gives before each token of the completion, and so what predicts it: nothing else of the
        model comes behind it but the head."""
        assert hidden.grad is not None
        self.pull = hidden.grad[:, before].abs().sum(-1).numpy()
        """How much the loss pulls at each token of the completion."""
        self.elsewhere = float(hidden.grad.abs().sum()) - float(self.pull.sum())
        self.gradient = torch.cat([each.grad.flatten() for each in self.model.parameters()]).numpy()


def test_tokens_out_of_the_loss_have_exactly_zero_gradient_and_the_others_have_not(tmp_path: Path) -> None:
    columns = rolled(made.model(), 6)
    rewards = [1.0, 0.0, 1.0, 0.0, 0.5, 0.25]
    done = Learned({**columns, "reward": rewards}, tmp_path)
    assert abs(done.elsewhere) < 1e-6
    for place, mask in enumerate(columns["env_mask"]):
        trains = np.array(mask, bool)
        assert not done.pull[place, : len(mask)][~trains].any()
        assert not done.pull[place, len(mask) :].any()
        assert 0 < trains.sum() < len(trains)
        if done.inputs["advantages"][place] != 0:
            assert done.pull[place, : len(mask)][trains].all()


def test_a_member_without_a_vote_changes_neither_advantages_nor_gradient(tmp_path: Path) -> None:
    columns = {**rolled(made.model(), 5), "reward": [1.0, 0.0, 0.5, 0.25, 1.0]}
    four = taken(columns, range(4))
    ids = np.array([*columns["prompt_ids"][4], *columns["completion_ids"][4]], np.int32)
    lost = door.without_vote("lost", ids, len(columns["prompt_ids"][4]))
    beside = {name: [*column, lost[name]] for name, column in four.items()}
    alone, with_it = Learned(four, tmp_path / "a"), Learned(beside, tmp_path / "b")
    assert torch.equal(alone.inputs["advantages"], with_it.inputs["advantages"][:4])
    assert with_it.inputs["advantages"][4] == 0
    np.testing.assert_allclose(with_it.gradient, alone.gradient, rtol=1e-4, atol=1e-7)
    assert np.abs(alone.gradient).max() > 1e-3
    as_zero = Learned({**columns, "reward": [1.0, 0.0, 0.5, 0.25, 0.0]}, tmp_path / "c")
    assert np.abs(as_zero.gradient - alone.gradient).max() > 1e-3


def test_the_logprobs_after_trls_own_shift_are_those_of_the_rollout(tmp_path: Path) -> None:
    columns = {**rolled(made.model(), 4), "reward": [1.0, 0.0, 0.5, 0.25]}
    done = Learned(columns, tmp_path)
    spread = torch.log_softmax(done.model.lm_head(done.hidden.detach()), -1)
    spread = spread.gather(2, done.inputs["completion_ids"][..., None])[..., 0].detach()
    for place, mask in enumerate(columns["env_mask"]):
        trains = np.array(mask, bool)
        ours = np.array(columns["logprobs"][place])
        assert np.abs(spread[place, : len(mask)].numpy() - ours)[trains].max() < 1e-4
