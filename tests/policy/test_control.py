"""Weight swaps: what each engine is sent, in which order, and what it must say back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.control import SglangControl, VllmControl
from rollbook.policy.http import EngineAddress
from rollbook.policy.weights import PauseMode, WeightControl, swap_weights
from rollbook.trace import RolloutFailure
from tests.policy.serving import serving

FOLDER = Path("weights/7")


@dataclass
class Steps:
    """Keeps what is sent; answers as told by path, else that it is done."""

    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    label: str = "default"
    seen: list[tuple[str, Any]] = field(default_factory=list[Any])

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        sent = json.loads(body) if body else None
        self.seen.append((request.path_qs, sent))
        if (answer := self.answers.get(request.path)) is not None:
            return answer if isinstance(answer, web.Response) else web.json_response(answer)
        if request.method == "GET":
            return web.json_response({"weight_version": self.label})
        if request.path == "/update_weight_version":
            self.label = sent["new_version"]
        return web.json_response({"success": True, "message": "done"})


def swap(
    kind: type[VllmControl] | type[SglangControl],
    steps: Steps,
    use: Callable[[WeightControl], Awaitable[Any]] | None = None,
    **how: Any,
) -> Any:
    async def main() -> Any:
        async with serving(steps.handle) as url:
            control = kind(EngineAddress(url=url))
            await control.open()
            try:
                return await (swap_weights(control, FOLDER, 7, **how) if use is None else use(control))
            finally:
                await control.close()
                await control.close()

    return asyncio.run(main())


def test_vllm() -> None:
    steps = Steps()
    swap(VllmControl, steps)
    assert steps.seen == [
        ("/pause?mode=keep", None),
        ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(FOLDER)}}),
        ("/update_weight_version", {"new_version": "7"}),
        ("/reset_prefix_cache?reset_running_requests=true", None),
        ("/weight_info", None),
        ("/resume", None),
    ]


def test_sglang() -> None:
    steps = Steps()
    swap(SglangControl, steps)
    load = {"model_path": str(FOLDER), "load_format": None, "weight_version": "7", "flush_cache": True}
    assert steps.seen == [
        ("/pause_generation", {"mode": "retract"}),
        ("/update_weights_from_disk", {**load, "abort_all_requests": False}),
        ("/update_weight_version", {"new_version": "7", "abort_all_requests": False}),
        ("/flush_cache", None),
        ("/model_info", None),
        ("/continue_generation", {}),
    ]


@pytest.mark.parametrize(
    ("kind", "mode", "sent"),
    [
        (VllmControl, PauseMode.ABORT, ("/pause?mode=abort", None)),
        (VllmControl, PauseMode.WAIT, ("/pause?mode=wait", None)),
        (SglangControl, PauseMode.ABORT, ("/pause_generation", {"mode": "abort"})),
    ],
)
def test_pauses(kind: Any, mode: PauseMode, sent: Any) -> None:
    steps = Steps()
    swap(kind, steps, mode=mode)
    assert steps.seen[0] == sent


def test_sglang_cannot_wait() -> None:
    steps = Steps()
    with pytest.raises(ConfigError, match="use 'keep' or 'abort'"):
        swap(SglangControl, steps, mode=PauseMode.WAIT)
    assert steps.seen == []


NO = web.json_response
FAILED = {"success": False, "message": "no such folder"}


@pytest.mark.parametrize(
    ("kind", "path", "answer", "error", "problem"),
    [
        (VllmControl, "/collective_rpc", lambda: web.Response(status=500, text="boom"), RolloutFailure, "boom"),
        (VllmControl, "/pause", lambda: web.Response(status=404), UsageError, "VLLM_SERVER_DEV_MODE"),
        (VllmControl, "/reset_prefix_cache", lambda: {"success": False}, UsageError, "drop its prefix cache"),
        (VllmControl, "/weight_info", lambda: {"weight_version": "6"}, UsageError, "labels its weights 6"),
        (SglangControl, "/update_weights_from_disk", lambda: NO(FAILED, status=400), UsageError, "no such folder"),
        (SglangControl, "/update_weights_from_disk", lambda: web.Response(status=500), RolloutFailure, "500"),
        (SglangControl, "/flush_cache", lambda: web.Response(status=400), ConfigError, "400"),
        (SglangControl, "/model_info", lambda: {"weight_version": "x"}, UsageError, "labels its weights None"),
    ],
)
def test_a_step_that_failed_leaves_the_engine_paused(
    kind: Any, path: str, answer: Callable[[], Any], error: type[Exception], problem: str
) -> None:
    steps = Steps({path: answer()})
    with pytest.raises(error, match=problem):
        swap(kind, steps)
    assert not {"/resume", "/continue_generation"}.intersection(path for path, _ in steps.seen)


@pytest.mark.parametrize("kind", [VllmControl, SglangControl])
def test_versions(kind: Any) -> None:
    for label, version in (("default", 0), ("step-3", 3), ("main", None)):
        assert swap(kind, Steps(label=label), lambda control: control.version()) == version
