"""llama.cpp's requests and replies, as its server reads and writes them (``tools/server``).

Unknown fields are silently dropped. The defaults are the server's own, which are not neutral.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rollbook.policy.testing.ask import Answer, Refused, Stop

__all__ = ["CompletionBody", "completion_reply", "error_body", "models_body", "props_body", "slots_body"]


class CompletionBody(msgspec.Struct, kw_only=True):
    """The fields that ``/completion`` reads."""

    prompt: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
    n_predict: int = -1
    max_tokens: int | None = None
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int = 2**32 - 1
    samplers: list[str] | None = None
    stop: list[str] = []
    repeat_penalty: float = 1.0
    repeat_last_n: Annotated[int, msgspec.Meta(ge=-1)] = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    n_probs: int = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    stream: Annotated[bool, msgspec.Meta()] = False
    cache_prompt: bool = True
    id_slot: int = -1
    ignore_eos: bool = False
    n_keep: int = 0
    n_discard: int = 0
    n_indent: int = 0
    n_cmpl: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    n_cache_reuse: int = 0
    t_max_predict_ms: int = -1
    response_fields: list[str] = []
    grammar: str = ""
    json_schema: Any = None
    logit_bias: Any = None
    min_keep: int = 0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: Annotated[int, msgspec.Meta(ge=-1)] = -1
    dry_sequence_breakers: list[str] | None = None
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    lora: list[Any] = []
    timings_per_token: bool = False
    return_progress: bool = False
    backend_sampling: bool = False


def _probabilities(answer: Answer, body: CompletionBody) -> list[dict[str, Any]]:
    """One entry for each token; a stop string takes the last one away, as in the server."""
    assert answer.logprobs is not None
    value, likely = ("prob", "top_probs") if body.post_sampling_probs else ("logprob", "top_logprobs")
    found: list[dict[str, Any]] = []
    for token, logprob, top in zip(answer.token_ids, answer.logprobs, answer.top, strict=True):
        if logprob is not None:
            listed = [_entry(each, number, value) for each, number in top]
            found.append({**_entry(token, logprob, value), likely: listed})
    return found[:-1] if answer.stop is Stop.STRING else found


def _entry(token: int, logprob: float, value: str) -> dict[str, Any]:
    return {"id": token, "token": "", "bytes": [], value: logprob if value == "logprob" else 2.718281828459045**logprob}


def completion_reply(answer: Answer, body: CompletionBody, *, model: str, text: str, full: bool) -> dict[str, Any]:
    """The plain reply. `full`: the context ended it."""
    prefill, decode = 1e3 * answer.times.prefill, 1e3 * answer.times.decode
    word = answer.matched if isinstance(answer.matched, str) else ""
    reply: dict[str, Any] = {
        "index": 0,
        "content": text,
        "tokens": answer.token_ids if body.return_tokens else [],
        "id_slot": 0,
        "stop": True,
        "model": model,
        "tokens_predicted": answer.completion_tokens,
        "tokens_evaluated": answer.prompt_tokens,
        "generation_settings": {},
        "prompt": "",
        "has_new_line": False,
        "truncated": full,
        "stop_type": {Stop.ID: "eos", Stop.STRING: "word"}.get(answer.stop, "limit"),
        "stopping_word": word,
        "tokens_cached": answer.prompt_tokens + answer.completion_tokens - 1,
        "timings": {
            "cache_n": answer.cached_tokens,
            "prompt_n": answer.prompt_tokens - answer.cached_tokens,
            "prompt_ms": prefill,
            "predicted_n": answer.completion_tokens,
            "predicted_ms": decode,
        },
    }
    if body.n_probs and answer.logprobs is not None:
        reply["completion_probabilities"] = _probabilities(answer, body)
    return reply


def models_body(model: str, context_length: int, vocabulary: int) -> dict[str, Any]:
    """``/v1/models``."""
    meta = {
        "vocab_type": 2,
        "n_vocab": vocabulary,
        "n_ctx_train": context_length,
        "n_embd": 64,
        "n_params": 1,
        "size": 1,
    }
    card = {"id": model, "object": "model", "created": 0, "owned_by": "llamacpp", "meta": meta}
    listed = {"name": model, "model": model, "type": "model", "capabilities": ["completion"]}
    return {"object": "list", "data": [card], "models": [listed]}


def props_body(model: str, context_length: int, slots: int) -> dict[str, Any]:
    """``/props``."""
    return {
        "default_generation_settings": {"params": {}, "n_ctx": context_length},
        "total_slots": slots,
        "model_alias": model,
        "model_path": model,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "",
        "bos_token": "",
        "eos_token": "",
        "build_info": "b9999-fake",
        "is_sleeping": False,
    }


def slots_body(running: int, slots: int, context_length: int) -> list[dict[str, Any]]:
    """``/slots``."""
    slot = {"n_ctx": context_length, "speculative": False}
    return [{"id": number, **slot, "is_processing": number < running} for number in range(max(slots, running))]


def error_body(refused: Refused) -> dict[str, Any]:
    """An error reply."""
    kind = refused.kind or {
        404: "not_found_error",
        429: "rate_limit_error",
        500: "server_error",
        503: "unavailable_error",
    }.get(refused.status, "invalid_request_error")
    return {"error": {"code": refused.status, "message": str(refused), "type": kind, **refused.fields}}
