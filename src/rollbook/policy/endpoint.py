"""Text-only endpoints: messages in, a message out, no token ids.

Rules: such an endpoint is for evaluation. What it says is kept as it says it; no ids are made from its text, so nothing
of it can be trained. Logprobs without ids belong to nothing, so none are asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.message import Message
from rollbook.trace.tools import ToolSpec

__all__ = ["TextCall", "TextEndpoint", "TextReply"]


@dataclass(frozen=True, slots=True)
class TextCall:
    """One tool call as the endpoint gave it; nothing is checked yet."""

    id: str | None
    """None where the endpoint gave none."""
    name: str | None
    """Likewise."""
    arguments: str
    """JSON text, or what the endpoint gave as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReply:
    """One reply of a text-only endpoint."""

    message: Message
    """Role assistant: text and reasoning; the calls stand in `calls`, for they are not read yet."""
    calls: tuple[TextCall, ...] = ()
    """Attempted tool calls, in order."""
    finish: Finish
    engine_finish: str = ""
    """The endpoint's own word."""
    prompt_tokens: int | None = None
    """By the endpoint's own count; None where it does not say. Likewise below."""
    completion_tokens: int | None = None
    """With the tokens of the reasoning, also where its text is not shown."""
    cached_tokens: int | None = None


class TextEndpoint(ABC):
    """A model that is reached by messages only. Starts and closes like every policy."""

    @property
    @abstractmethod
    def info(self) -> PolicyInfo:
        """Known after `start`."""

    @abstractmethod
    async def start(self) -> None:
        """Connect. Raises `UsageError` with a remedy. Calling it twice does nothing."""

    @abstractmethod
    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, session: str
    ) -> TextReply:
        """The next message of the conversation. Raises `RolloutFailure` with an engine reason."""

    @abstractmethod
    async def close(self) -> None:
        """Free everything. Calling it twice does nothing."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        """Never a completion: there are no token ids."""
        del prompt, sampling, session
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"{self.info.name} gives no token ids; ask it for a reply")
