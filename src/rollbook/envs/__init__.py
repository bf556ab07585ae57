"""Environments: the protocol, tools from typed async functions, the registry and the conformance check."""

from rollbook.envs.convert import NotConvertible, to_text
from rollbook.envs.foreign import ForeignError, call_foreign
from rollbook.envs.offloop import close_processes, compute, in_process, off_loop
from rollbook.envs.outcome import ToolOutcome, ToolRefused, error_observation, failed
from rollbook.envs.process_pool import ProcessLost
from rollbook.envs.protocol import Environment, Rewards, StepResult
from rollbook.envs.registry import Factory, factory, make, names, register
from rollbook.envs.solutions import Solutions, calls, says
from rollbook.envs.tool import Tool, tool
from rollbook.envs.toolset import ToolSet

__all__ = [
    "Environment",
    "Factory",
    "ForeignError",
    "NotConvertible",
    "ProcessLost",
    "Rewards",
    "Solutions",
    "StepResult",
    "Tool",
    "ToolOutcome",
    "ToolRefused",
    "ToolSet",
    "call_foreign",
    "calls",
    "close_processes",
    "compute",
    "error_observation",
    "factory",
    "failed",
    "in_process",
    "make",
    "names",
    "off_loop",
    "register",
    "says",
    "to_text",
    "tool",
]
