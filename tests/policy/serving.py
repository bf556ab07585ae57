"""Small engine servers inside the test process: real sockets, scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web

from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STOP_ID = 9
TOKENS = {"a": 1, "b": 2, "c": 3, " STOP": 20, " more": 30, "<end>": STOP_ID}
SPELLED = {token: text for text, token in TOKENS.items()}
"""A vocabulary, where a test needs texts."""


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[str]:
    """A server on which `handler` answers everything; its URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class VllmServer:
    """Speaks vLLM's two routes. `answer` gives the choice and what changes beside it."""

    answer: Callable[[dict[str, Any]], Any] = lambda body: {"token_ids": [1, STOP_ID], "finish_reason": "stop"}
    mode: str = "raw"
    generates: bool = True
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "m", "max_model_len": 64}])
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list[Any])
    gone: int = 0
    """Requests whose client left."""
    probes: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/v1/models":
                return web.json_response({"object": "list", "data": self.models})
            case "/version":
                return web.json_response({"version": "0.33.0"})
            case "/inference/v1/generate" if not self.generates:
                return web.json_response({"error": {"message": "not enabled"}}, status=403)
            case "/inference/v1/generate" | "/v1/completions":
                return await self._sample(request)
            case _:
                return web.Response(status=404)

    async def _sample(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        parameters = body.get("sampling_params", body)
        if parameters["logprobs"]:
            self.probes += 1
            return web.json_response(self.probe(body, parameters, request.path))
        self.requests.append((request.path, dict(request.headers), body))
        try:
            answer = self.answer(body)
            answer = await answer if asyncio.iscoroutine(answer) else answer
        except asyncio.CancelledError:
            self.gone += 1
            raise
        if isinstance(answer, web.StreamResponse):
            return answer
        generates = request.path != "/v1/completions"
        return web.Response(body=json.dumps(reply_of(body, answer, generates)), content_type="application/json")

    def probe(self, body: dict[str, Any], parameters: dict[str, Any], path: str) -> dict[str, Any]:
        """Four tokens of falling logits, listed as the mode says."""
        logits = np.array([2.0, 1.0, 0.0, -1.0])
        shaped = logits / parameters["temperature"] if self.mode in ("temperature", "processed") else logits
        if self.mode == "processed" and parameters["top_k"]:
            shaped = np.where(np.arange(4) < parameters["top_k"], shaped, -np.inf)
        values = shaped if self.mode == "logits" else shaped - np.log(np.exp(shaped).sum())
        listed = {token: max(float(value), -9999.0) for token, value in enumerate(values)}
        if path == "/v1/completions":
            choice = {
                "token_ids": [0],
                "logprobs": {
                    "token_logprobs": [min(listed[0], 0.0)],
                    "tokens": ["token_id:0"],
                    "top_logprobs": [{f"token_id:{token}": value for token, value in listed.items()}],
                },
            }
            return reply_of(body, {"finish_reason": "length", **choice}, generates=False)
        entries = [{"token_id": token, "logprob": value, "rank": token + 1} for token, value in listed.items()]
        first = {**entries[0], "logprob": min(listed[0], 0.0), "top_logprobs": entries}
        answer = {"token_ids": [0], "finish_reason": "length", "logprobs": {"content": [first]}}
        return reply_of(body, answer, generates=True)


def reply_of(body: dict[str, Any], answer: dict[str, Any], generates: bool) -> dict[str, Any]:
    """A reply around `answer`: a choice, with `usage`, `prompt_token_ids` and `metrics` taken out of it."""
    choice = dict(answer)
    prompt = body["token_ids" if generates else "prompt"]
    ids = choice.get("token_ids") or []
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), **choice.pop("usage", {})}
    echo = choice.pop("prompt_token_ids", prompt)
    beside = {"usage": usage, "metrics": choice.pop("metrics", None)}
    logprobs = choice.pop("values", [-0.25 - place / 8 for place in range(len(ids))])
    if generates:
        pairs = zip(ids, logprobs, strict=True)
        content = [{"token_id": t, "logprob": v, "rank": 1, "top_logprobs": []} for t, v in pairs]
        choice = {"index": 0, "stop_reason": None, "logprobs": {"content": content}, **choice}
        return {"request_id": "r", "model": "m", "prompt_token_ids": echo, "choices": [choice], **beside}
    lists = {"token_logprobs": logprobs, "tokens": [SPELLED.get(token, "?") for token in ids], "text_offset": []}
    choice = {"index": 0, "text": "", "stop_reason": None, "logprobs": lists, "prompt_token_ids": echo, **choice}
    return {"id": "r", "model": "m", "choices": [choice], **beside}


def remote(url: str, **fields: Any) -> RemoteConfig:
    """A client's configuration for a server of a test."""
    name = fields.pop("name", f"vllm:{url}")
    limits = {name: fields.pop(name) for name in ("timeout", "connections", "max_reply") if name in fields}
    given = {"stop_ids": frozenset({STOP_ID}), **fields}
    return RemoteConfig(name=name, address=EngineAddress(url=url, **limits), **given)
