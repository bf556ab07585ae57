"""How a trainer swaps the weights of a running engine: pause, load, label, drop the cache, resume.

Rules: the label changes while nothing is sampled, so each token's version is that of the weights it came from; keys and
values that old weights computed are dropped, so nothing that is sampled later rests on them; an update that failed
leaves the engine paused, for nobody knows which weights it holds. What the engine does not say that it did is an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.http import EngineAddress, HttpClient, HttpReply, failure_of
from rollbook.policy.versions import label_of, version_of
from rollbook.policy.weights import PauseMode

__all__ = ["SglangControl", "VllmControl"]

_VLLM_REMEDY = "start the server with VLLM_SERVER_DEV_MODE=1"


class _Success(msgspec.Struct):
    success: bool
    message: str = ""


class _Label(msgspec.Struct):
    weight_version: str


class _Control(ABC):
    def __init__(self, address: EngineAddress) -> None:
        """`address.timeout` bounds each step; loading weights is one."""
        self._http = HttpClient(address)

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        await self._http.close()

    async def _check_label(self, version: int) -> None:
        if (now := await self.version()) != version:
            raise UsageError(f"the engine labels its weights {now} behind the update to {version}")

    @abstractmethod
    async def version(self) -> int | None: ...


def _check_done(reply: HttpReply, what: str) -> None:
    """The engine must say that it did it."""
    if not (said := reply.decode(_Success)).success:
        raise UsageError(f"the engine did not {what}: {said.message or 'it gives no reason'}")


class VllmControl(_Control):
    """vLLM's own routes for it, of its development mode."""

    async def pause(self, mode: PauseMode) -> None:
        await self._post(f"/pause?mode={mode}")

    async def resume(self) -> None:
        await self._post("/resume")

    async def update(self, weights: Path, version: int) -> None:
        load = {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}}
        await self._post("/collective_rpc", load)
        label = await self._post("/update_weight_version", {"new_version": label_of(version)})
        _check_done(label, "take the new label")
        # Requests that stand still hold blocks of the cache: they give them up and compute them again.
        dropped = await self._post("/reset_prefix_cache?reset_running_requests=true")
        _check_done(dropped, "drop its prefix cache")
        await self._check_label(version)

    async def version(self) -> int | None:
        return version_of((await self._send("GET", "/weight_info")).decode(_Label).weight_version)

    async def _post(self, path: str, body: Any = None) -> HttpReply:
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: Any = None) -> HttpReply:
        reply = await self._http.send(method, path, body)
        if reply.status == HTTPStatus.NOT_FOUND:
            raise UsageError(f"vLLM does not offer {path}: {_VLLM_REMEDY}")
        if reply.status != HTTPStatus.OK:
            raise failure_of(reply)
        return reply


_SGLANG_MODES = {PauseMode.ABORT: "abort", PauseMode.KEEP: "retract"}
"""Of its two ways to keep requests, `in_place` would go on with keys and values of the old weights."""


class SglangControl(_Control):
    """SGLang's routes for it."""

    async def pause(self, mode: PauseMode) -> None:
        if mode not in _SGLANG_MODES:
            raise ConfigError(f"SGLang cannot pause with mode '{mode}': use '{PauseMode.KEEP}' or '{PauseMode.ABORT}'")
        await self._http.post("/pause_generation", {"mode": _SGLANG_MODES[mode]})

    async def resume(self) -> None:
        await self._http.post("/continue_generation", {})

    async def update(self, weights: Path, version: int) -> None:
        load = {
            "model_path": str(weights),
            "load_format": None,
            "abort_all_requests": False,
            "weight_version": label_of(version),
            "flush_cache": True,
        }
        _check_done(await self._post("/update_weights_from_disk", load), "load the weights")
        # By default the label's own route aborts every request.
        label = {"new_version": label_of(version), "abort_all_requests": False}
        _check_done(await self._post("/update_weight_version", label), "take the new label")
        await self._http.post("/flush_cache", None)
        await self._check_label(version)

    async def version(self) -> int | None:
        return version_of((await self._http.get("/model_info")).decode(_Label).weight_version)

    async def _post(self, path: str, body: Any) -> HttpReply:
        """A failed step is a 400 with its reason in the body."""
        reply = await self._http.send("POST", path, body)
        if reply.status not in (HTTPStatus.OK, HTTPStatus.BAD_REQUEST):
            raise failure_of(reply)
        return reply
