"""Every error that Rollbook raises on purpose, and the one helper that makes them at an edge.

RollbookError
├── UsageError            the caller asked for something that cannot be done; the message says what to do instead
│   ├── ModelError        a model folder, GGUF file, tokenizer or template is missing, altered or unusable
│   │   └── VariablesUnread (in ``rollbook.run.templates``) the chat template never reads what is set for it
│   ├── ConfigError       a configuration is wrong, or differs from the one that a run was started with
│   │   └── NoSuchRoute   (in ``rollbook.policy.http``) the engine's server is of another kind
│   ├── WorkersDie        (in ``rollbook.rollout.pool``) worker processes die faster than they give results
│   ├── DiedLoading       (in ``rollbook.rollout.pool``) a worker process died before it took orders
│   ├── InfrastructureDown (in ``rollbook.rollout.breaker``) too many attempts end as errors
│   └── StoreError        a run folder or segment cannot be opened, read or written
│       ├── DamagedFrame  (in ``rollbook.store.frame``) stored bytes are not what was written
│       ├── NewerFormat   written by a newer version than this one can read
│       └── RunLocked     another process writes into the same run
├── RecordError           data breaks an invariant of the record; it was refused and nothing was changed
├── RolloutFailure        (in ``rollbook.trace.ending``) a fault that ends a rollout, with its typed reason
│   └── EngineBusy        (in ``rollbook.policy``) the engine turns the request away for load; it is asked again
├── WorkerLost            (in ``rollbook.rollout.pool``) the worker of an order is gone; stays in the pool
│   └── NotTaken          (in ``rollbook.rollout.pool``) it was gone before the order began
├── NotConforming         (in ``rollbook.render.conformance``) a renderer does not do what every renderer must
├── SandboxRemains        (in ``rollbook.envs.sandbox``) something of a sandbox could not be removed, and stays listed
├── ProcessLost           (in ``rollbook.envs``) the process that served a call died over it
├── ScoringFailed         (in ``rollbook.rewards.scorers``) a scorer cannot tell; there is no reward
│   └── JudgeFailed       (in ``rollbook.rewards.scorers``) a judge gave no verdict, with its typed reason
├── ForeignError, NotConvertible (in ``rollbook.envs``) what a user's own code did; stays in the rollout
└── ToolRefused           (in ``rollbook.envs``) a tool cannot do what was asked; likewise
    └── FileRefused, CommandRefused (in ``rollbook.envs.sandbox``) nor can a sandbox

A ``UsageError`` reaches the terminal as one message without a traceback (exit code 2). Anything that is not a
``RollbookError`` and escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

__all__ = [
    "ConfigError",
    "ModelError",
    "NewerFormat",
    "RecordError",
    "RollbookError",
    "RunLocked",
    "StoreError",
    "UsageError",
    "behind",
    "boundary",
    "first_cause",
    "optional",
    "told",
]


_PANIC = "pyo3_runtime"
"""The module of the panics of Rust libraries; each library has a class of its own, and none can be imported."""


class RollbookError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(RollbookError):
    """The request cannot be carried out as asked; the message names the remedy."""


class ModelError(UsageError):
    """A model file, tokenizer or chat template is missing, altered or unusable."""


class ConfigError(UsageError):
    """A configuration is invalid or does not match the stored one."""


class StoreError(UsageError):
    """A run folder or one of its files cannot be opened, read or written."""


class NewerFormat(StoreError):
    """The file was written by a newer version of Rollbook."""


class RunLocked(StoreError):
    """Another process is writing into this run."""


class RecordError(RollbookError):
    """Data breaks an invariant of the record; nothing was stored."""


@contextmanager
def boundary(what: str, wrap: Callable[[str], RollbookError]) -> Generator[None]:
    """Turn anything that escapes foreign code into one typed error, attributed to `what`.

    Errors of ours pass unchanged, as do cancellation and Ctrl-C. ``SystemExit`` does not: foreign code that calls
    ``exit`` would end the whole process, with an exit code of its own choosing. Nor does a panic of a Rust library,
    which is no ``Exception`` although the process can go on. This is the only place in the project that catches
    ``Exception``.
    """
    try:
        yield
    except RollbookError:
        raise
    except (Exception, SystemExit) as error:
        raise wrap(f"{what}: {type(error).__name__}: {_text_of(error)}") from error
    except BaseException as error:
        if type(error).__module__ != _PANIC:
            raise
        raise wrap(f"{what}: {type(error).__name__}: {_text_of(error)}") from error


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure of a task group: the others are its consequences."""
    cause = group.exceptions[0]
    return (
        first_cause(cast("BaseExceptionGroup[BaseException]", cause))
        if isinstance(cause, BaseExceptionGroup)
        else cause
    )


def optional(module: str, *packages: str, says: Callable[[ModuleNotFoundError], str]) -> ModuleType:
    """The module of ours that needs some of the optional `packages`. Raises `UsageError` with what `says` makes of it
    where one of them is missing; whatever else cannot be imported is a fault of ours, and passes."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise UsageError(says(error)) from error


@contextmanager
def behind(cause: BaseException | None) -> Generator[None]:
    """For clean-up that comes after `cause`: what fails of it becomes a note on the cause, which stays what is raised.
    After nothing, and after a cancellation, which is no failure, it is raised itself."""
    try:
        yield
    except RollbookError as error:
        if not isinstance(cause, Exception):
            raise
        cause.add_note(f"Behind it, {error}")


def told(error: BaseException) -> str:
    """What an error says, and what is noted on it."""
    notes: list[str] = vars(error).get("__notes__", [])
    return "\n".join((str(error), *notes))


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or repr(error)
    except Exception:  # noqa: BLE001 (an error can fail at its own text, too)
        return "(its text cannot be made)"
