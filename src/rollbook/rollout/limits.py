"""All limits of a rollout, in one place.

`Limits` is what was asked for; `Budget` counts what was used and decides, before each request, how many tokens it
may sample or why the rollout stops. Order of the checks: turns, own time, tokens, room in the context. Nothing here
reads a clock or text: endings come from counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rollbook.errors import ConfigError
from rollbook.trace import Ending, Reason

__all__ = ["Allowance", "Budget", "Limits", "RequestRetries"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one rollout may use. None: no limit."""

    max_turns: int | None = 16
    """Requests to the engine that gave a reply; reaching it is `truncated/max_turns`."""
    max_tokens: int | None = None
    """Sampled tokens over the whole rollout; reaching it is `truncated/max_tokens`."""
    max_generation: int | None = 512
    """Sampled tokens of one turn; reaching it is `length_cut/generation_limit`."""
    max_tool_calls: int | None = None
    """Tool calls that execute, over the whole rollout; asking for more is `truncated/max_tool_calls`."""
    max_parallel_calls: int = 8
    """Calls of one reply that execute; the others get an error observation."""
    deadline: float | None = 600.0
    """Seconds of the rollout's own time: decoding and tools, without waiting for limiters."""
    wall: float | None = 3600.0
    """Seconds from start to stop whatever happens; reaching it is an error, for it says nothing of the policy."""
    request_retries: int = 3
    """Requests to the engine that are made again after they failed in transit, over all attempts of one scheduled
    rollout; 0 for none. What the engine turns away for load is waited out and does not count."""
    setup_timeout: float = 120.0
    """Seconds for `setup`; more is `error/env_setup`."""
    score_timeout: float = 60.0
    """Seconds for `score`; where it takes longer, scoring failed. Likewise for `final_state`."""
    cleanup_timeout: float = 30.0
    """Seconds for `cleanup`."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None and not value > 0 and (name, value) != ("request_retries", 0):
                raise ConfigError(f"Limits: {name} must be above 0 or None, not {value}")


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many tokens the next request may sample, and what reaching that number means."""

    tokens: int
    reason: Reason
    """Of the ending, where the generation reaches it."""


@dataclass(slots=True)
class RequestRetries:
    """The budget of requests that are made again; one for all attempts of a scheduled rollout."""

    left: int


@dataclass(slots=True)
class Budget:
    """What a rollout used so far."""

    limits: Limits
    turns: int = 0
    """Replies that were recorded."""
    tokens: int = 0
    """Sampled tokens."""
    tool_calls: int = 0
    """Executed tool calls."""
    seconds: float = 0.0
    """Own time."""

    def allowance(self, prompt_tokens: int, context_length: int | None) -> Allowance | Ending:
        """How much the next request may sample, or the ending where it may not be sent. `context_length`: None: not
        known, so it cuts nothing. Raises `ConfigError` where nothing would."""
        limits = self.limits
        if limits.max_turns is not None and self.turns >= limits.max_turns:
            return Ending(Reason.MAX_TURNS, f"{self.turns} turns of {limits.max_turns}")
        if self.seconds_left <= 0:
            return self.out_of_time()
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            return Ending(Reason.MAX_TOKENS, f"{self.tokens} sampled tokens of {limits.max_tokens}")
        choices: list[tuple[int, Reason]] = []
        if context_length is not None:
            room = context_length - prompt_tokens
            if room < 1:
                return Ending(
                    Reason.CONTEXT_OVERFLOW, f"the prompt of {prompt_tokens} tokens leaves no room in {context_length}"
                )
            choices.append((room, Reason.CONTEXT_OVERFLOW))
        if limits.max_tokens is not None:
            choices.append((limits.max_tokens - self.tokens, Reason.MAX_TOKENS))
        if limits.max_generation is not None:
            choices.append((limits.max_generation, Reason.GENERATION_LIMIT))
        if not choices:
            raise ConfigError("the policy's context length is not known: set Limits.max_generation or max_tokens")
        # On a tie the limit that was asked for explains the cut, so the last of equals wins.
        tokens, reason = min(reversed(choices), key=lambda choice: choice[0])
        return Allowance(tokens, reason)

    @property
    def seconds_left(self) -> float:
        """Own time that is left; infinite without a deadline."""
        return float("inf") if self.limits.deadline is None else self.limits.deadline - self.seconds

    def out_of_time(self) -> Ending:
        """The ending for a used-up deadline: the measured time, apart from the limit."""
        return Ending(Reason.DEADLINE, f"{self.seconds:.3f} s of own time, limit {self.limits.deadline} s")

    def spend_calls(self, count: int) -> Ending | None:
        """Enter `count` tool calls before they execute; an ending, and nothing entered, where they exceed what is
        left."""
        limit = self.limits.max_tool_calls
        if limit is not None and self.tool_calls + count > limit:
            return Ending(
                Reason.MAX_TOOL_CALLS, f"{self.tool_calls} calls executed, {count} more asked for, limit {limit}"
            )
        self.tool_calls += count
        return None
