"""Text-only endpoints over OpenAI-style ``/chat/completions``: ``text:URL#MODEL``.

Rules: a URL with a path is the base of the routes, as OpenAI's client takes it (``https://host/v1``); one without gets
``/v1``. One reply is one request. The endpoint renders, samples and parses by itself, so its traces have no token ids
and the counts in them are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from rollbook.errors import UsageError
from rollbook.policy.endpoint import TextEndpoint, TextReply
from rollbook.policy.http import HttpClient, failure_of
from rollbook.policy.protocol import PolicyInfo
from rollbook.policy.remote import (
    GREETING_SECONDS,
    Linked,
    RemoteConfig,
    ServedModel,
    ServedModels,
    context_of,
    session_headers,
)
from rollbook.policy.text_wire import LimitField, chat_body, check_sampling, refusal_of, reply_of
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.message import Message
from rollbook.trace.tools import ToolSpec

__all__ = ["TextPolicy"]


class TextPolicy(Linked, TextEndpoint):
    """A model behind an OpenAI-style endpoint."""

    def __init__(self, config: RemoteConfig, *, limit_field: LimitField = LimitField.MAX_COMPLETION_TOKENS) -> None:
        """`config.model` is needed; `config.stop_ids` has no meaning here. Raises `UsageError`."""
        if config.model is None:
            raise UsageError(f"{config.name} names no model: write text:URL#MODEL")
        super().__init__(config)
        self._model = config.model
        self._limit_field = limit_field
        self._base = "" if urlsplit(config.address.url).path.strip("/") else "/v1"

    async def _greet(self, http: HttpClient) -> PolicyInfo:
        return PolicyInfo(
            name=self._config.name,
            engine="text-only endpoint",
            context_length=self._context(await self._listed(http)),
            logprob_kind=LogprobKind.UNKNOWN,
        )

    async def _listed(self, http: HttpClient) -> ServedModel | None:
        """What the endpoint says of the model; None where it lists none, or not this one (aliases are not listed)."""
        reply = await http.send("GET", f"{self._base}/models", seconds=GREETING_SECONDS)
        if reply.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return None
        if reply.status != HTTPStatus.OK:
            raise failure_of(reply)
        return next((model for model in reply.decode(ServedModels).data if model.id == self._model), None)

    def _context(self, listed: ServedModel | None) -> int | None:
        offered = None if listed is None else listed.max_model_len
        said = any(length is not None for length in (offered, self._config.context_length))
        return context_of(self._config, offered) if said else None

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling, session: str
    ) -> TextReply:
        check_sampling(sampling)
        body = chat_body(self._model, messages, tools, sampling, self._limit_field)
        path = f"{self._base}/chat/completions"
        answer = await self._link.http.send("POST", path, body, headers=session_headers(session))
        if answer.status != HTTPStatus.OK:
            raise refusal_of(answer)
        return reply_of(answer, sampling)
