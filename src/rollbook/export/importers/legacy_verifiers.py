"""Rows of verifiers' ``results.jsonl`` before version 1: text without ids.

Source: verifiers 0.1.x, `utils/save_utils.py` and `types.py` (`RolloutOutput`): `prompt` and `completion` are chat
messages, or texts for completion models; `reward` is a number also where the rollout failed, and then its ending keeps
it out of every statistic. Rows of one `example_id` are a group.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.export.importers.book import Book, numbers, reward_of
from rollbook.export.importers.messages import chat_message, tool_specs
from rollbook.export.importers.rows import BadRow
from rollbook.export.importers.spans import add_text
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["LegacyRow", "legacy_trace"]

_STOPS = {
    "max_turns_reached": Reason.MAX_TURNS,
    "prompt_too_long": Reason.CONTEXT_OVERFLOW,
    "max_total_completion_tokens_reached": Reason.MAX_TOKENS,
    "timeout_reached": Reason.DEADLINE,
    "no_tools_called": Reason.FINAL_ANSWER,
}


class LegacyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a row that are read."""

    example_id: int | str
    prompt: list[Any] | str | None
    completion: list[Any] | str | None
    answer: Any = None
    task: str | None = None
    reward: float | None = None
    metrics: dict[str, Any] | None = None
    error: Any = None
    is_truncated: bool = False
    stop_condition: str | None = None
    tool_defs: list[Any] | None = None


def legacy_trace(row: LegacyRow, book: Book) -> Trace:
    """The trace of one row. Raises `BadRow`."""
    prompt = _messages(row.prompt, Role.USER)
    head = book.head(
        task=Task(id=str(row.example_id), prompt=tuple(prompt), target=row.answer),
        group=[row.task, row.example_id],
        environment=row.task or "",
        tools=tool_specs(row.tool_defs),
        source={"example_id": row.example_id, "stop_condition": row.stop_condition},
    )
    trace = Trace(head)
    for message in prompt:
        add_text(trace, message)
    for message in _messages(row.completion, Role.ASSISTANT):
        add_text(trace, message, sampled=message.role is Role.ASSISTANT)
    trace.end(_ending(row))
    trace.update(metrics=numbers(row.metrics or {}))
    if row.reward is not None:
        trace.score(reward_of(row.reward))
    return trace


def _messages(said: list[Any] | str | None, role: Role) -> list[Message]:
    if isinstance(said, str):
        return [Message(role=role, content=said)]
    messages = [chat_message(each) for each in said or ()]
    if role is Role.USER and not messages:
        raise BadRow("it has no prompt")
    return messages


def _ending(row: LegacyRow) -> Ending:
    if row.error is not None:
        return Ending(Reason.HARNESS, str(row.error)[:1000])
    reason = _STOPS.get(row.stop_condition or "", Reason.NOT_RECORDED)
    if row.is_truncated and reason in (Reason.FINAL_ANSWER, Reason.NOT_RECORDED):
        reason = Reason.GENERATION_LIMIT
    said = f"stop condition {row.stop_condition}" if row.stop_condition else "no stop condition is recorded"
    return Ending(reason, f"{said}, truncated" if row.is_truncated else said)
