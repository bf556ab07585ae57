"""A policy that replays given ids and logprobs, for tests, benchmarks and for building environments without a model.

A script is a list (each session gets it from the start, over and over), lists by session name (running out is an
error), or a function of prompt, sampling and session. Replies are handed on as they are and not checked, so a script
can also play an engine that breaks the contract. No work is done per call but looking the reply up.

The file of ``scripted:FILE`` is JSON with either ``replies`` or ``sessions``::

    {"name": "demo", "context_length": 4096,
     "replies": [{"type": "reply", "token_ids": [5, 9, 2], "logprobs": [-0.1, -1.5, -0.2], "finish": "stop"},
                 {"type": "failure", "reason": "engine_timeout", "detail": "as scripted"}]}
    {"sessions": {"task-0": [{"type": "reply", ...}], ...}}

A reply may also carry ``versions`` ([[version, tokens], ...]), ``delay`` (seconds) and ``kind`` (of its logprobs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from rollbook.errors import UsageError
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["ScriptFunction", "ScriptedFailure", "ScriptedPolicy", "ScriptedReply", "load_script"]


class ScriptedReply(msgspec.Struct, frozen=True, tag="reply", forbid_unknown_fields=True):
    """A reply to hand on."""

    token_ids: Sequence[int]
    """The sampled ids."""
    logprobs: Sequence[float]
    """One for each id."""
    finish: Finish = Finish.STOP
    versions: tuple[tuple[int, int], ...] = ()
    """(version, tokens), as in `Completion`."""
    delay: float = 0.0
    """Seconds before the reply."""
    kind: LogprobKind = LogprobKind.RAW


class ScriptedFailure(msgspec.Struct, frozen=True, tag="failure", forbid_unknown_fields=True):
    """A failure to raise instead of a reply."""

    reason: Reason
    detail: str = "as scripted"
    delay: float = 0.0
    """Seconds before the failure."""


Step = ScriptedReply | ScriptedFailure
ScriptFunction = Callable[[TokenIds, Sampling, str], Completion]
"""Gives the reply for (prompt, sampling, session); it may raise `RolloutFailure`."""

_Ready = tuple[Completion | ScriptedFailure, float]


class ScriptedPolicy:
    """Replays a script."""

    def __init__(
        self,
        script: Sequence[Step] | Mapping[str, Sequence[Step]] | ScriptFunction,
        *,
        name: str = "scripted",
        context_length: int = 1 << 20,
    ) -> None:
        self._info = PolicyInfo(
            name=name, engine="scripted", context_length=context_length, logprob_kind=LogprobKind.RAW
        )
        self._function: ScriptFunction | None = None
        self._cycle: list[_Ready] | None = None
        self._sessions: dict[str, list[_Ready]] = {}
        self._next: dict[str, int] = {}
        if isinstance(script, Mapping):
            sessions = cast("Mapping[str, Sequence[Step]]", script)
            self._sessions = {session: [_ready(step) for step in steps] for session, steps in sessions.items()}
        elif isinstance(script, Sequence):
            steps = cast("Sequence[Step]", script)
            self._cycle = [_ready(step) for step in steps]
            if not self._cycle:
                raise UsageError("a script needs at least one reply")
        else:
            self._function = script

    @property
    def info(self) -> PolicyInfo:
        return self._info

    async def start(self) -> None:
        """Nothing to bring up."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        if self._function is not None:
            return self._function(prompt, sampling, session)
        step, delay = self._take(session)
        if delay:
            await asyncio.sleep(delay)
        if isinstance(step, ScriptedFailure):
            raise RolloutFailure(step.reason, step.detail)
        return step

    async def close(self) -> None:
        """Nothing to free."""

    def _take(self, session: str) -> _Ready:
        at = self._next.get(session, 0)
        self._next[session] = at + 1
        if self._cycle is not None:
            return self._cycle[at % len(self._cycle)]
        steps = self._sessions.get(session)
        if steps is None:
            raise UsageError(
                f"the script has no session {session!r}; it has {', '.join(sorted(self._sessions)) or 'none'}"
            )
        if at >= len(steps):
            raise UsageError(f"the script of session {session!r} ran out: it holds {len(steps)} replies")
        return steps[at]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    context_length: int = 1 << 20
    replies: list[Step] | None = None
    sessions: dict[str, list[Step]] | None = None


def load_script(path: Path) -> ScriptedPolicy:
    """The policy that `path` scripts. Raises `UsageError`."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not a script: {error}") from error
    script = file.replies if file.replies is not None else file.sessions
    if script is None or (file.replies is not None and file.sessions is not None):
        raise UsageError(f"{path} must hold either replies or sessions")
    return ScriptedPolicy(script, name=file.name or f"scripted:{path}", context_length=file.context_length)


def _ready(step: Step) -> _Ready:
    if isinstance(step, ScriptedFailure):
        return step, step.delay
    try:
        ids = np.asarray(step.token_ids, np.int32)
    except OverflowError as error:
        raise UsageError(f"a script's token ids are numbers below 2**31: {error}") from error
    completion = Completion(
        token_ids=ids,
        logprobs=np.asarray(step.logprobs, np.float32),
        logprob_kind=step.kind,
        finish=step.finish,
        engine_finish=str(step.finish),
        versions=step.versions,
    )
    completion.token_ids.flags.writeable = False
    completion.logprobs.flags.writeable = False
    return completion, step.delay
