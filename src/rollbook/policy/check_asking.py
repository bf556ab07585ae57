"""Asking an engine while it is checked: every answer is kept, a refusal too, and each reply is held to the contract.

An engine that refuses for load is asked again a few times, for a check is nobody's rollout; everything else is an
answer. What makes the whole check impossible (no access, a wrong URL) is raised.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rollbook.errors import ConfigError
from rollbook.policy.check_inputs import CheckInputs
from rollbook.policy.protocol import Completion, EngineBusy, Policy, TokenIds, check_completion
from rollbook.trace.call import Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["Answer", "Asked", "Prober", "Refused"]

BUSY_TRIES = 5
"""Requests in place of one that is refused for load."""
BUSY_SECONDS = 10.0
"""The longest wait between two of them."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No reply came."""

    detail: str
    reason: Reason | None = None
    """The failure's reason; None: the client says that the engine cannot do what was asked."""

    @property
    def breaks(self) -> bool:
        """True where the reply broke the token contract."""
        return self.reason is Reason.ENGINE_CONTRACT


Answer = Completion | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """One reply and what it was the reply to."""

    prompt: TokenIds
    sampling: Sampling
    reply: Completion


class Prober:
    """One engine under question."""

    def __init__(self, policy: Policy, inputs: CheckInputs) -> None:
        self.policy = policy
        self.inputs = inputs
        self.replies: list[Asked] = []
        """All that came."""
        self.requests = 0

    async def ask(self, prompt: TokenIds, sampling: Sampling) -> Answer:
        """One request."""
        for left in reversed(range(BUSY_TRIES)):
            try:
                return await self._once(prompt, sampling)
            except EngineBusy as busy:
                if not left:
                    return Refused(busy.detail, busy.reason)
                await asyncio.sleep(min(1.0 if busy.retry_after is None else busy.retry_after, BUSY_SECONDS))
            except RolloutFailure as failure:
                return Refused(failure.detail, failure.reason)
            except ConfigError as error:
                return Refused(str(error))
        raise AssertionError("one of the tries returns")

    async def together(self, *questions: tuple[TokenIds, Sampling]) -> list[Answer]:
        """Several requests at once."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.ask(prompt, sampling)) for prompt, sampling in questions]
        return [task.result() for task in tasks]

    async def _once(self, prompt: TokenIds, sampling: Sampling) -> Completion:
        self.requests += 1
        reply = await self.policy.sample(prompt, sampling, session=f"check-{self.requests}")
        check_completion(reply, prompt, sampling)
        self.replies.append(Asked(prompt, sampling, reply))
        return reply
