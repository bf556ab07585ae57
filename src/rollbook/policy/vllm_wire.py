"""What goes to vLLM: request bodies of its two routes that take ids, without I/O.

The server's defaults (its model's ``generation_config.json`` among them) may change the distribution, so every field is
set in each request. What the server would do otherwise than asked is refused: it bends a temperature below 0.01 and
takes the seed -1 for none. A stop string stays in the text, and so do its ids: nothing is cut from what was sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.logprob_kind import LISTED
from rollbook.policy.protocol import TokenIds
from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["Asked", "Route", "check_sampling", "probe_body", "request_body"]

LEAST_TEMPERATURE = 0.01
"""What the server makes of a smaller one that is not 0."""
MOST_TEMPERATURE = 2.0
MOST_PENALTY = 2.0
"""Of presence and frequency, either sign."""


class Route(StrEnum):
    """The two routes that take and return ids."""

    GENERATE = "/inference/v1/generate"
    """Made for ids: no text, version spans without asking."""
    COMPLETIONS = "/v1/completions"
    """There in every version and in front of many routers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a reply is held against."""

    prompt: TokenIds
    """As sent."""
    wire: bytes
    """`prompt` as JSON, as sent."""
    sampling: Sampling
    limit: int
    """Tokens asked for."""
    stop_ids: frozenset[int]
    """Tokens that end a turn."""
    kind: LogprobKind
    version: int | None = None
    """The policy version when the request was sent; None: nobody told it."""


def check_sampling(sampling: Sampling) -> None:
    """Raise `ConfigError` for what vLLM cannot do, or would do otherwise than asked."""
    low = LEAST_TEMPERATURE
    checks = (
        (not 0 < sampling.temperature < low, f"bends a temperature below {low} to it: ask for 0 or at least {low}"),
        (sampling.temperature <= MOST_TEMPERATURE, f"takes temperatures up to {MOST_TEMPERATURE}"),
        (abs(sampling.presence_penalty) <= MOST_PENALTY, f"takes a presence penalty within {MOST_PENALTY}"),
        (abs(sampling.frequency_penalty) <= MOST_PENALTY, f"takes a frequency penalty within {MOST_PENALTY}"),
        (sampling.seed is None or 0 <= sampling.seed < 2**63, "takes seeds from 0 to 2**63 - 1"),
        (all(sampling.stop), "takes no empty stop string"),
    )
    for fine, problem in checks:
        if not fine:
            raise ConfigError(f"vLLM {problem}")


_NEUTRAL: dict[str, Any] = {
    "n": 1,
    "ignore_eos": False,
    "min_tokens": 0,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": [],
    "prompt_logprobs": None,
    "logprobs": 0,
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "repetition_detection": None,
}
_GENERATE: dict[str, Any] = {"stream": False, "return_token_ids": True}
_COMPLETIONS: dict[str, Any] = {
    **_NEUTRAL,
    "stream": False,
    "echo": False,
    "suffix": None,
    "use_beam_search": False,
    "truncate_prompt_tokens": None,
    "response_format": None,
    "add_special_tokens": False,
    "return_token_ids": True,
    "return_weight_versions": True,
    "return_tokens_as_token_ids": False,
}


def _parameters(asked: Asked) -> dict[str, Any]:
    sampling = asked.sampling
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "max_tokens": asked.limit,
        "stop": sampling.stop,
        "stop_token_ids": sorted(asked.stop_ids.union(sampling.stop_token_ids)),
        "structured_outputs": None if sampling.grammar is None else {"grammar": sampling.grammar},
        "routed_experts_prompt_start": len(asked.prompt) - 1,
    }


def request_body(asked: Asked, model: str, route: Route) -> dict[str, Any]:
    """A request. On the route for ids, text is made only where stop strings need it."""
    parameters = _parameters(asked)
    if route is Route.COMPLETIONS:
        return {**_COMPLETIONS, **parameters, "model": model, "prompt": msgspec.Raw(asked.wire)}
    parameters = {**_NEUTRAL, **parameters, "detokenize": bool(asked.sampling.stop)}
    return {**_GENERATE, "model": model, "token_ids": msgspec.Raw(asked.wire), "sampling_params": parameters}


def probe_body(asked: Asked, model: str, route: Route) -> dict[str, Any]:
    """A request whose reply lists the most likely tokens, for `listed_logprobs`."""
    body = request_body(asked, model, route)
    if route is Route.COMPLETIONS:
        return body | {"logprobs": LISTED, "return_tokens_as_token_ids": True}
    body["sampling_params"]["logprobs"] = LISTED
    return body
