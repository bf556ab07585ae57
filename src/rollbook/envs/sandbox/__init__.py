"""Sandboxes: code of the policy runs in them, bounded, apart from the host, and leaves nothing behind."""

from rollbook.envs.sandbox.lifecycle import Leftover, SandboxLifecycle, Swept
from rollbook.envs.sandbox.opening import leftovers, open_sandbox, sandbox, sweep
from rollbook.envs.sandbox.plain import NotIsolated
from rollbook.envs.sandbox.protocol import (
    CommandRefused,
    FileRefused,
    Provider,
    Sandbox,
    SandboxRemains,
    SandboxSpec,
    Ticket,
)
from rollbook.envs.sandbox.result import Cause, ExecResult, Kind, SandboxInfo, SandboxLimits
from rollbook.envs.sandbox.tickets import default_folder

__all__ = [
    "Cause",
    "CommandRefused",
    "ExecResult",
    "FileRefused",
    "Kind",
    "Leftover",
    "NotIsolated",
    "Provider",
    "Sandbox",
    "SandboxInfo",
    "SandboxLifecycle",
    "SandboxLimits",
    "SandboxRemains",
    "SandboxSpec",
    "Swept",
    "Ticket",
    "default_folder",
    "leftovers",
    "open_sandbox",
    "sandbox",
    "sweep",
]
