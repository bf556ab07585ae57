"""The environment: what a rollout acts in. One instance serves one rollout.

Order of calls: `setup` once, then tools and `step` as the agent acts, then `final_state` and `score`, and `cleanup`
always, also after a failure or a cancel. A tool that raises is an observation; `setup` that raises is an `env_setup`
error; a scorer that raises leaves the ending alone. `tasks`, `solutions` and `score_group` are asked of an instance of
its own, so that the options which shape an environment shape its tasks too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollbook.envs.solutions import Solutions
from rollbook.errors import RecordError, UsageError
from rollbook.trace.ending import Ending, EndingKind, is_reward
from rollbook.trace.message import Message
from rollbook.trace.record import FinalState, TurnReward
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace
from rollbook.trace.wire import encode_record

__all__ = ["Environment", "Rewards", "StepResult"]

_OUTCOMES = (EndingKind.SUBMITTED, EndingKind.DETECTED)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an environment answers, from a tool or from `step`. Raises `RecordError` where a field cannot be kept."""

    observation: Any = ""
    """What the agent sees next: text, or any value that the one conversion to text takes
    (`rollbook.envs.convert`)."""
    reward: float | None = None
    """A step reward, bound to the turn that caused it, finite; None: none."""
    ending: Ending | None = None
    """An ending that the environment saw (kinds ``submitted`` and ``detected``); None: go on."""

    def __post_init__(self) -> None:
        if self.reward is not None:
            if not is_reward(self.reward):
                raise RecordError(f"a step reward must be finite as a float32, got {self.reward}")
            object.__setattr__(self, "reward", float(self.reward))  # numpy's numbers are none that can be stored
        if self.ending is None:
            return
        encode_record(self.ending)
        if self.ending.kind not in _OUTCOMES:
            raise RecordError(
                f"an environment may end a rollout as submitted or detected, not as {self.ending}; "
                "raise RolloutFailure for what broke"
            )


@dataclass(frozen=True, slots=True)
class Rewards:
    """What a scorer gives when one number is not enough. Values are checked where they are stored
    (`rollbook.rewards.scoring`)."""

    total: float | None
    """The reward; None: cannot be told, which is not zero."""
    parts: dict[str, float] = field(default_factory=dict[str, float])
    """What the reward is made of, by name."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Numbers for people; never part of the reward."""
    turns: tuple[TurnReward, ...] = ()
    """Rewards of single turns, each naming the node of its turn; they stand beside the step rewards."""


class Environment:
    """Subclass this. Everything but `tasks` has a default. Its tools are the methods marked with
    `rollbook.envs.tool.tool`."""

    name: ClassVar[str] = ""
    """How runs call it; empty: the class's name in lower case."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        """`count` tasks; the same seed gives the same tasks, and more of them begin with the fewer."""
        del count, seed
        raise UsageError(
            f"{type(self).__name__} has no tasks; define `tasks`, or run one task with `rollout` or `group`"
        )

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
        """The reward of an ended rollout, from its trace alone. None: no reward. One that computes may be a plain
        function instead of an async one: it then runs in a thread."""
        del trace
        return None

    async def score_group(self, traces: Sequence[Trace]) -> Mapping[str, float | Rewards] | None:
        """The rewards of all attempts of one group that can vote, by rollout id: called once, when the group closes,
        on an instance that was never set up. They take the place of what `score` gave. None: all stay as they are."""
        del traces
        return None

    def solutions(self, task: Task) -> Solutions | None:
        """How `task` is solved, and what an attempt looks like that does nothing: `rollbook.check_env` replays both and
        holds the scorer to 1 and 0. A plain function, asked of an instance of its own. None: not known."""
        del task
        return None

    async def cleanup(self) -> None:
        """Free what `setup` took. Always runs."""
