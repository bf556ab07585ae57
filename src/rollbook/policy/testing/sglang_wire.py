"""SGLang's requests and replies, as its 0.5.23 server reads and writes them.

A sampling field that its schema does not know is a 400; an unknown field of the request itself is silently dropped.
Each reply has the spans of its weights' versions, one that was aborted before its first token an empty one.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rollbook.policy.testing.ask import Answer, Refused, Stop

__all__ = ["GenerateBody", "SamplingParams", "error_body", "generate_reply", "model_info", "models_body", "server_info"]

Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class SamplingParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``SamplingParams`` of ``sglang/api/v1``, with the bounds of ``sglang/srt/sampling``."""

    max_new_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = 128
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = -1
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    presence_penalty: Penalty | None = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = 1.0
    min_new_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = 0
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = 1
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    spaces_between_special_tokens: bool | None = True
    no_stop_trim: bool | None = False
    stream_interval: int | None = None
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None
    custom_params: Any = None
    beam_width: int | None = None
    watermark: Any = None
    choice: list[str] | None = None


class GenerateBody(msgspec.Struct, kw_only=True):
    """``GenerateRequest``, for one prompt of ids and a plain reply."""

    input_ids: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    rid: str | None = None
    text: None = None
    stream: Annotated[bool, msgspec.Meta()] | None = False
    return_logprob: bool | None = False
    logprob_start_len: int | None = -1
    top_logprobs_num: int | None = 0
    token_ids_logprob: list[int] | None = None
    return_text_in_logprobs: bool | None = False
    return_hidden_states: bool | None = False
    return_prompt_token_ids: bool = False
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_sampling_mask: bool | None = None
    sampling_logprobs_mode: str | None = None
    return_entropy: bool = False
    session_id: str | None = None
    session_params: Any = None
    routing_key: str | None = None
    conversation_id: str | None = None
    routed_dp_rank: int | None = None
    priority: int | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    lora_path: str | None = None
    require_reasoning: bool | None = None
    max_thinking_tokens: int | None = None
    log_metrics: bool = True


def _finish(answer: Answer) -> dict[str, Any]:
    match answer.stop:
        case Stop.LENGTH:
            return {"type": "length", "length": len(answer.token_ids)}
        case Stop.ABORT:
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        case _:
            return {"type": "stop", "matched": answer.matched}


def generate_reply(answer: Answer, body: GenerateBody, *, rid: str, label: str, text: str) -> dict[str, Any]:
    """The reply to ``/generate``. `label`: of the weights now."""
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": _finish(answer),
        "prompt_tokens": answer.prompt_tokens,
        "weight_version": label,
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": answer.completion_tokens,
        "cached_tokens": answer.cached_tokens,
        "e2e_latency": answer.times.total,
    }
    start, spans = 0, list[dict[str, Any]]()
    for version, count in answer.spans or [(label, 0)]:
        spans.append({"version": version, "start": start, "end": start + count})
        start += count
    meta["weight_versions"] = spans
    meta["weight_version"] = spans[-1]["version"]
    if body.return_logprob and answer.logprobs is not None:
        kept = [each for each in zip(answer.token_ids, answer.logprobs, answer.top, strict=True) if each[1] is not None]
        meta["input_token_logprobs"] = []
        meta["output_token_logprobs"] = [[logprob, token, None] for token, logprob, _ in kept]
        meta["output_token_logprobs_length"] = len(kept)
        if body.top_logprobs_num:
            meta["output_top_logprobs"] = [[[value, each, None] for each, value in top] for _, _, top in kept]
    reply: dict[str, Any] = {"text": text, "output_ids": answer.token_ids, "meta_info": meta}
    if body.return_prompt_token_ids:
        reply["prompt_token_ids"] = answer.prompt
    return reply


def model_info(model: str, label: str) -> dict[str, Any]:
    """``/get_model_info``."""
    return {
        "model_path": model,
        "served_model_name": model,
        "tokenizer_path": model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": label,
        "load_format": "auto",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def server_info(model: str, context_length: int) -> dict[str, Any]:
    """``/get_server_info``: what a client may look at of it."""
    return {
        "model_path": model,
        "served_model_name": model,
        "context_length": context_length,
        "max_req_input_len": context_length - 6,
        "max_total_num_tokens": context_length * 16,
        "allow_auto_truncate": False,
        "stream_output": False,
        "incremental_streaming_output": False,
        "skip_tokenizer_init": False,
        "random_seed": 0,
        "internal_states": [{}],
        "version": "0.5.23",
        "frontend": "python",
    }


def models_body(model: str, context_length: int) -> dict[str, Any]:
    """``/v1/models``."""
    card = {"id": model, "object": "model", "created": 0, "owned_by": "sglang", "root": model, "parent": None}
    return {"object": "list", "data": [{**card, "max_model_len": context_length}]}


def error_body(refused: Refused) -> dict[str, Any]:
    """An error reply; the schema's own refusal is bare text."""
    return {"error": str(refused) if refused.kind == "schema" else {"message": str(refused)}}
