"""The files of whatever a policy names; of an engine behind a URL, from where it says that its model lies.

A remote engine takes and gives ids, so the tokenizer must be its model's own. It is asked for once, before anything
runs; what it says counts only where the path is there. Nothing is guessed from a model's name.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ConfigError, UsageError
from rollbook.models import ModelFiles, ProgressCallback
from rollbook.policy import EngineKind, PolicyName, RemoteName, TextName, parse_policy_name
from rollbook.policy.address import check_key
from rollbook.run.access import Access
from rollbook.run.model_files import files_at, files_of, spells_policy

__all__ = ["ModelSource", "files_for"]

ASK_SECONDS = 30.0
"""The most time that an engine gets to say what it serves."""
MOST = 1 << 24
"""Bytes of what it says that are read."""
_ROUTES: dict[EngineKind, Sequence[str]] = {
    EngineKind.VLLM: ("/v1/models",),
    EngineKind.SGLANG: ("/model_info", "/get_model_info"),
    EngineKind.LLAMACPP: ("/props",),
}


class _Row(msgspec.Struct):
    id: str = ""
    root: str | None = None


class _Said(msgspec.Struct):
    """What the three engines say, each in its own place."""

    data: list[_Row] = []
    tokenizer_path: str | None = None
    model_path: str | None = None

    def path(self, model: str | None) -> str | None:
        """The path, of the model called `model` where several are served."""
        rows = [row.root for row in self.data if model in (None, row.id)]
        return (rows[0] if len(rows) == 1 else None) or self.tokenizer_path or self.model_path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """What is needed beside a policy's name to find its files."""

    tokenizer: Path | str | None = None
    """Of an engine's model: a tokenizer folder, a GGUF file, or a policy that has files (``local:smollm2-135m``); None:
    where the engine says that its model lies."""
    access: Access = field(default_factory=Access)
    progress: ProgressCallback | None = None
    """Told about downloads."""
    seconds: float = ASK_SECONDS
    """How long the engine may take to say what it serves."""


def files_for(name: PolicyName, source: ModelSource) -> ModelFiles:
    """The model files of a policy. Raises `UsageError` with the remedy."""
    if isinstance(name, RemoteName):
        return _served(name, source)
    if isinstance(name, TextName):
        raise UsageError(f"{name} is a text-only endpoint: it renders by itself, and nothing is known of its tokenizer")
    if source.tokenizer is not None:
        raise ConfigError(f"policy '{name}' has a tokenizer of its own: give no other (--tokenizer)")
    return files_of(name, source.access.kept, source.progress)


def _served(name: RemoteName, source: ModelSource) -> ModelFiles:
    if source.tokenizer is not None:
        return _given(source.tokenizer, source)
    said = _said_path(name, source)
    remedy = "name its tokenizer folder or GGUF file: --tokenizer PATH (tokenizer= in Python)"
    if said is None:
        raise UsageError(f"{name} does not say where its model lies: {remedy}")
    path = Path(said)
    if not path.is_absolute() or not _is_there(path):
        raise UsageError(f"{name} serves {said!r}, which is not on this machine: {remedy}")
    return files_at(path, source.access.kept)


def _given(tokenizer: Path | str, source: ModelSource) -> ModelFiles:
    if not spells_policy(tokenizer):
        return files_at(Path(tokenizer), source.access.kept)
    named = parse_policy_name(str(tokenizer))
    if isinstance(named, RemoteName | TextName):
        raise UsageError(f"{tokenizer} has no files of its own: name a tokenizer folder, a GGUF file or local:MODEL")
    return files_of(named, source.access.kept, source.progress)


def _said_path(name: RemoteName, source: ModelSource) -> str | None:
    for route in _ROUTES[name.engine]:
        said = _get(name, route, source)
        if said is not None:
            return said.path(name.model)
    return None


def _get(name: RemoteName, route: str, source: ModelSource) -> _Said | None:
    """What `route` says; None where the engine has no such route."""
    key = source.access.api_key
    check_key(key)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(name.url + route, headers=headers)  # noqa: S310 (http or https by the grammar)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stays())
    try:
        with opener.open(request, timeout=source.seconds) as reply:
            return _decode(name, route, _read(reply, source.seconds))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (http.client.NOT_FOUND, http.client.NOT_IMPLEMENTED):
                return None
            if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
                raise UsageError(f"{name} refuses access (HTTP {error.code}): {_KEY}") from error
            raise UsageError(f"{name} cannot be asked what it serves (HTTP {error.code} at {route})") from error
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"{name} cannot be reached ({_why(error)}): see that it runs, and the address") from error


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would carry the key to wherever the answer points."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


def _read(reply: http.client.HTTPResponse, seconds: float) -> bytes:
    """The body, and no longer than all of it may take; a single read waits for each byte anew."""
    until = time.monotonic() + seconds
    parts: list[bytes] = []
    while sum(map(len, parts)) < MOST and (part := reply.read1(1 << 16)):
        parts.append(part)
        if time.monotonic() > until:
            raise TimeoutError(f"no whole answer within {seconds:g} s")
    return b"".join(parts)


def _is_there(path: Path) -> bool:
    """False also for what no path can be on this machine."""
    try:
        return path.exists()
    except OSError:
        return False


_KEY = "give its key in ROLLBOOK_API_KEY (api_key= in Python)"


def _why(error: Exception) -> Any:
    return error.reason if isinstance(error, urllib.error.URLError) else error or type(error).__name__


def _decode(name: RemoteName, route: str, body: bytes) -> _Said:
    try:
        return msgspec.json.decode(body, type=_Said)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} does not answer as such an engine does ({route}: {error})") from error
