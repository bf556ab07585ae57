"""Rollbook: its own rollouts into a run folder, over the engine's dialect that the command line names."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from measuring import Done, Work, measure, read_work, report

from bench.turns import Shell
from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.policy.vllm import VllmPolicy
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings, head_for, run_rollout
from rollbook.store import RunWriter
from rollbook.trace import Reason, Task

CLIENTS = {"sglang": SglangPolicy, "vllm": VllmPolicy}


def build_renderer(folder: Path) -> ChatRenderer:
    """From the tokenizer's files."""
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    added = {entry["content"]: int(token) for token, entry in config["added_tokens_decoder"].items()}
    settings = RendererConfig(name="qwen3", stop_ids=frozenset({added["<|im_end|>"], added["<|endoftext|>"]}))
    return ChatRenderer.build((folder / "tokenizer.json").read_bytes(), config["chat_template"], settings)


async def run(work: Work, dialect: str) -> dict[str, Any]:
    """All batches."""
    renderer = build_renderer(Path(work.tokenizer))
    config = RemoteConfig(name="bench", address=EngineAddress(url=work.url), stop_ids=renderer.info.stop_ids)
    loaded = LoadedPolicy(CLIENTS[dialect](config), renderer)
    settings = RolloutSettings(limits=Limits(max_turns=work.turns, max_generation=2048))

    with RunWriter.create(Path(work.scratch) / "run") as writer:

        async def one(number: int, done: Done) -> None:
            env = Shell(work.results, number)
            head = head_for(env, Task(id="t", prompt=work.prompt), loaded, group=f"g{number}")
            trace = await run_rollout(env, head, loaded, settings, seed=number, sink=writer)
            if trace.ending is None or trace.ending.reason is not Reason.MAX_TURNS:
                raise RuntimeError(f"ended by {trace.ending}")
            calls = trace.calls
            results = sum(message.call_id is not None for message in (node.message for node in trace.graph))
            sampled, prompts = (
                sum(call.completion_tokens for call in calls),
                sum(call.prompt_tokens or 0 for call in calls),
            )
            done.add(len(calls), results, sampled, prompts)

        async with loaded:
            return await measure(work, one)


if __name__ == "__main__":
    report(asyncio.run(run(read_work(), sys.argv[2])), ("rollbook", "tokenizers", "msgspec", "aiohttp"))
