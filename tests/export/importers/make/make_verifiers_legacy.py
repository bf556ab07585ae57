"""``verifiers_legacy.jsonl``: rows by `state_to_output` of verifiers' legacy part. Run with a checkout on the path."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verifiers.legacy.types import AssistantMessage, State, ToolCall, ToolMessage, UserMessage
from verifiers.legacy.utils.save_utils import make_serializable, state_to_output


def row(example: int, answer: str, reward: float, **fields: object) -> dict[str, object]:
    """A rollout with one tool call."""
    call = ToolCall(id="c0", name="add", arguments='{"x": 1, "y": 2}')
    state = State(
        example_id=example,
        prompt=[UserMessage(content="What is 1 + 2?")],
        completion=[
            AssistantMessage(content="", tool_calls=[call]),
            ToolMessage(tool_call_id="c0", content="3"),
            AssistantMessage(content=answer),
        ],
        answer="3",
        reward=reward,
        metrics={"num_turns": 2.0},
        timing={"total": 1.0},
        is_completed=True,
        stop_condition="no_tools_called",
        trajectory=[],
    )
    state.update(fields)
    return dict(state_to_output(state))


made = [
    row(0, "3", 1.0),
    row(0, "4", 0.0, stop_condition="max_turns_reached", is_truncated=True),
    row(1, "", 0.0, error=RuntimeError("gone"), stop_condition="has_error"),
    row(1, "3", 1.0, stop_condition="game_won"),
]
Path(sys.argv[1]).write_text("".join(f"{json.dumps(each, default=make_serializable)}\n" for each in made))
