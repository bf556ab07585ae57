"""Tools collected from an environment."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.envs.protocol import Environment
from rollbook.envs.tool import tool
from rollbook.envs.toolset import ToolSet
from rollbook.errors import UsageError
from rollbook.trace.message import Fault, ParseStatus, ToolCall


@tool
async def shout(text: str) -> str:
    """Shouts."""
    return text.upper()


class Base(Environment):
    def __init__(self) -> None:
        self.total = 0

    @tool
    async def zeta(self, amount: int) -> int:
        """Adds to the total."""
        self.total += amount
        return self.total

    @tool
    async def alpha(self) -> str:
        """Says who it is."""
        return "base"

    shouting = shout

    @staticmethod
    @tool
    async def whisper(text: str) -> str:
        """Whispers."""
        return text.lower()


class Derived(Base):
    @tool
    async def alpha(self) -> str:
        """Says who it is."""
        return "derived"

    @tool(name="last")
    async def beta(self) -> str:
        """Is last."""
        return "beta"


class Hidden(Base):
    async def alpha(self) -> str:
        return "no tool any more"


class Double(Base):
    @tool(name="zeta")
    async def other(self) -> str:
        """Takes a name."""
        return ""


def names(environment: Environment) -> list[str]:
    return [spec.name for spec in ToolSet.of(environment).specs]


def say(tools: ToolSet, name: str | None, **arguments: object) -> str:
    return asyncio.run(tools.invoke(ToolCall(id="c", name=name, arguments=dict(arguments)))).message.content


def test_tools_come_in_the_order_of_definition_base_first() -> None:
    assert names(Base()) == ["zeta", "alpha", "shout", "whisper"]
    assert names(Derived()) == ["zeta", "alpha", "shout", "whisper", "last"]
    assert names(Environment()) == []
    assert len(ToolSet.of(Derived())) == 5


def test_a_plain_override_hides_a_tool() -> None:
    assert names(Hidden()) == ["zeta", "shout", "whisper"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two tools are called 'zeta'"):
        ToolSet.of(Double())


def test_methods_work_on_their_own_instance() -> None:
    one, two = Base(), Base()
    assert say(ToolSet.of(one), "zeta", amount=2) == "2"
    assert (one.total, two.total) == (2, 0)
    assert say(ToolSet.of(Derived()), "alpha") == "derived"
    assert say(ToolSet.of(one), "shout", text="a") == "A"
    assert say(ToolSet.of(one), "whisper", text="A") == "a"


def test_a_method_without_an_instance_is_refused() -> None:
    tools = list(ToolSet.of(Base()))
    assert tools[0].spec.name == "zeta"
    with pytest.raises(UsageError, match="from an instance"):
        type(tools[0])(Base.zeta)


def test_an_unknown_tool_is_an_observation_that_names_the_known() -> None:
    tools = ToolSet.of(Base())
    assert say(tools, "Zeta") == "error: unknown_tool: the tools are: zeta, alpha, shout, whisper"
    assert say(tools, None).startswith("error: missing_name: ")
    assert say(ToolSet(), "x") == "error: unknown_tool: the tools are: none"


def test_a_call_that_did_not_parse_runs_nothing() -> None:
    environment = Base()
    bad = ToolCall(id="c", name="zeta", arguments={"amount": 1}, status=ParseStatus.CUT)
    outcome = asyncio.run(ToolSet.of(environment).invoke(bad))
    assert (outcome.message.content, outcome.message.fault) == ("error: cut", Fault.POLICY)
    assert environment.total == 0


def test_what_did_not_parse_is_said_before_that_the_tool_is_unknown() -> None:
    bad = ToolCall(id="c", name="nowhere", status=ParseStatus.INVALID_JSON, error="line 1")
    outcome = asyncio.run(ToolSet.of(Base()).invoke(bad))
    assert outcome.message.content == "error: invalid_json: line 1"
