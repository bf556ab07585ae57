"""A toy model of two layers over a small real tokenizer, an environment with a reward that it can learn, and TRL's real
trainer around them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rollbook.envs import Environment, StepResult
from rollbook.run.doors.trl import RolloutFunc, rollout_reward
from rollbook.trace import Ending, Message, Reason, Role, RolloutFailure, Task, Trace
from tests.render.families import tokenizer_json
from tests.rollout.made import SMOLLM

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tokenizers import Tokenizer
    from trl import GRPOConfig, GRPOTrainer

VOCABULARY = 405
"""As many as the tokenizer knows."""
SAID = (64, 65)
"""Two letters."""
LIKED = frozenset(SAID[:1])


class Letters(Environment):
    """Two turns; the reward is the share of turns that are a liked letter."""

    lost: int = 0
    """So many of the next rollouts lose their engine's host behind the first turn."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"letters-{index}", prompt=f"Say {index}.") for index in range(count)]

    async def setup(self, task: Task) -> str | Sequence[Message]:
        self.steps = 0
        return task.messages()

    async def step(self, reply: object) -> StepResult:
        self.steps += 1
        if self.steps == 2:
            return StepResult(ending=Ending(Reason.FINAL_ANSWER))
        if Letters.lost:
            Letters.lost -= 1
            raise RolloutFailure(Reason.SANDBOX_LOST, "gone")
        return StepResult("Again.")

    async def score(self, trace: Trace) -> float:
        said = [int(trace.graph[node].sampled_ids[0]) for node in trace.policy_nodes]
        return sum(number in LIKED for number in said) / len(said)


def model(seed: int = 0) -> LlamaForCausalLM:
    """A model whose turns are one of `SAID`, each as often as the others, and the end of the turn."""
    made = untaught(seed)
    made.load_state_dict(_taught(seed))
    return made


@cache
def _taught(seed: int) -> dict[str, torch.Tensor]:
    made = untaught(seed)
    optimizer = torch.optim.Adam(made.parameters(), lr=1e-2)
    for _ in range(50):
        ids = torch.tensor([_talk() for _ in range(16)])
        said = torch.isin(ids, torch.tensor([*SAID, SMOLLM.stop]))
        made(input_ids=ids, labels=ids.where(said, -100)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return made.state_dict()


def _talk() -> list[int]:
    start = SMOLLM.renderer.open([Message(role=Role.USER, content="Say 1.")], ()).token_ids.tolist()
    again = SMOLLM.renderer.extend(SMOLLM.stop, [Message(role=Role.USER, content="Again.")], ()).token_ids.tolist()
    first, second = (SAID[index] for index in torch.randint(len(SAID), (2,)))
    return [*start, first, SMOLLM.stop, *again, second, SMOLLM.stop]


def untaught(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=SMOLLM.stop,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer.from_str(tokenizer_json(marked=False).decode())
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def trainer(rollouts: RolloutFunc, policy: Any, out: Path, *, steps: int, group: int = 8, **more: Any) -> GRPOTrainer:
    given = {
        "output_dir": str(out),
        "use_cpu": True,
        "per_device_train_batch_size": group,
        "num_generations": group,
        "max_steps": steps,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "temperature": 1.0,
        "beta": 0.0,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        **more,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GRPOTrainer(
            policy,
            rollout_reward,
            GRPOConfig(**given),
            train_dataset=Dataset.from_list(rollouts.rows()),
            processing_class=tokenizer(),
            rollout_func=rollouts,
        )
