"""What goes to and comes from an OpenAI-style ``/chat/completions`` route, without I/O.

Rules: every sampling field that the route has is set in each request; one that it has no field for must be neutral.
Earlier reasoning is not sent back, for the route has no place for it. A tool call's arguments go back as the text that
came. Token counts are the endpoint's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.endpoint import TextCall, TextReply
from rollbook.policy.http import HttpReply, error_of, failure_of
from rollbook.policy.inner_error import read_body
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["LimitField", "chat_body", "check_sampling", "refusal_of", "reply_of"]

MAX_STOPS = 4
"""Stop strings that the route takes."""
MAX_TOKENS = 1 << 24
"""More for one generation is no limit."""
_NEUTRAL = msgspec.structs.asdict(Sampling())
_NO_FIELD = ("top_k", "min_p", "repetition_penalty", "grammar", "stop_token_ids")
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|longer than the model's context length"
)
_NO_QUOTA = re.compile(r"insufficient_quota")

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class LimitField(StrEnum):
    """What a route calls the most tokens of one generation."""

    MAX_COMPLETION_TOKENS = "max_completion_tokens"
    """The name of today; reasoning counts."""
    MAX_TOKENS = "max_tokens"
    """The older name."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Cached(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Cached | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


def check_sampling(sampling: Sampling) -> None:
    """Raise `ConfigError` for what the route has no field for."""
    for name in _NO_FIELD:
        value: object = msgspec.structs.asdict(sampling)[name]
        if value != _NEUTRAL[name]:
            raise ConfigError(f"a text-only endpoint has no field for {name}: leave it at {_NEUTRAL[name]}")
    if len(sampling.stop) > MAX_STOPS:
        raise ConfigError(f"a text-only endpoint takes at most {MAX_STOPS} stop strings, not {len(sampling.stop)}")
    if sampling.max_tokens is None or sampling.max_tokens > MAX_TOKENS:
        raise ConfigError(
            "a text-only endpoint needs a limit for each generation, for nobody here can count what fits: set "
            "Limits(max_generation=...)"
        )


def chat_body(
    model: str, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, field: LimitField
) -> msgspec.Raw:
    """A request, as JSON; a lone surrogate goes as its escape."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [_entry(message) for message in messages],
        str(field): sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "n": 1,
        "stream": False,
    }
    if tools:
        body |= {"tools": [tool.openai() for tool in tools], "tool_choice": "auto"}
    return msgspec.Raw(json.dumps(body).encode())


def _entry(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        entry["tool_call_id"] = message.call_id
    if message.tool_calls:
        entry["tool_calls"] = [_sent_call(call) for call in message.tool_calls]
        entry["content"] = message.content or None
    return entry


def _sent_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name or "", "arguments": call.raw}}


def reply_of(reply: HttpReply, sampling: Sampling) -> TextReply:
    """Read a reply of status 200; an error in its body is raised as its cause. Raises `RolloutFailure`."""
    read = read_body(reply, _Reply, refusal_of)
    if len(read.choices) != 1:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"{len(read.choices)} choices, one was asked for")
    choice, usage = read.choices[0], read.usage or _Usage()
    said, details = choice.message, usage.prompt_tokens_details
    made = usage.completion_tokens
    _check(choice)
    if made is not None and sampling.max_tokens is not None and made > sampling.max_tokens:
        raise RolloutFailure(
            Reason.ENGINE_CONTRACT,
            f"{made} tokens, more than the {sampling.max_tokens} asked for: the endpoint may know the limit by another "
            "name (LimitField)",
        )
    return TextReply(
        message=Message(
            role=Role.ASSISTANT,
            content=said.content or said.refusal or "",
            reasoning=said.reasoning_content if said.reasoning_content is not None else said.reasoning,
        ),
        calls=tuple(map(_call, said.tool_calls or ())),
        finish=_finish(choice),
        engine_finish=choice.finish_reason or "",
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=made,
        cached_tokens=None if details is None else details.cached_tokens,
    )


def _check(choice: _Choice) -> None:
    """Raises `RolloutFailure` where the reply does not agree with itself."""
    said = choice.message
    ids = [call.id for call in said.tool_calls or () if call.id]
    checks = (
        (not (said.content and said.refusal), "the reply is both a text and a refusal"),
        (len(set(ids)) == len(ids), "two tool calls have one id"),
        (bool(said.tool_calls) or choice.finish_reason != "tool_calls", "finish by tool calls, and the reply has none"),
    )
    for fine, problem in checks:
        if not fine:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, problem)


def _call(call: _Call) -> TextCall:
    given = call.function or _Function()
    return TextCall(call.id or None, given.name or None, _arguments(bytes(given.arguments)))


def _arguments(said: bytes) -> str:
    """JSON text in a string, as the route has it; what is no string stays as it came, its keys and numbers untouched.
    Raises `RolloutFailure` (`engine_contract`)."""
    try:
        return msgspec.json.decode(said, type=str) if said.startswith(b'"') else said.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"unreadable arguments of a tool call: {error}") from error


def _finish(choice: _Choice) -> Finish:
    match choice.finish_reason:
        case "stop" if isinstance(choice.stop_reason, str):
            return Finish.STOP_STRING
        case "stop" | "tool_calls":
            return Finish.STOP
        case "length":
            return Finish.LENGTH
        case "content_filter" | "error":
            return Finish.ERROR
        case "abort":
            return Finish.ABORT
        case other:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the endpoint finished by {other!r}"[:200])


def refusal_of(reply: HttpReply) -> Exception:
    """The failure that a reply of another status than 200 stands for."""
    message, kind = error_of(reply)
    text = reply.body[:2000].decode("utf-8", "replace")
    if reply.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE) and _OVERFLOW.search(text):
        return RolloutFailure(Reason.CONTEXT_OVERFLOW, message)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS and _NO_QUOTA.search(f"{kind} {text}"):
        return RolloutFailure(Reason.RATE_LIMITED, message)  # no waiting brings it back
    return failure_of(reply)
