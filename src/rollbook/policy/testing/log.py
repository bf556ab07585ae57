"""What a fake engine remembers of each request.

Rule: an entry is there from the request's first moment; `status` is None until its end. Entries are only appended, so
the list may be read from another thread while the server runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from rollbook.policy.testing.faults import Dialect, Fault

__all__ = ["LogEntry", "prompt_digest"]


class LogEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One generation request."""

    session: str
    """Of the header ``X-Session-ID``; empty where none came."""
    number: int
    """Which of its session's requests, from 0."""
    dialect: Dialect
    route: str
    fields: dict[str, Any] = {}
    """The body without the prompt."""
    ignored: tuple[str, ...] = ()
    """Fields of the body that the real server silently drops: a client that sends one is wrong."""
    prompt_tokens: int = 0
    prompt_digest: str = ""
    """Of the prompt's ids, by `prompt_digest`."""
    fault: Fault | None = None
    """What was injected."""
    status: int | None = None
    """Of the HTTP reply; 0: none was sent (reset); None: still running, or the client left."""
    cancelled: bool = False
    """The client left before the reply."""
    token_ids: list[int] = []
    """Ids that were returned."""
    finish: str = ""
    """In the server's words."""
    versions: list[tuple[str, int]] = []
    """(label, tokens) of the ids."""
    cached_tokens: int = 0
    started: float = 0.0
    """Seconds since the server began."""
    seconds: float = 0.0
    """Until the reply."""


def prompt_digest(ids: Sequence[int]) -> str:
    """Tells prompts apart in 16 hex digits."""
    return blake2b(np.asarray(ids, np.int32).tobytes(), digest_size=8).hexdigest()
