"""strands-env over strands-sglang: its own environment class, its agent loop, one async tool."""

import asyncio
import logging
from typing import Any

from measuring import Done, Work, measure, read_work, report
from strands import tool
from strands_env.core import Environment, Task, TerminationReason
from strands_env.core.models import sglang_model_factory
from strands_sglang import SGLangClient
from transformers import AutoTokenizer


def shell(results: list[str], first: int) -> Any:
    """One tool that gives source text back at once."""
    at = first

    @tool
    async def read(path: str, line: int = 1) -> str:
        """Read a file from a line on.

        Args:
            path: The file's path.
            line: The first line to read.
        """
        nonlocal at
        at += 1
        return results[at % len(results)]

    return read


class Shell(Environment):
    """With one tool."""

    def __init__(self, read: Any, **config: Any) -> None:
        super().__init__(**config)
        self._read = read

    def get_tools(self) -> list[Any]:
        return [self._read]


async def run(work: Work) -> dict[str, Any]:
    """All batches."""
    client = SGLangClient(base_url=work.url, max_retries=0)
    factory = sglang_model_factory(
        client=client,
        tokenizer=AutoTokenizer.from_pretrained(work.tokenizer),
        sampling_params={"max_new_tokens": 2048, "temperature": 1.0},
    )

    async def one(number: int, done: Done) -> None:
        env = Shell(shell(work.results, number), model_factory=factory, max_tool_iters=work.turns)
        result = await env.rollout(Task(message=work.prompt))
        if result.termination_reason is not TerminationReason.MAX_TOOL_ITERATIONS_REACHED:
            raise RuntimeError(f"ended by {result.termination_reason}")
        told, rollout = result.metrics, result.rollout
        sampled = sum(rollout.loss_mask)
        if len(rollout.logprobs) != len(rollout.token_ids):
            raise RuntimeError("not every token has its logprob")
        done.add(_requests(result.messages), told["tool_calls"], sampled, _prompts(rollout.loss_mask))

    async with client:
        return await measure(work, one)


def _requests(messages: list[Any]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def _prompts(mask: list[Any]) -> int:
    """Tokens of all prompts: each begins to be answered where a sampled token stands behind one that is not."""
    return sum(at for at in range(1, len(mask)) if mask[at] and not mask[at - 1])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    report(
        asyncio.run(run(read_work())), ("strands-env", "strands-sglang", "strands-agents", "transformers", "aiohttp")
    )
