"""``slime.pt``: real samples of slime, saved as slime saves them. Run with slime's checkout on the path and torch."""

from __future__ import annotations

import sys

import torch
from slime.utils.types import Sample

Status = Sample.Status


def one(index: int, group: int, response: str, reward: object, **fields: object) -> Sample:
    """A sample of one generation."""
    sample = Sample(group_index=group, index=index, prompt="What is 1 + 2?", label="3", tokens=[5, 6, 7])
    finish = fields.pop("finish", "stop")
    meta = {"finish_reason": {"type": finish}, "weight_version": "4", "prompt_tokens": 3, "cached_tokens": 0}
    ids = [10 + index, 2]
    sample.append_response_tokens(tokens=ids, log_probs=[-0.25, -1.5], meta_info=meta, text=response)
    sample.reward = reward
    for name, value in fields.items():
        setattr(sample, name, value)
    return sample


samples = [one(0, 0, "3", 1.0), one(1, 0, "4", 0.0), one(2, 0, "It is", 0.0, finish="length")]
# a tool call: the tool's tokens are masked, then the policy goes on
tool = one(3, 1, "call ", {"format": 1.0, "answer": 0.5}, label=None)
tool.append_response_tokens(tokens=[20, 21, 22], trainable=False, text="result ")
tool.append_response_tokens(
    tokens=[30, 2],
    log_probs=[-0.5, -0.125],
    meta_info={"finish_reason": {"type": "stop"}, "weight_version": "5"},
    text="3",
)
samples.append(tool)
# two branches of one rollout, and what slime gave up or took out
samples += [one(4, 1, "a", 0.5, rollout_id=40), one(5, 1, "b", 0.5, rollout_id=40)]
samples += [one(6, 2, "5", None, finish="abort"), one(7, 2, "6", 0.0, remove_sample=True)]
samples[0].tokens = torch.tensor(samples[0].tokens)
samples[0].rollout_log_probs = torch.tensor(samples[0].rollout_log_probs)
torch.save({"rollout_id": 0, "samples": [sample.to_dict() for sample in samples]}, sys.argv[1])
