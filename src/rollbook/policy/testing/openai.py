"""The dialect of a text-only endpoint. Its counts are of words: it has no tokens to tell of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rollbook.policy.testing.ask import Refused, Reply, Request
from rollbook.policy.testing.bodies import read
from rollbook.policy.testing.faults import Fault
from rollbook.policy.testing.openai_wire import ChatBody, TextAnswer, chat_reply, error_body, models_body
from rollbook.policy.testing.speech import Call, Control, Engine

__all__ = ["OpenaiSpeech"]


class OpenaiSpeech:
    """Speaks for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def generations(self) -> Mapping[str, Callable[[Call], Awaitable[Any]]]:
        return {"/v1/chat/completions": self._chat}

    @property
    def controls(self) -> Mapping[tuple[str, str], Control]:
        return {("GET", "/v1/models"): self._models}

    def error(self, refused: Refused) -> Any:
        return error_body(refused)

    async def _chat(self, call: Call) -> Any:
        body = read(call.body, ChatBody)
        settings = self._engine.settings
        if body.model != settings.shape.model:
            raise Refused(404, f"The model `{body.model}` does not exist or you do not have access to it.")
        if not body.messages:
            raise Refused(400, "[] is too short - 'messages'")
        if body.stream:
            raise Refused(400, "this endpoint does not stream")
        answer = settings.text_script(body.messages, body.tools or [], call.entry.session)
        limit = body.max_completion_tokens or body.max_tokens
        words = (answer.content or "").split(" ")
        if limit is not None and len(words) > limit:
            answer = TextAnswer(content=" ".join(words[:limit]), finish="length")
        counted = sum(len(str(each.get("content") or "").split()) for each in body.messages)
        completion = len((answer.content or "").split()) + len(answer.tool_calls)
        call.entry.prompt_tokens = counted
        call.entry.finish = answer.finish or "stop"
        await self._engine.scheduler.wait(call.entry.session, call.entry.number, counted, completion)
        extra = 1 if call.fault is Fault.WRONG_COUNT else 0
        return chat_reply(answer, body, name=self._engine.name(), counted=(counted, completion + extra))

    async def _models(self, _: Request) -> Reply:
        return Reply(msgspec.json.encode(models_body(self._engine.shape.model)))
