"""The dialect of llama.cpp's server. It has no aborts and no weight versions, and goes on with a plain request whose
client has left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.testing.ask import Ask, Refused, Reply, Request, Stop
from rollbook.policy.testing.bodies import names_of, read, unknown
from rollbook.policy.testing.llamacpp_replies import (
    CompletionBody,
    completion_reply,
    error_body,
    models_body,
    props_body,
    slots_body,
)
from rollbook.policy.testing.speech import Call, Control, Engine, seed_of
from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["LlamacppSpeech"]

_FIELDS = names_of(CompletionBody)
_ZERO = -3.4028234663852886e38
_NO_SEED = 2**32 - 1


class LlamacppSpeech:
    """Speaks for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def generations(self) -> Mapping[str, Callable[[Call], Awaitable[Any]]]:
        return {"/completion": self._complete, "/completions": self._complete}

    @property
    def controls(self) -> Mapping[tuple[str, str], Control]:
        return {
            ("GET", "/v1/models"): self._models,
            ("GET", "/props"): self._props,
            ("GET", "/slots"): self._slots,
            ("GET", "/health"): self._health,
        }

    def error(self, refused: Refused) -> Any:
        return error_body(refused)

    async def _complete(self, call: Call) -> Any:
        call.entry.ignored = unknown(call.body, _FIELDS)
        body = read(call.body, CompletionBody)
        settings = self._engine.settings
        room = settings.shape.context_length - len(body.prompt)
        if room < 1:
            text = f"request ({len(body.prompt)} tokens) exceeds the available context size"
            numbers = {"n_prompt_tokens": len(body.prompt), "n_ctx": settings.shape.context_length}
            message = f"{text} ({settings.shape.context_length} tokens), try increasing it"
            raise Refused(400, message, kind="exceed_context_size_error", fields=numbers)
        ask = self._ask(call, body, room)
        answer = await self._engine.answer(call, ask, zero=_ZERO)
        full = answer.stop is Stop.LENGTH and len(answer.token_ids) == room
        text = settings.shape.decode(answer.token_ids)
        return completion_reply(answer, body, model=settings.shape.model, text=text, full=full)

    def _ask(self, call: Call, body: CompletionBody, room: int) -> Ask:
        settings = self._engine.settings
        asked = body.n_predict if "n_predict" in call.body or body.max_tokens is None else body.max_tokens
        self._engine.note(call.entry, body.prompt)
        return Ask(
            session=call.entry.session,
            number=call.entry.number,
            rid=self._engine.name(),
            prompt=body.prompt,
            sampling=_sampling(body),
            limit=room if asked < 0 else max(1, min(asked, room)),
            seed=seed_of(None if body.seed in (-1, _NO_SEED) else body.seed, self._engine.names),
            stops=frozenset(() if body.ignore_eos else settings.shape.stop_ids),
            kind=LogprobKind.PROCESSED if body.post_sampling_probs else settings.kind,
            top=min(body.n_probs, settings.shape.vocabulary),
            counts_prompt=True,
        )

    async def _models(self, _: Request) -> Reply:
        settings = self._engine.settings
        return _json(models_body(settings.shape.model, settings.shape.context_length, settings.shape.vocabulary))

    async def _props(self, _: Request) -> Reply:
        settings = self._engine.settings
        return _json(props_body(settings.shape.model, settings.shape.context_length, settings.shape.slots))

    async def _slots(self, _: Request) -> Reply:
        settings = self._engine.settings
        return _json(slots_body(self._engine.scheduler.running, settings.shape.slots, settings.shape.context_length))

    async def _health(self, _: Request) -> Reply:
        return _json({"status": "ok"})


def _json(body: Any) -> Reply:
    return Reply(msgspec.json.encode(body))


def _sampling(body: CompletionBody) -> Sampling:
    """Only the samplers that are listed do anything."""
    listed = set(body.samplers or ("penalties", "top_k", "top_p", "min_p", "temperature"))
    penalised = "penalties" in listed and body.repeat_last_n != 0
    try:
        return Sampling(
            temperature=max(body.temperature, 0.0) if "temperature" in listed else 1.0,
            top_p=body.top_p if "top_p" in listed else 1.0,
            top_k=max(body.top_k, 0) if "top_k" in listed else 0,
            min_p=body.min_p if "min_p" in listed else 0.0,
            repetition_penalty=body.repeat_penalty if penalised else 1.0,
            presence_penalty=body.presence_penalty if penalised else 0.0,
            frequency_penalty=body.frequency_penalty if penalised else 0.0,
            stop=tuple(body.stop),
        )
    except ConfigError as error:
        raise Refused(400, str(error)) from error
