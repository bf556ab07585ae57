"""An OpenAI-style endpoint that answers from a script."""

import contextlib

from aiohttp import web

from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.text import TextPolicy
from tests.policy.serving import serving


def said(content="hi", finish="stop", calls=None, usage=(7, 3), **message):
    """One reply."""
    given = {"role": "assistant", "content": content} | message
    if calls is not None:
        given["tool_calls"] = [
            {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
    counts = None if usage is None else {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return {"choices": [{"message": given, "finish_reason": finish}], "usage": counts}


class Endpoint:
    """Keeps what it was asked."""

    def __init__(self, *script, models=None):
        self.script, self.asked, self.sessions, self.models = list(script), [], [], models

    async def __call__(self, request):
        if request.path == "/v1/models":
            return web.json_response(self.models) if self.models else web.Response(status=404)
        if request.path != "/v1/chat/completions":
            return web.Response(status=404, text="no such route")
        self.asked.append(await request.json())
        self.sessions.append(request.headers["X-Session-ID"])
        answer = self.script.pop(0)
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


@contextlib.asynccontextmanager
async def connected(endpoint, base="", given=None, **changes):
    async with serving(endpoint) as url:
        config = RemoteConfig(
            name="text:x#m", address=EngineAddress(url=url + base), stop_ids=frozenset(), model="m", **changes
        )
        policy = TextPolicy(config, **(given or {}))
        await policy.start()
        try:
            yield policy
        finally:
            await policy.close()
