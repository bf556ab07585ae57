"""vLLM's requests and replies, as its 0.33 server reads and writes them (``vllm/entrypoints``).

What its models refuse is a 400 here; what they silently drop is reported, for a client that sends it is wrong.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from rollbook.policy.testing.ask import Answer, Refused, Stop

__all__ = [
    "ZERO",
    "CompletionBody",
    "GenerateBody",
    "SamplingParams",
    "completion_reply",
    "error_body",
    "generate_reply",
    "models_body",
    "routed_experts",
    "usage",
]

ZERO = -9999.0
"""What stands for the logarithm of 0."""
Id = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Grammar = dict[str, Any]


class SamplingParams(msgspec.Struct, kw_only=True):
    """``SamplingParams`` of ``vllm/sampling_params.py``, with its bounds."""

    n: Literal[1] | None = 1
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1)] = 0
    min_p: Share = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    min_tokens: int = 0
    logprobs: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    prompt_logprobs: int | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    structured_outputs: Grammar | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    extra_args: dict[str, Any] | None = None
    repetition_detection: Any = None
    routed_experts_prompt_start: Annotated[int, msgspec.Meta(ge=0)] = 0
    thinking_token_budget: int | None = None
    skip_reading_prefix_cache: bool | None = None


class GenerateBody(msgspec.Struct, kw_only=True):
    """``GenerateRequest``."""

    token_ids: Annotated[list[Id], msgspec.Meta(min_length=1)]
    sampling_params: SamplingParams
    model: str | None = None
    request_id: str | None = None
    return_token_ids: bool | None = None
    output_mode: Literal["tokens"] = "tokens"
    stream: Literal[False] | None = False
    stream_options: None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    priority: Literal[0] = 0
    features: None = None
    content_parts: None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    parse_context: Any = None
    token_offsets: None = None
    session_id: str | None = None


class CompletionBody(SamplingParams, kw_only=True):
    """``CompletionRequest`` with ids as its prompt; sampling stands beside the prompt."""

    prompt: Annotated[list[Id], msgspec.Meta(min_length=1)]
    model: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = 16
    echo: Literal[False] | None = False
    stream: Literal[False] | None = False
    suffix: None = None
    user: str | None = None
    use_beam_search: Literal[False] = False
    length_penalty: float = 1.0
    truncate_prompt_tokens: None = None
    add_special_tokens: bool = True
    response_format: dict[str, Any] | None = None
    priority: Literal[0] = 0
    request_id: str | None = None
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None


def usage(answer: Answer, *, details: bool) -> dict[str, Any]:
    """``UsageInfo``. `details`: the server runs with ``--enable-prompt-tokens-details``."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "completion_tokens": answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens} if details else None,
    }


def metrics(answer: Answer) -> dict[str, float]:
    """``PerRequestMetrics``, in milliseconds."""
    times = answer.times
    parts = {"queue_time_ms": times.queue, "time_to_first_token_ms": times.prefill, "generation_time_ms": times.decode}
    return {name: 1000 * seconds for name, seconds in parts.items()}


def _finish(answer: Answer) -> str:
    return {Stop.LENGTH: "length", Stop.ABORT: "abort"}.get(answer.stop, "stop")


def _spans(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    start = 0
    for label, count in answer.spans:
        found.append({"version": label, "start": start, "end": start + count})
        start += count
    return found


def _content(answer: Answer) -> dict[str, Any] | None:
    if answer.logprobs is None:
        return None
    found: list[dict[str, Any]] = []
    for token, logprob, top in zip(answer.token_ids, answer.logprobs, answer.top, strict=True):
        if logprob is not None:
            ranks = {each: rank for rank, (each, _) in enumerate(top, 1)}
            listed = [_row(token, logprob, ranks.get(token, len(top) + 1))]
            listed += [_row(each, max(value, ZERO), ranks[each]) for each, value in top if each != token]
            found.append({**listed[0], "top_logprobs": listed})
    return {"content": found}


def _row(token: int, logprob: float, rank: int) -> dict[str, Any]:
    return {"token_id": token, "logprob": logprob, "rank": rank}


def generate_reply(
    answer: Answer,
    body: GenerateBody,
    *,
    name: str,
    model: str,
    stop_reason: int | str | None,
    details: bool,
    timed: bool,
) -> dict[str, Any]:
    """``GenerateResponse`` with one choice. `name`: the request's id."""
    return {
        "request_id": f"generate-tokens-{name}",
        "model": model,
        "created": 0,
        "usage": usage(answer, details=details),
        "prompt_logprobs": None,
        "prompt_token_ids": answer.prompt if body.return_token_ids else None,
        "kv_transfer_params": None,
        "output_mode": "tokens",
        "metrics": metrics(answer) if timed else None,
        "choices": [
            {
                "index": 0,
                "token_ids": answer.token_ids,
                "finish_reason": _finish(answer),
                "stop_reason": stop_reason,
                "logprobs": None if body.sampling_params.logprobs is None else _content(answer),
                "routed_experts": None,
                "sampling_mask": None,
                "weight_versions": _spans(answer),
            }
        ],
    }


def completion_reply(
    answer: Answer,
    body: CompletionBody,
    *,
    name: str,
    model: str,
    stop_reason: int | str | None,
    details: bool,
    timed: bool,
    decode: Callable[[Sequence[int]], str],
) -> dict[str, Any]:
    """``CompletionResponse`` with one choice."""

    def spell(token: int) -> str:
        return f"token_id:{token}" if body.return_tokens_as_token_ids else decode([token])

    choice: dict[str, Any] = {
        "index": 0,
        "text": decode(answer.token_ids),
        "logprobs": None if body.logprobs is None else _columns(answer, spell),
        "finish_reason": _finish(answer),
        "stop_reason": stop_reason,
        "token_ids": answer.token_ids if body.return_token_ids else None,
        "prompt_token_ids": answer.prompt if body.return_token_ids else None,
        "prompt_logprobs": None,
        "routed_experts": None,
    }
    if body.return_weight_versions:
        choice["weight_versions"] = _spans(answer)
    return {
        "id": f"cmpl-{name}",
        "object": "text_completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": usage(answer, details=details),
        "metrics": metrics(answer) if timed else None,
        "kv_transfer_params": None,
    }


def _columns(answer: Answer, spell: Callable[[int], str]) -> dict[str, Any] | None:
    """``CompletionLogProbs``; the sampled token is listed beside the likeliest."""
    if answer.logprobs is None:
        return None
    rows = zip(answer.token_ids, answer.logprobs, answer.top, strict=True)
    kept = [(token, logprob, top) for token, logprob, top in rows if logprob is not None]
    texts = [spell(token) for token, _, _ in kept]
    return {
        "text_offset": [*accumulate(map(len, texts[:-1]), initial=0)] if texts else [],
        "token_logprobs": [logprob for _, logprob, _ in kept],
        "tokens": texts,
        "top_logprobs": [
            {spell(token): logprob, **{spell(each): max(value, ZERO) for each, value in top}}
            for token, logprob, top in kept
        ],
    }


def routed_experts(tokens: int, start: int, layers: int, chosen: int, seed: int) -> str:
    """Base64 of an ``.npy`` file, shape (tokens - 1 - start, layers, chosen), as the server encodes it."""
    rows = np.arange(start, tokens - 1)[:, None, None] * 7 + np.arange(layers)[:, None] * 3 + np.arange(chosen)
    data = io.BytesIO()
    np.save(data, ((rows + seed) % 64).astype(np.uint8))
    return base64.b64encode(data.getvalue()).decode()


def models_body(model: str, context_length: int) -> dict[str, Any]:
    """``/v1/models``."""
    card = {"id": model, "object": "model", "created": 0, "owned_by": "vllm", "root": model, "parent": None}
    return {"object": "list", "data": [{**card, "max_model_len": context_length, "permission": []}]}


def error_body(refused: Refused) -> dict[str, Any]:
    """An error reply."""
    kind = refused.kind or {404: "NotFoundError", 500: "InternalServerError", 503: "ServiceUnavailableError"}.get(
        refused.status, "BadRequestError"
    )
    error = {"message": str(refused), "type": kind, "param": refused.param or None, "code": refused.status}
    return {"error": error}
