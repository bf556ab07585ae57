"""The tools of one environment instance, by name, in the order in which they were defined (a base class first)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollbook.envs.outcome import ToolOutcome, error_observation
from rollbook.envs.protocol import Environment
from rollbook.envs.tool import Tool, is_tool
from rollbook.errors import UsageError
from rollbook.trace.message import ParseStatus, ToolCall

__all__ = ["ToolSet"]


class ToolSet:
    """Tools that one rollout may call."""

    __slots__ = ("_tools", "specs")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Raises `UsageError` where two tools share a name."""
        self._tools: dict[str, Tool] = {}
        for each in tools:
            if each.spec.name in self._tools:
                raise UsageError(f"two tools are called {each.spec.name!r}; give one another name: @tool(name=...)")
            self._tools[each.spec.name] = each
        self.specs = tuple(each.spec for each in self._tools.values())
        """What the model sees."""

    @classmethod
    def of(cls, environment: Environment) -> ToolSet:
        """The marked functions among the attributes of the instance's class; a plain override hides a tool."""
        found: dict[str, object] = {}
        for owner in reversed(type(environment).__mro__):
            found.update(vars(owner))
        plain = (each.__func__ if isinstance(each, staticmethod) else each for each in found.values())
        return cls(Tool(each, environment) for each in plain if is_tool(each))

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    async def invoke(self, call: ToolCall) -> ToolOutcome:
        """Run one call; a call that is not ``ok`` or names no tool of this set runs nothing and gets an error
        observation. Raises nothing but `RolloutFailure` and cancellation."""
        found = self._tools.get(call.name) if call.name is not None else None
        if found is not None:
            return await found.invoke(call)
        return ToolOutcome(error_observation(self._unknown(call) if call.status is ParseStatus.OK else call))

    def _unknown(self, call: ToolCall) -> ToolCall:
        status = ParseStatus.MISSING_NAME if call.name is None else ParseStatus.UNKNOWN_TOOL
        known = ", ".join(self._tools) or "none"
        return ToolCall(id=call.id, name=call.name, raw=call.raw, status=status, error=f"the tools are: {known}")
