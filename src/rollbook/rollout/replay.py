"""Replaying replies that are known beforehand: no model, everything else as in any rollout.

The replies come as those of a text-only endpoint, so set-up, strict reading of calls, tools, `step`, final state,
scorer, limits and clean-up are the real ones. A rollout that wants more replies than there are ends at its limit of
turns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rollbook.errors import UsageError
from rollbook.policy.endpoint import TextCall, TextEndpoint, TextReply
from rollbook.policy.protocol import PolicyInfo
from rollbook.rollout.group import rollout
from rollbook.rollout.limits import Limits
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.pool.orders import EnvFactory
from rollbook.rollout.rollout import RolloutSettings
from rollbook.trace import Finish, LogprobKind, Message, Role, Sampling, Task, ToolSpec, Trace

__all__ = ["replay"]


async def replay(make_env: EnvFactory, task: Task, replies: Sequence[Message], *, wall: float = 600.0) -> Trace:
    """One attempt at `task` that gives these replies, in order; returns its sealed trace, which holds no tokens.

    `wall`: seconds that it may take in all. Raises `UsageError` for what is no list of an assistant's replies.
    """
    strange = [each.role for each in replies if each.role is not Role.ASSISTANT]
    if strange or not replies:
        raise UsageError(f"a solution is a list of the assistant's replies, at least one; found {strange or 'none'}")
    limits = Limits(max_turns=len(replies), wall=wall)
    return await rollout(make_env, task, LoadedPolicy(_Replies(replies)), settings=RolloutSettings(limits=limits))


class _Replies(TextEndpoint):
    """Gives one reply after the other."""

    def __init__(self, replies: Sequence[Message]) -> None:
        self._left = iter(replies)

    @property
    def info(self) -> PolicyInfo:
        return PolicyInfo(name="replay", engine="replay", context_length=None, logprob_kind=LogprobKind.UNKNOWN)

    async def start(self) -> None:
        """Nothing to connect to."""

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, session: str
    ) -> TextReply:
        del messages, tools, sampling, session
        message = next(self._left)
        calls = tuple(TextCall(None, call.name, json.dumps(call.arguments or {})) for call in message.tool_calls)
        return TextReply(
            message=Message(role=Role.ASSISTANT, content=message.content, reasoning=message.reasoning),
            calls=calls,
            finish=Finish.STOP,
        )

    async def close(self) -> None:
        """Nothing to free."""
