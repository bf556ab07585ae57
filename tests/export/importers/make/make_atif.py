"""``atif.json`` and ``atif_ids.json``: real trajectories of Harbor. Run with harbor 0.26.0 (its wheel on the path)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Agent, Metrics, Observation, ObservationResult, Step, ToolCall, Trajectory

TOOL = {"type": "function", "function": {"name": "bash", "description": "Runs.", "parameters": {"type": "object"}}}


def made(*, ids: bool, subagents: list[Trajectory] | None = None, name: str = "terminus") -> Trajectory:
    """A trajectory of two turns."""

    def metrics(prompt: list[int], reply: list[int]) -> Metrics:
        exact = {"prompt_token_ids": prompt, "completion_token_ids": reply, "logprobs": [-0.5] * len(reply)}
        return Metrics(prompt_tokens=len(prompt), completion_tokens=len(reply), **(exact if ids else {}))

    call = ToolCall(tool_call_id="c0", function_name="bash", arguments={"command": "ls"})
    result = ObservationResult(source_call_id="c0", content="a.txt")
    steps = [
        Step(step_id=1, source="system", message="You are an agent."),
        Step(step_id=2, source="user", message="Which file is there?"),
        Step(
            step_id=3,
            source="agent",
            message="I look.",
            reasoning_content="ls tells",
            tool_calls=[call],
            observation=Observation(results=[result]),
            metrics=metrics([1, 2, 3], [4, 5]),
        ),
        Step(step_id=4, source="agent", message="a.txt", metrics=metrics([1, 2, 3, 4, 5, 6, 7], [8, 9])),
    ]
    agent = Agent(name=name, version="2", model_name="tiny", tool_definitions=[TOOL])
    return Trajectory(
        session_id="s0", trajectory_id=f"t-{name}", agent=agent, steps=steps, subagent_trajectories=subagents
    )


for file, trajectory in {
    "atif.json": made(ids=False, subagents=[made(ids=False, name="helper")]),
    "atif_ids.json": made(ids=True),
}.items():
    Path(sys.argv[1], file).write_text(f"{json.dumps(trajectory.to_json_dict(), indent=1)}\n")
