"""A verifier: a command that runs in a sandbox of its own and says by a file what an attempt is worth.

Rules, held in this order; the first that breaks fails the scoring, and there is no reward: the command ends by itself
with status 0; it wrote the reward file, a small one; that holds one finite number and nothing else, or a JSON object
with such a number as ``reward`` and numbers as its parts; the number lies in the range. A number that a dying verifier
left behind is no reward, whatever it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from rollbook.envs.protocol import Rewards
from rollbook.envs.sandbox import FileRefused, Sandbox, SandboxLimits, sandbox
from rollbook.errors import ConfigError
from rollbook.rewards.scorers.scorer import Scorer, ScoringFailed
from rollbook.trace.trace import Trace

__all__ = ["Files", "read_reward", "verifier"]

Files = Callable[[Trace], Mapping[str, bytes]]
"""The files that a verifier sees, by their path in its workspace."""

MAX_FILE = 64 << 10
"""Bytes of a reward file."""
_NUMBER = re.compile(rb"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")


def verifier(
    command: Sequence[str],
    files: Files,
    *,
    reward_file: str = "reward.txt",
    reward_range: tuple[float, float] = (0.0, 1.0),
    seconds: float = 30.0,
    kind: str | None = None,
    limits: SandboxLimits | None = None,
    readonly: Sequence[str] = (),
) -> Scorer:
    """A scorer that writes `files` into a new sandbox, runs `command` there and reads `reward_file`.

    `reward_range`: the smallest and the largest reward that is one. `seconds`: wall time of the command. `kind`,
    `limits`, `readonly`: of the sandbox, as in `rollbook.envs.sandbox.sandbox`. Raises `ConfigError` for a range that
    is none.
    """
    low, high = reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ConfigError(f"verifier: the range must be two finite numbers, the smaller one first, not {reward_range}")
    bounds, argv = limits or SandboxLimits(), tuple(command)

    async def score(trace: Trace, /) -> Rewards:
        async with sandbox(kind, limits=bounds, readonly=tuple(readonly)) as box:
            for path, data in files(trace).items():
                await box.write(path, data)
            written = await _verify(box, argv, reward_file, seconds)
        return read_reward(written, reward_range)

    return score


async def _verify(box: Sandbox, argv: Sequence[str], reward_file: str, seconds: float) -> bytes:
    done = await box.exec(argv, seconds=seconds)
    if not done.ok:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ScoringFailed(f"the verifier failed: {done.describe()}{': ' + said[-1] if said else ''}")
    try:
        return await box.read(reward_file, MAX_FILE)
    except FileRefused as error:
        raise ScoringFailed(f"the verifier left no reward: {error}") from error


def read_reward(written: bytes, reward_range: tuple[float, float]) -> Rewards:
    """The reward in the bytes of a reward file. Raises `ScoringFailed` for anything but what the rules allow."""
    text = written.strip()
    if _NUMBER.fullmatch(text):
        return Rewards(_in_range(float(text), reward_range))
    try:
        found: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ScoringFailed(f"the verifier's reward is no number: {text[:80]!r}") from error
    if not isinstance(found, dict) or "reward" not in found:
        raise ScoringFailed(f"the verifier's reward is no number, and no object with a 'reward': {text[:80]!r}")
    named = {name: _finite(name, value) for name, value in cast("dict[str, object]", found).items()}
    return Rewards(_in_range(named.pop("reward"), reward_range), parts=named)


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ScoringFailed(f"the verifier's {name!r} is no finite number: {value!r}")
    return float(value)


def _in_range(reward: float, reward_range: tuple[float, float]) -> float:
    low, high = reward_range
    if not low <= reward <= high:
        raise ScoringFailed(f"the verifier's reward {reward:g} is outside of {low:g} to {high:g}")
    return reward
