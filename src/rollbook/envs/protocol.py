"""The environment: what a rollout acts in. One instance serves one rollout.

Order of calls: `setup` once, then tools and `step` as the agent acts, then `final_state` and `score`, and `cleanup`
always, also after a failure or a cancel. A tool that raises is an observation; `setup` that raises is an
`env_setup` error; a scorer that raises leaves the ending alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollbook.trace.ending import Ending
from rollbook.trace.message import Message
from rollbook.trace.task import Task
from rollbook.trace.trace import FinalState, Trace

__all__ = ["Environment", "Rewards", "StepResult"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an environment answers, from a tool or from `step`."""

    observation: Any = ""
    """What the agent sees next: text, or any value that the one conversion to text takes
    (`rollbook.envs.convert`)."""
    reward: float | None = None
    """A step reward, bound to the turn that caused it; None: none."""
    ending: Ending | None = None
    """An ending that the environment saw (kinds ``submitted`` and ``detected``); None: go on."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """What a scorer gives when one number is not enough."""

    total: float | None
    """The reward; None: cannot be told, which is not zero."""
    parts: dict[str, float] = field(default_factory=dict[str, float])
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Numbers for people; never part of the reward."""


class Environment:
    """Subclass this. Everything but `tasks` has a default."""

    name: ClassVar[str] = ""
    """How runs call it; empty: the class's name in lower case."""

    @classmethod
    def tasks(cls, count: int, seed: int = 0) -> Sequence[Task]:
        """`count` tasks; the same seed gives the same tasks, and more of them begin with the fewer."""
        raise NotImplementedError(f"{cls.__name__} has no tasks; define `tasks` or pass tasks to the run")

    async def setup(self, task: Task) -> Sequence[Message]:
        """Get ready for one task and give the first observation."""
        return task.messages()

    async def step(self, reply: Message) -> StepResult | None:
        """Answer a reply that calls no tool. None: the reply is the final answer."""
        del reply
        return None

    async def final_state(self) -> FinalState | None:
        """What `score` needs besides the messages, kept so that scoring can be done again."""
        return None

    async def score(self, trace: Trace) -> float | Rewards | None:
        """The reward of an ended rollout, from its trace alone. None: no reward."""
        del trace
        return None

    async def cleanup(self) -> None:
        """Free what `setup` took. Always runs."""
