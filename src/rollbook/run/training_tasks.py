"""Which tasks a training sees, and which are kept out of it.

Rules. Held-out tasks are drawn first, with a seed of their own; no training task has the prompt of one of them. A task
drawn twice under two ids may be trained on twice. Where an environment has too few different tasks, the training is
refused, never made smaller.
"""

from __future__ import annotations

import msgspec

from rollbook.envs import Environment
from rollbook.errors import ConfigError, boundary
from rollbook.rollout.loaded import derive_seed
from rollbook.trace import Task

__all__ = ["split_tasks"]

_MOST_DRAWN = 32
"""Times as many tasks as are needed that are looked through."""


def split_tasks(env: Environment, *, train: int, held_out: int, seed: int) -> tuple[list[Task], list[Task]]:
    """`train` tasks to train on, and `held_out` others. Raises `ConfigError`."""
    kept = _draw(env, held_out, derive_seed("held-out", seed))
    prompts = {_prompt(task) for task in kept}
    count = train
    while True:
        found = [task for task in _draw(env, count, seed) if _prompt(task) not in prompts][:train]
        if len(found) == train:
            return found, kept
        count *= 2
        if count > train * _MOST_DRAWN:
            raise ConfigError(
                f"environment {env.name!r} has too few different tasks to keep {held_out} out of the training: keep "
                "out fewer (--held-out), or make its tasks more varied"
            )


def _draw(env: Environment, count: int, seed: int) -> list[Task]:
    if not count:
        return []
    with boundary(f"environment {env.name!r} cannot give its tasks", ConfigError):
        return list(env.tasks(count, seed))


def _prompt(task: Task) -> bytes:
    return msgspec.msgpack.encode(task.prompt)
