"""A text-only chat endpoint: messages in, one message out, no ids. Unknown fields are refused, as OpenAI's are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rollbook.policy.testing.ask import Refused

__all__ = ["ChatBody", "TextAnswer", "TextScript", "chat_reply", "echo", "error_body", "models_body"]


class TextAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a text-only endpoint says."""

    content: str | None = None
    tool_calls: Sequence[tuple[str, str]] = ()
    """(name, arguments as text)."""
    finish: str | None = None
    """None: ``tool_calls`` where there are any, else ``stop``."""


TextScript = Callable[[list[dict[str, Any]], list[dict[str, Any]], str], TextAnswer]
"""(messages, tools, session) -> answer."""


class ChatBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A chat request."""

    model: str
    messages: list[dict[str, Any]]
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: Any = None
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: Any = None
    user: str | None = None
    metadata: Any = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None


def echo(messages: list[dict[str, Any]], tools: list[dict[str, Any]], session: str) -> TextAnswer:
    """The answer where no script is given: how many messages came."""
    del tools, session
    return TextAnswer(content=f"{len(messages)} messages")


def chat_reply(answer: TextAnswer, body: ChatBody, *, name: str, counted: tuple[int, int]) -> dict[str, Any]:
    """`counted`: tokens of prompt and completion."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": arguments}}
        for number, (tool, arguments) in enumerate(answer.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    finish = answer.finish or ("tool_calls" if calls else "stop")
    prompt, completion = counted
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 0,
        "model": body.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def models_body(model: str) -> dict[str, Any]:
    """``/v1/models``."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "fake"}]}


def error_body(refused: Refused) -> dict[str, Any]:
    """An error reply."""
    kind = {429: "rate_limit_error"}.get(
        refused.status, "invalid_request_error" if refused.status < 500 else "server_error"
    )
    return {"error": {"message": str(refused), "type": kind, "param": None, "code": None}}
