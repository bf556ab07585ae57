"""llama.cpp's server inside this process (``xllamacpp``): on a free loopback port, closed to others by a random key.

Stopping it frees threads and memory, but only once no request is in flight: while the object is being freed the
interpreter stands still, and a reply that waits for it would wait for ever. The caller drains it first.
"""

# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# (xllamacpp ships no types; this is the one module that touches it)

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xllamacpp

from rollbook.errors import ModelError, boundary

__all__ = ["EmbeddedServer", "ServerConfig"]

ENGINE = f"llama.cpp (xllamacpp {xllamacpp.__version__})"
"""The engine and its version."""

START_TIMEOUT = 60.0
"""Seconds for the first answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How the server is started."""

    weights: Path
    """A GGUF file."""
    context_length: int
    """Tokens of one sequence; every slot has room for as many."""
    slots: int
    """Sequences that are decoded at once."""
    threads: int
    """Compute threads."""
    float32: bool = False
    """Keep keys and values in float32 and leave flash attention off; by default they are float16."""


class EmbeddedServer:
    """A running server; `stop` ends it."""

    def __init__(self, config: ServerConfig) -> None:
        """Load the weights and listen; blocks for about a second. Raises `ModelError`."""
        if not config.weights.is_file():
            raise ModelError(f"there is no model file {config.weights}: check the path")
        self.key = secrets.token_urlsafe(32)
        """To be sent as a bearer token."""
        with boundary(f"llama.cpp cannot load {config.weights}", ModelError):
            self._server: Any = xllamacpp.Server(_parameters(config, self.key))
        self.url: str = self._server.listening_address
        """Where it listens, e.g. ``http://127.0.0.1:38301``."""
        with boundary("llama.cpp does not answer", ModelError):
            self._wait()

    def _wait(self) -> None:
        """Return once the server's work loop answers: freeing a server whose loop has not begun hangs."""
        address = urlsplit(self.url)
        link = HTTPConnection(address.hostname or "", address.port, timeout=START_TIMEOUT)
        with closing(link):
            link.request("GET", "/slots", headers={"Authorization": f"Bearer {self.key}", "Connection": "close"})
            link.getresponse().read()

    def stop(self) -> None:
        """Free it. No request may be in flight. Calling it twice does nothing."""
        self._server = None


def _parameters(config: ServerConfig, key: str) -> Any:
    p: Any = xllamacpp.CommonParams()
    p.model.path = str(config.weights)
    p.hostnames = ["127.0.0.1"]
    p.port = 0
    p.api_keys = [key]
    p.cpuparams.n_threads = config.threads
    p.cpuparams_batch.n_threads = config.threads
    p.n_parallel = config.slots
    p.n_ctx = config.slots * config.context_length
    p.kv_unified = True
    p.ctx_shift = False
    p.fit_params = False
    p.warmup = False
    p.cache_prompt = True
    p.cache_ram_mib = 512
    p.n_threads_http = config.slots + 4
    p.endpoint_slots = True
    p.ui = False
    p.verbosity = -1
    if config.float32:
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return p
