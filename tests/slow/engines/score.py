"""Logprobs of given tokens by a float32 forward pass of torch: a program of its own, for the engines' environment.

``python score.py HF_FOLDER`` reads ``[[prompt ids, reply ids], ...]`` from stdin and prints the logprobs of each.
"""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main(folder: str) -> None:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    scored = []
    with torch.no_grad():
        for prompt, reply in json.load(sys.stdin):
            logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
            chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(reply)[:, None])
            scored.append(chosen[:, 0].tolist())
    json.dump(scored, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
