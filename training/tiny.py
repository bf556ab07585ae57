"""Make the model `tiny` from nothing: ``python -m training.tiny OUT [--steps N] [--seed N] [--threads N]``.

Chats are made first and the vocabulary is learnt from them; then a Llama of about a million weights learns to say what
the assistant says in them (`training.chats`). OUT gets ``tiny.gguf`` and ``training.json``, the training's figures.
The seed decides everything: the same torch on the same processor with as many threads gives the same bytes. On another
one the weights differ.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rollbook.models import load_gguf
from rollbook.models.gguf_tensors import write_gguf
from rollbook.render import ChatRenderer, RendererConfig
from training.chats import Chat, Chats
from training.head import SHAPE, Shape, write_head
from training.vocabulary import Vocabulary, learn, single_bytes

__all__ = ["main", "make"]

SEED, STEPS, BATCH, THREADS = 5, 200, 32, 1
LESSONS = 0.5
"""The share of the steps that goes to the first lessons."""
DIFFERENT = 1000
"""First lessons that are made; they come round again."""
RATE, WARMUP, LAST_RATE = 3e-3, 20, 0.05
"""Learning rate: its largest, the steps up to it, and what share of it is left at the end; it falls once the lessons
are over."""
LAST = 20
"""Steps between two savings; the loss that is told is the mean over as many."""
TOGETHER = 16
"""Chats in one pass through the network."""
CHATS_FOR_WORDS = 600
"""Chats that the vocabulary is learnt from."""
TEMPLATE = Path(__file__).with_name("template.jinja")


def make(out: Path, *, seed: int = SEED, steps: int = STEPS, threads: int = THREADS) -> dict[str, Any]:
    """Train and write ``tiny.gguf`` into `out`; the figures."""
    started, spent = time.perf_counter(), _cpu()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        head, vocabulary = _head(Path(scratch), seed)
        chats = asyncio.run(_course(_stream(head, seed), steps))
        model = LlamaForCausalLM(_config(vocabulary, SHAPE))
        for losses in _train(model, chats, steps):
            tensors = {name: array.detach().numpy() for name, array in model.named_parameters()}
            write_gguf(out / "tiny.gguf", head, tensors)
            print(f"step {len(losses)}: loss {losses[-1]:.3f}, {_cpu():.0f} CPU s", file=sys.stderr, flush=True)
    return {
        "seed": seed,
        "steps": steps,
        "batch": BATCH,
        "weights": sum(array.size for array in tensors.values()),
        "tokens": len(vocabulary.tokens),
        "tokens_seen": sum(len(chat.token_ids) for chat in chats),
        "loss": round(sum(losses[-LAST:]) / len(losses[-LAST:]), 4),
        "torch": torch.__version__,
        "threads": threads,
        "cpu_seconds": round(_cpu() - spent, 1),
        "wall_seconds": round(time.perf_counter() - started, 1),
        "sha256": hashlib.sha256((out / "tiny.gguf").read_bytes()).hexdigest(),
    }


def _head(scratch: Path, seed: int) -> tuple[Path, Vocabulary]:
    """The file that the weights are put behind, and its vocabulary, which is learnt from chats in single bytes."""
    template = TEMPLATE.read_text().rstrip("\n")
    plain, whole = scratch / "bytes.gguf", scratch / "head.gguf"
    write_head(plain, single_bytes(), template)
    chats = asyncio.run(_chats(_stream(plain, seed), CHATS_FOR_WORDS))
    renderer = _renderer(plain)
    vocabulary = learn(renderer.decode(np.array(chat.token_ids, np.int32)) for chat in chats)
    write_head(whole, vocabulary, template)
    return whole, vocabulary


def _renderer(head: Path) -> ChatRenderer:
    files = load_gguf(head, head.parent)
    config = RendererConfig(name="tiny", stop_ids=files.stop_ids, special_tokens=files.special_tokens)
    return ChatRenderer.build(files.tokenizer_json, files.template or "", config)


def _stream(head: Path, seed: int) -> Chats:
    tokenizer = Tokenizer.from_buffer(load_gguf(head, head.parent).tokenizer_json)
    return Chats(_renderer(head), tokenizer, seed)


async def _course(stream: Chats, steps: int) -> list[Chat]:
    """The chats of all steps in their order."""
    first = int(steps * LESSONS) * BATCH
    lessons = [await stream.lesson() for _ in range(DIFFERENT)]
    return [*(lessons[number % DIFFERENT] for number in range(first)), *(await _chats(stream, steps * BATCH - first))]


async def _chats(stream: Chats, count: int) -> list[Chat]:
    return [await stream.next() for _ in range(count)]


def _config(vocabulary: Vocabulary, shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(vocabulary.tokens),
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.epsilon,
        rope_theta=shape.rope_base,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=vocabulary.end_id,
        pad_token_id=0,
        attention_dropout=0.0,
        initializer_range=0.05,
    )


def _train(model: LlamaForCausalLM, chats: list[Chat], steps: int) -> Iterator[list[float]]:
    """Learn `chats` in their order; now and then, and at the end, the losses so far (nats a token)."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    losses: list[float] = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = _rate(step, steps)
        optimiser.zero_grad(set_to_none=True)
        losses.append(_backward(model, chats[step * BATCH : (step + 1) * BATCH]))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % LAST == 0 or step + 1 == steps:
            yield losses


def _rate(step: int, steps: int) -> float:
    over = max(step / steps - LESSONS, 0.0) / (1 - LESSONS)
    return RATE * min((step + 1) / WARMUP, 1.0) * (1 - (1 - LAST_RATE) * over)


def _backward(model: LlamaForCausalLM, batch: list[Chat]) -> float:
    """Add the gradient of the batch's mean loss over said tokens; the loss. Chats of like length go side by side."""
    rows = sorted(batch, key=lambda chat: len(chat.token_ids))
    count, total = sum(sum(row.said) for row in rows), 0.0
    for start in range(0, len(rows), TOGETHER):
        ids, said = _padded(rows[start : start + TOGETHER])
        logits = model(ids, use_cache=False).logits[:, :-1]
        targets = ids[:, 1:].masked_fill(~said[:, 1:], -100)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / count
        loss.backward()
        total += loss.item()
    return total


def _padded(rows: list[Chat]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, shape (rows, longest); padded at the end, where nothing is learnt and nothing looks."""
    longest = max(len(row.token_ids) for row in rows)
    ids, said = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.bool)
    for place, row in enumerate(rows):
        ids[place, : len(row.token_ids)] = torch.tensor(row.token_ids)
        said[place, : len(row.said)] = torch.tensor(row.said)
    return ids, said


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m training.tiny", description="Make the model tiny from nothing.")
    parser.add_argument("out", type=Path, help="the folder that gets tiny.gguf and training.json")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    figures = make(given.out, seed=given.seed, steps=given.steps, threads=given.threads)
    (given.out / "training.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
