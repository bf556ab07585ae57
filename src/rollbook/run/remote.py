"""Clients of engines behind a URL. Needs the extra ``engines``, so it is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from rollbook.policy import EngineKind, Policy, RemoteName, TextName
from rollbook.policy.http import EngineAddress
from rollbook.policy.llamacpp import LlamacppPolicy
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.policy.text import TextPolicy
from rollbook.policy.vllm import VllmPolicy
from rollbook.run.access import Access

__all__ = ["open_remote", "open_text"]

_CLIENTS: dict[EngineKind, Callable[[RemoteConfig], Policy]] = {
    EngineKind.VLLM: VllmPolicy,
    EngineKind.SGLANG: SglangPolicy,
    EngineKind.LLAMACPP: LlamacppPolicy,
}


def open_remote(name: RemoteName, stop_ids: frozenset[int], access: Access) -> Policy:
    """The client of one engine, not connected yet. `stop_ids`: the renderer's."""
    config = RemoteConfig(name=str(name), address=_address(name.url, access), stop_ids=stop_ids, model=name.model)
    return _CLIENTS[name.engine](config)


def open_text(name: TextName, access: Access) -> Policy:
    """The client of a text-only endpoint, not connected yet."""
    address = _address(name.url, access)
    return TextPolicy(RemoteConfig(name=str(name), address=address, stop_ids=frozenset(), model=name.model))


def _address(url: str, access: Access) -> EngineAddress:
    return EngineAddress(
        url=url, api_key=access.api_key, connections=access.connections, timeout=access.request_timeout
    )
