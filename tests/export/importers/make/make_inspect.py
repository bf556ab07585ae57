"""``inspect.json`` and ``inspect.eval``: real logs of Inspect AI. Run with inspect_ai 0.3.285."""

from __future__ import annotations

import sys

import inspect_ai
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool


@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        return str(x + y)

    return execute


def main(fmt):
    outs = [
        ModelOutput.for_tool_call("mockllm/model", "add", {"x": 1, "y": 2}),
        ModelOutput.from_content("mockllm/model", "3"),
        ModelOutput.for_tool_call("mockllm/model", "add", {"x": 2, "y": 2}),
        ModelOutput.from_content("mockllm/model", "5"),
        ModelOutput.from_content("mockllm/model", "It is", stop_reason="max_tokens"),
        *[ModelOutput.for_tool_call("mockllm/model", "add", {"x": 2, "y": 2}) for _ in range(5)],
    ]
    for o in outs:
        o.usage = ModelUsage(input_tokens=20, output_tokens=8, total_tokens=28)
    t = Task(
        dataset=[
            Sample(id="one", input="What is 1 + 2?", target="3"),
            Sample(id="two", input="What is 2 + 2?", target="4"),
        ],
        solver=[system_message("Use the tool."), use_tools(add()), generate()],
        scorer=match(),
        epochs=2,
        message_limit=6,
        fail_on_error=False,
        name="sums",
    )
    inspect_ai.eval(
        t,
        model=get_model("mockllm/model", custom_outputs=outs),
        log_dir="logs",
        log_format=fmt,
        max_samples=1,
        max_connections=1,
        display="none",
        score=True,
    )


main(sys.argv[1])
