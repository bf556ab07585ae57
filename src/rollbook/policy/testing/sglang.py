"""The dialect of SGLang 0.5.23.

While paused, new requests wait. An abort names a request; where one of exactly that name runs, or the server has
several tokenizer workers, everything whose name begins so ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.testing.ask import Ask, Refused, Reply, Request
from rollbook.policy.testing.bodies import names_of, read, read_json, unknown
from rollbook.policy.testing.sglang_wire import (
    GenerateBody,
    SamplingParams,
    error_body,
    generate_reply,
    model_info,
    models_body,
    server_info,
)
from rollbook.policy.testing.speech import Call, Control, Engine, seed_of
from rollbook.policy.weights import PauseMode
from rollbook.trace.call import Sampling

__all__ = ["SglangSpeech"]

_FIELDS = names_of(GenerateBody)
_SAMPLING = names_of(SamplingParams)
_ZERO = -3.4028234663852886e38


class _Abort(msgspec.Struct):
    rid: str | None = None
    abort_all: bool = False


class _Pause(msgspec.Struct):
    mode: Literal["abort", "retract", "in_place"] = "abort"


class _FromDisk(msgspec.Struct):
    model_path: str
    load_format: str | None = None
    abort_all_requests: bool = False
    weight_version: str | None = None
    keep_pause: bool = False
    flush_cache: bool = True


class _NewVersion(msgspec.Struct):
    new_version: str
    abort_all_requests: bool = True


class SglangSpeech:
    """Speaks for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._retracted = False
        """Whether what runs gave up its cache when it was paused."""

    @property
    def generations(self) -> Mapping[str, Callable[[Call], Awaitable[Any]]]:
        return {"/generate": self._generate}

    @property
    def controls(self) -> Mapping[tuple[str, str], Control]:
        return {
            ("GET", "/get_model_info"): self._model_info,
            ("GET", "/model_info"): self._model_info,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("POST", "/abort_request"): self._abort,
            ("POST", "/pause_generation"): self._pause,
            ("POST", "/continue_generation"): self._continue,
            ("POST", "/update_weights_from_disk"): self._from_disk,
            ("POST", "/update_weight_version"): self._label,
            ("POST", "/flush_cache"): self._flush,
            ("GET", "/flush_cache"): self._flush,
        }

    def error(self, refused: Refused) -> Any:
        return error_body(refused)

    async def _generate(self, call: Call) -> Any:
        call.entry.ignored = unknown(call.body, _FIELDS)
        if foreign := unknown(call.body.get("sampling_params"), _SAMPLING):
            raise Refused(400, f"unknown field `{foreign[0]}`, expected one of {', '.join(_SAMPLING)}", kind="schema")
        body = read(call.body, GenerateBody)
        ask = self._ask(call, body)
        answer = await self._engine.answer(call, ask, zero=_ZERO)
        text = self._engine.shape.decode(answer.token_ids)
        reply = generate_reply(answer, body, rid=ask.rid, label=self._engine.scheduler.label, text=text)
        if self._engine.shape.timings:
            reply["meta_info"]["queue_time"] = answer.times.queue
        return reply

    def _ask(self, call: Call, body: GenerateBody) -> Ask:
        settings, params = self._engine.settings, body.sampling_params
        room = settings.shape.context_length - len(body.input_ids)
        if room < 1:
            text = f"The input ({len(body.input_ids)} tokens) is longer than the model's context length"
            raise Refused(400, f"{text} ({settings.shape.context_length} tokens).")
        asked = room if params.max_new_tokens is None else params.max_new_tokens
        if asked > room or asked < 1:
            raise Refused(400, f"Requested token count exceeds the model's maximum context length of {room + asked}.")
        if params.top_k == 0:
            raise Refused(400, "top_k must be -1 (disable) or at least 1, got 0.")
        self._engine.note(call.entry, body.input_ids)
        own = () if params.ignore_eos else settings.shape.stop_ids
        return Ask(
            session=call.entry.session,
            number=call.entry.number,
            rid=body.rid or self._engine.name(),
            prompt=body.input_ids,
            sampling=_sampling(params),
            limit=asked,
            seed=seed_of(params.sampling_seed, self._engine.names),
            stops=frozenset((*own, *(params.stop_token_ids or ()))),
            kind=settings.kind,
            top=body.top_logprobs_num or 0,
        )

    async def _model_info(self, _: Request) -> Reply:
        return _json(model_info(self._engine.shape.model, self._engine.scheduler.label))

    async def _server_info(self, _: Request) -> Reply:
        return _json(server_info(self._engine.shape.model, self._engine.shape.context_length))

    async def _models(self, _: Request) -> Reply:
        return _json(models_body(self._engine.shape.model, self._engine.shape.context_length))

    async def _health(self, _: Request) -> Reply:
        return Reply()

    async def _abort(self, request: Request) -> Reply:
        asked = read(read_json(request.body), _Abort)
        rid = asked.rid or ""
        scheduler = self._engine.scheduler
        if asked.abort_all:
            scheduler.abort(lambda _: True)
        elif rid and (self._engine.shape.tokenizer_workers > 1 or scheduler.runs(rid)):
            scheduler.abort(lambda ask: ask.rid.startswith(rid))
        return Reply()

    async def _pause(self, request: Request) -> Reply:
        mode = read(read_json(request.body), _Pause).mode
        self._retracted = mode == "retract"
        await self._engine.scheduler.pause(PauseMode.ABORT if mode == "abort" else PauseMode.KEEP, refuse=False)
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, request: Request) -> Reply:
        read_json(request.body)
        self._retracted = False
        self._engine.scheduler.resume()
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    async def _from_disk(self, request: Request) -> Reply:
        asked = read(read_json(request.body), _FromDisk)
        scheduler = self._engine.scheduler
        if asked.abort_all_requests:
            scheduler.abort(lambda _: True)
        if not scheduler.paused:
            await scheduler.idle()
        scheduler.update(asked.weight_version or scheduler.label)
        if asked.flush_cache:
            scheduler.forget()
        return _json({"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0})

    async def _label(self, request: Request) -> Reply:
        asked = read(read_json(request.body), _NewVersion)
        if asked.abort_all_requests:
            self._engine.scheduler.abort(lambda _: True)
        self._engine.scheduler.update(asked.new_version)
        label = asked.new_version
        return _json({"success": True, "message": f"Weight version updated to {label}", "new_version": label})

    async def _flush(self, _: Request) -> Reply:
        if self._engine.scheduler.running and not self._retracted:
            raise Refused(400, "Flush cache failed.")
        self._engine.scheduler.forget()
        return Reply(b"Cache flushed.\n")


def _json(body: Any) -> Reply:
    return Reply(msgspec.json.encode(body))


def _sampling(params: SamplingParams) -> Sampling:
    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    try:
        return Sampling(
            temperature=given(params.temperature, 1.0),
            top_p=given(params.top_p, 1.0),
            top_k=max(params.top_k or 0, 0),
            min_p=given(params.min_p, 0.0),
            repetition_penalty=given(params.repetition_penalty, 1.0),
            presence_penalty=given(params.presence_penalty, 0.0),
            frequency_penalty=given(params.frequency_penalty, 0.0),
            stop=tuple([params.stop] if isinstance(params.stop, str) else params.stop or ()),
        )
    except ConfigError as error:
        raise Refused(400, str(error)) from error
