"""How engines and models are reached: what is no part of a run's configuration, and never recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rollbook.models import default_cache

__all__ = ["CONNECTIONS", "REQUEST_TIMEOUT", "Access"]

CONNECTIONS = 64
"""Connections to an engine, unless told otherwise."""
REQUEST_TIMEOUT = 600.0
"""Seconds of a request to an engine, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way to engines and models."""

    api_key: str | None = field(default=None, repr=False)
    """Sent to the engine, kept nowhere; None: none."""
    connections: int = CONNECTIONS
    """Open at once; further requests wait for one. A run takes as many as it has rollouts in flight, at least."""
    request_timeout: float = REQUEST_TIMEOUT
    """Seconds that one request may take; a run's configuration says its own."""
    cache: Path | None = None
    """Where fetched models are kept; None: the user's cache folder."""

    @property
    def kept(self) -> Path:
        """The folder of `cache`, whoever named it."""
        return self.cache or default_cache()
