"""A testing kit for clients of engines: a fake engine server that speaks real dialects and goes wrong on demand.

Its requests and replies are those of the real servers; behind them is a model of hashes, so that ids, logprobs and
sampling agree. Public: for tests of anything that talks to an engine. Needs the extra ``engines`` (aiohttp).
"""

from rollbook.policy.testing.faults import Dialect, Fault, FaultPlan
from rollbook.policy.testing.latency import Latency, Times
from rollbook.policy.testing.log import LogEntry, prompt_digest
from rollbook.policy.testing.openai_wire import TextAnswer, TextScript
from rollbook.policy.testing.script import Script, ScriptFunction
from rollbook.policy.testing.server import FakeEngine
from rollbook.policy.testing.shape import EngineShape

__all__ = [
    "Dialect",
    "EngineShape",
    "FakeEngine",
    "Fault",
    "FaultPlan",
    "Latency",
    "LogEntry",
    "Script",
    "ScriptFunction",
    "TextAnswer",
    "TextScript",
    "Times",
    "prompt_digest",
]
