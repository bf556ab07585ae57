"""verifiers: a taskset, an in-process harness with one tool behind its interception server, and its train client.

The train client renders with ``renderers`` and asks vLLM's ``/inference/v1/generate``, so this is the path that has
tokens. A harness may run in the process (its documentation says so), which is the cheapest: no program is started, and
the loop speaks to the interception server with plain `aiohttp`. Finished episodes are written as its eval runner does.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
from measuring import Done, Work, measure, read_work, report
from renderers.configs import Qwen3RendererConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.configs.taskset import TasksetConfig
from verifiers.v1.envs.single_agent import SingleAgentEnvConfig
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.task import Task, TaskData
from verifiers.v1.taskset import Taskset
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_environment
from verifiers.v1.utils.trace_store import append_episode

WORK: Work = read_work()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file from a line on.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "the file's path."},
                    "line": {"type": "integer", "default": 1, "description": "the first line to read."},
                },
                "required": ["path"],
            },
        },
    }
]


class BenchTask(Task[TaskData]):
    """Nothing of its own."""


class BenchTaskset(Taskset[BenchTask, TasksetConfig]):
    """One task."""

    def load(self) -> Iterable[BenchTask]:
        yield BenchTask(TaskData(prompt=WORK.prompt), self.config.task)


class BenchHarness(Harness[HarnessConfig]):
    """A chat loop with one tool that gives source text back at once."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    http: aiohttp.ClientSession
    first = 0
    calls = 0

    async def launch(
        self,
        ctx: ModelContext,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        at = BenchHarness.first
        BenchHarness.first += 1
        messages: list[dict[str, Any]] = [{"role": "user", "content": data.prompt}]
        headers = {"Authorization": f"Bearer {secret}"}
        for _ in range(WORK.turns):
            body = {"model": ctx.model, "messages": messages, "tools": TOOLS}
            async with self.http.post(f"{endpoint}/chat/completions", json=body, headers=headers) as reply:
                answer = await reply.json()
                if reply.status != 200:
                    raise RuntimeError(f"HTTP {reply.status}: {answer}")
            message = answer["choices"][0]["message"]
            messages.append(message)
            for call in message["tool_calls"]:
                json.loads(call["function"]["arguments"])
                at += 1
                BenchHarness.calls += 1
                result = WORK.results[at % len(WORK.results)]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return ProgramResult(0, "", "")


__all__ = ["BenchHarness", "BenchTaskset"]


async def run(work: Work) -> dict[str, Any]:
    """All batches."""
    taskset: dict[str, Any] = {"id": "verifiers_side"}
    agent: dict[str, Any] = {"harness": {"id": "verifiers_side"}, "runtime": {"type": "subprocess"}}
    env = load_environment(SingleAgentEnvConfig.model_validate({"taskset": taskset, "agent": agent}))
    client = TrainClientConfig(
        base_url=f"{work.url}/v1", renderer=Qwen3RendererConfig(), renderer_model_name=work.tokenizer
    )
    ctx = ModelContext(model="fake", client=client, sampling=SamplingConfig(temperature=1.0, max_tokens=2048))
    (task,) = list(env.taskset)
    out, lock = Path(work.scratch), asyncio.Lock()

    async def stored(episode: Any) -> None:
        await append_episode(out, episode, lock)

    async def one(number: int, done: Done) -> None:
        (slot,) = env.slots(task)
        episode = await env.run_slot(slot, ctx, None, stored)
        (trace,) = episode.traces
        if not episode.ok:
            raise RuntimeError(f"failed: {episode.errors} {trace.errors}")
        calls = sum(len(message.tool_calls or ()) for message in trace.assistant_messages)
        ids, mask = trace.branches[-1].token_ids, trace.branches[-1].sampled_mask
        prompts = sum(at for at in range(1, len(mask)) if mask[at] and not mask[at - 1])
        if trace.num_branches != 1 or len(ids) != len(mask):
            raise RuntimeError("the rollout is no single branch with tokens")
        done.add(trace.num_turns, calls, sum(mask), prompts)

    connector = aiohttp.TCPConnector(limit=work.at_once)
    async with aiohttp.ClientSession(connector=connector) as BenchHarness.http, env.serving():
        return await measure(work, one)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.modules["verifiers_side"] = sys.modules["__main__"]
    report(asyncio.run(run(WORK)), ("verifiers", "renderers", "transformers", "openai", "aiohttp"))
