"""The dialect of vLLM 0.33, the control routes of its development mode included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.testing.ask import Answer, Ask, Refused, Reply, Request, Stop
from rollbook.policy.testing.bodies import names_of, read, read_json, unknown
from rollbook.policy.testing.speech import Call, Control, Engine, seed_of
from rollbook.policy.testing.vllm_wire import (
    ZERO,
    CompletionBody,
    GenerateBody,
    SamplingParams,
    completion_reply,
    error_body,
    generate_reply,
    models_body,
    routed_experts,
)
from rollbook.policy.weights import PauseMode
from rollbook.trace.call import Sampling

__all__ = ["VllmSpeech"]

VERSION = "0.33.0"
MAX_LOGPROBS = 20
_GENERATE, _SAMPLING = names_of(GenerateBody), names_of(SamplingParams)
_COMPLETION = names_of(CompletionBody) - {
    "detokenize",
    "extra_args",
    "flat_logprobs",
    "prompt_logprob_start",
    "skip_reading_prefix_cache",
}
"""Without those of the sampling parameters that this route does not take."""


class _NewVersion(msgspec.Struct):
    new_version: str


class _Rpc(msgspec.Struct):
    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: float | None = None


class _Abort(msgspec.Struct):
    request_ids: list[str] | None = None


class VllmSpeech:
    """Speaks for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def generations(self) -> Mapping[str, Callable[[Call], Awaitable[Any]]]:
        generate = {"/inference/v1/generate": self._generate} if self._engine.shape.generate_route else {}
        return {**generate, "/v1/completions": self._complete}

    @property
    def controls(self) -> Mapping[tuple[str, str], Control]:
        return {
            ("GET", "/v1/models"): self._models,
            ("GET", "/version"): self._version,
            ("GET", "/health"): self._health,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("GET", "/is_paused"): self._is_paused,
            ("GET", "/weight_info"): self._weight_info,
            ("POST", "/update_weight_version"): self._label,
            ("POST", "/collective_rpc"): self._rpc,
            ("POST", "/reset_prefix_cache"): self._reset_cache,
            ("POST", "/abort_requests"): self._abort,
            ("POST", "/inference/v1/abort_requests"): self._abort,
        }

    def error(self, refused: Refused) -> Any:
        return error_body(refused)

    async def _generate(self, call: Call) -> Any:
        inside = unknown(call.body.get("sampling_params"), _SAMPLING, "sampling_params.")
        call.entry.ignored = (*unknown(call.body, _GENERATE), *inside)
        body = read(call.body, GenerateBody)
        room = self._engine.shape.context_length - len(body.token_ids)
        if room < 1:
            raise self._overflow(len(body.token_ids), 0)
        ask = self._ask(call, body.token_ids, body.sampling_params, body.model, body.request_id, room)
        answer = await self._engine.answer(call, ask, zero=ZERO, bare_nan=True)
        reply = generate_reply(
            answer,
            body,
            name=ask.rid,
            model=self._engine.shape.model,
            stop_reason=_stop_reason(answer, body.sampling_params),
            details=self._engine.shape.cached_details,
            timed=self._engine.shape.timings,
        )
        self._add_experts(reply, answer, body.sampling_params)
        return reply

    async def _complete(self, call: Call) -> Any:
        call.entry.ignored = unknown(call.body, _COMPLETION)
        body = read(call.body, CompletionBody)
        room = self._engine.shape.context_length - len(body.prompt)
        if (body.max_tokens or 1) > room:
            raise self._overflow(len(body.prompt), body.max_tokens or 1)
        ask = self._ask(call, body.prompt, body, body.model, body.request_id, room)
        answer = await self._engine.answer(call, ask, zero=ZERO, bare_nan=True)
        reply = completion_reply(
            answer,
            body,
            name=ask.rid,
            model=self._engine.shape.model,
            stop_reason=_stop_reason(answer, body),
            details=self._engine.shape.cached_details,
            timed=self._engine.shape.timings,
            decode=self._engine.shape.decode,
        )
        self._add_experts(reply, answer, body)
        return reply

    def _ask(
        self, call: Call, prompt: list[int], params: SamplingParams, model: str | None, name: str | None, room: int
    ) -> Ask:
        settings = self._engine.settings
        if model not in (None, settings.shape.model):
            raise Refused(404, f"The model `{model}` does not exist.", param="model")
        if params.logprobs is not None and params.logprobs > MAX_LOGPROBS:
            raise Refused(400, f"Requested sample logprobs of {params.logprobs}, which is greater than max allowed")
        self._engine.note(call.entry, prompt)
        stops = () if params.ignore_eos else settings.shape.stop_ids
        return Ask(
            session=call.entry.session,
            number=call.entry.number,
            rid=name or self._engine.name(),
            prompt=prompt,
            sampling=_sampling(params),
            limit=min(params.max_tokens or room, room),
            seed=seed_of(params.seed, self._engine.names),
            stops=frozenset((*stops, *(params.stop_token_ids or ()))),
            kind=settings.kind,
            top=params.logprobs or 0,
        )

    def _add_experts(self, reply: dict[str, Any], answer: Answer, params: SamplingParams) -> None:
        experts = self._engine.shape.experts
        if experts is not None and answer.token_ids:
            tokens = len(answer.prompt) + len(answer.token_ids)
            start = params.routed_experts_prompt_start
            reply["choices"][0]["routed_experts"] = routed_experts(tokens, start, *experts, len(answer.prompt))

    def _overflow(self, prompt: int, asked: int) -> Refused:
        length = self._engine.shape.context_length
        text = f"This model's maximum context length is {length} tokens. However, you requested {asked} output tokens "
        return Refused(400, f"{text}and your prompt contains {prompt} input tokens.", param="input_tokens")

    async def _models(self, _: Request) -> Reply:
        return _json(models_body(self._engine.shape.model, self._engine.shape.context_length))

    async def _version(self, _: Request) -> Reply:
        return _json({"version": VERSION})

    async def _health(self, _: Request) -> Reply:
        return Reply()

    async def _pause(self, request: Request) -> Reply:
        mode = request.query.get("mode", "abort")
        if mode not in set(PauseMode):
            raise Refused(400, f"Input should be 'abort', 'wait' or 'keep', not {mode!r}", param="mode")
        how = PauseMode(mode)
        await self._engine.scheduler.pause(how, refuse=how is not PauseMode.KEEP)
        return _json({"status": "paused"})

    async def _resume(self, _: Request) -> Reply:
        self._engine.scheduler.resume()
        return _json({"status": "resumed"})

    async def _is_paused(self, _: Request) -> Reply:
        return _json({"is_paused": self._engine.scheduler.paused})

    async def _weight_info(self, _: Request) -> Reply:
        return _json({"weight_version": self._engine.scheduler.label})

    async def _label(self, request: Request) -> Reply:
        label = read(read_json(request.body), _NewVersion).new_version
        self._engine.scheduler.update(label)
        return _json({"success": True, "new_version": label})

    async def _rpc(self, request: Request) -> Reply:
        asked = read(read_json(request.body), _Rpc)
        if asked.method == "reload_weights" and "weights_path" not in asked.kwargs:
            raise Refused(500, "reload_weights needs a weights_path")
        return _json({"results": [None]})

    async def _reset_cache(self, request: Request) -> Reply:
        held = self._engine.scheduler.running and request.query.get("reset_running_requests") != "true"
        if not held:
            self._engine.scheduler.forget()
        return _json({"success": not held})

    async def _abort(self, request: Request) -> Reply:
        names = read(read_json(request.body), _Abort).request_ids
        found = self._engine.scheduler.abort(lambda ask: not names or ask.rid in names)
        return _json({"status": "aborted", "aborted": len(names) if names else found})


def _json(body: Any) -> Reply:
    return Reply(msgspec.json.encode(body))


def _sampling(params: SamplingParams) -> Sampling:
    try:
        return Sampling(
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=max(params.top_k, 0),
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            stop=tuple([params.stop] if isinstance(params.stop, str) else params.stop or ()),
        )
    except ConfigError as error:
        raise Refused(400, str(error)) from error


def _stop_reason(answer: Answer, params: SamplingParams) -> int | str | None:
    """A stop string, or an id that was asked for; None for the model's own end."""
    explicit = params.stop_token_ids or ()
    return answer.matched if answer.stop is Stop.STRING or answer.matched in explicit else None
