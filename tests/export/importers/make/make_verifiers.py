"""``verifiers.jsonl``: real episodes of verifiers. Run with verifiers 0.4.0."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, ModelCall, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, SystemMessage, Tool, ToolCall, ToolMessage, Usage, UserMessage

DATA = WireTaskData(idx=0, prompt="What is 1 + 2?")
TASK = TraceTask(type="Sums", data=DATA, key="sum-0")
CALC = Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {"x": {"type": "integer"}}})


def node(message: object, parent: int | None, ids: list[int], sampled: int = 0, *, tokens: bool = True) -> MessageNode:
    """A node whose last `sampled` ids the model said."""
    before = len(ids) - sampled
    fields = {
        "token_ids": ids,
        "mask": [False] * before + [True] * sampled,
        "is_content": [at >= 1 for at in range(len(ids))],
        "logprobs": [-0.25] * sampled,
    }
    return MessageNode(parent=parent, message=message, sampled=sampled > 0, **(fields if tokens else {}))


def trace(answer: str, reward: float | None, *, tokens: bool = True, stop: str = "agent_completed") -> Trace:
    """A rollout with one tool call."""
    made = Trace[WireTaskData, object, WireAgentConfig](
        task=TASK, agent=AgentInfo[WireAgentConfig](config=WireAgentConfig(model="tiny"), name="solver"), tools=[CALC]
    )
    call = ToolCall(id="c0", name="add", arguments='{"x": 1}')
    made.nodes = [
        node(SystemMessage(content="Use the tool."), None, [1, 2], tokens=tokens),
        node(UserMessage(content="What is 1 + 2?"), 0, [3, 4, 5], tokens=tokens),
        node(AssistantMessage(content="", tool_calls=[call]), 1, [6, 7, 8], 2, tokens=tokens),
        node(ToolMessage(tool_call_id="c0", content="3", name="add"), 2, [9, 10], tokens=tokens),
        node(AssistantMessage(content=answer, reasoning_content="so"), 3, [11, 12, 13], 2, tokens=tokens),
    ]
    if not tokens:
        for each in (made.nodes[2], made.nodes[4]):
            each.sampled = True
    made.calls = [
        ModelCall(node=at, model="tiny", finish_reason="stop", usage=Usage(prompt_tokens=5, completion_tokens=2))
        for at in (2, 4)
    ]
    if reward is not None:
        made.record_reward("right", reward)
        made.record_reward("short", 1.0, weight=0.0)
    made.record_metric("turns", 2)
    made.ok = True
    made.stop(stop)
    return made


def episode(group: str, *traces: Trace) -> Episode:
    return Episode(env=EnvInfo(id="sums"), task=TASK, group=GroupInfo(id=group), ok=True, traces=list(traces))


lost = trace("", None, tokens=False)
lost.stop_condition = None
lost.record_error(RuntimeError("gone"))
lost.errors[0].traceback = None
forked = trace("3", 1.0)
forked.nodes.append(node(AssistantMessage(content="4"), 3, [11, 14, 13], 2))
judge = trace("fine", 1.0, tokens=False)
judge.agent.name, judge.agent.trainable = "judge", False
made = [
    episode("g0", trace("3", 1.0)),
    episode("g0", trace("4", 0.0, stop="max_turns")),
    episode("g0", lost),
    episode("g1", forked, judge),
]
Path(sys.argv[1]).write_text("".join(f"{json.dumps(each.to_record())}\n" for each in made))
