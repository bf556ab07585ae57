"""What goes to and comes from the ``/generate`` route of SGLang: request bodies and replies, without I/O.

The server's defaults change the distribution and cut at 128 tokens, so every field that shapes a generation is set in
each request. Order of the transform: penalties, grammar, temperature, then top-k, top-p and min-p. Penalties count the
sampled tokens only, not the prompt's; that is this engine's meaning of them. A stop token is the last of the ids. Ids
come twice, by themselves and beside their logprobs; both must say the same. Facts are those of SGLang 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import ConfigError
from rollbook.policy.align import checked_logprobs
from rollbook.policy.http import HttpReply, error_of, failure_of
from rollbook.policy.inner_error import read_body
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = [
    "FinishReason",
    "ModelInfo",
    "Reply",
    "ServerInfo",
    "WeightSpan",
    "check_defaults",
    "check_sampling",
    "generate_body",
    "kind_for",
    "probe_body",
    "refusal_of",
]

MAX_STOPS = 32
"""Stop strings that one request may have."""
_OVERFLOW = re.compile(r"longer than the model's context length|maximum context length|maximum allowed length")
_RANGES = (("presence_penalty", -2.0, 2.0), ("frequency_penalty", -2.0, 2.0), ("repetition_penalty", 0.0, 2.0))


_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class ServerInfo(msgspec.Struct, frozen=True):
    """What is read of ``/server_info``; None where a version does not say it."""

    version: str = ""
    """Of SGLang."""
    max_req_input_len: int | None = None
    """Prompts must be shorter. The server cuts ``max_new_tokens`` silently a few tokens behind it."""
    allow_auto_truncate: bool | None = None
    """True: prompts that are too long are cut without a word."""
    enable_deterministic_inference: bool | None = None
    """False: seeds are taken and not kept to."""
    enable_return_routed_experts: bool | None = None
    """True: each reply may bring the experts."""


class ModelInfo(msgspec.Struct, frozen=True):
    """What is read of ``/model_info``."""

    is_generation: bool = True
    weight_version: str | None = None
    """The label of the weights; ``default`` until one was set."""
    preferred_sampling_params: dict[str, Any] | None = None
    """Defaults that the operator set; they hold for every field that a request leaves out."""


class FinishReason(msgspec.Struct, frozen=True):
    """Why the generation stopped, in the engine's words."""

    type: str
    matched: int | str | list[int] | None = None
    """The token or the text that stopped it."""
    message: str = ""
    """Why it was aborted."""

    def __str__(self) -> str:
        what = self.message if self.type == "abort" else self.matched
        return self.type if what in (None, "") else f"{self.type}: {what}"[:200]


class WeightSpan(msgspec.Struct, frozen=True):
    """The sampled tokens from `start` up to `end` are of the weights with this label."""

    version: str
    start: int
    end: int


class _Meta(msgspec.Struct):
    finish_reason: FinishReason
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    num_retractions: int | None = None
    weight_version: str | None = None
    weight_versions: list[WeightSpan] | None = None
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    output_top_logprobs: list[list[tuple[float | None, int, str | None]] | None] | None = None
    routed_experts: str | None = None
    queue_time: float | None = None


class Reply(msgspec.Struct):
    """The fields of a reply that are read."""

    output_ids: list[_Id]
    meta_info: _Meta
    prompt_token_ids: list[_Id] | None = None

    @classmethod
    def of(cls, reply: HttpReply) -> Reply:
        """Read a reply of status 200; an error in its body is raised as its cause."""
        return read_body(reply, cls, refusal_of)

    def logprobs(self) -> npt.NDArray[np.float32]:
        """The logprobs of the sampled ids, held against those ids: float32, shape (tokens,). Raises
        `RolloutFailure` (`engine_contract`)."""
        ids, meta = self.output_ids, self.meta_info
        entries = meta.output_token_logprobs or []
        if meta.completion_tokens not in (None, len(ids)):
            raise _contract(f"the engine counts {meta.completion_tokens} tokens and returned {len(ids)}")
        if len(entries) != len(ids):
            raise _contract(f"{len(ids)} ids but {len(entries)} logprobs")
        if not entries:
            return np.zeros(0, np.float32)
        values, beside, _ = zip(*entries, strict=True)
        if list(beside) != ids:
            raise _contract("the ids beside the logprobs are not those that were sampled")
        return checked_logprobs(values)

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens out of the cache; None also where they were counted over several prefills: a request that was
        taken back (for memory, or for new weights) is prefilled again with what it had sampled."""
        meta = self.meta_info
        return None if meta.num_retractions else meta.cached_tokens

    def listed(self) -> dict[int, float]:
        """The highest logprobs of the first sampled place by id; empty where they are not listed."""
        listed = self.meta_info.output_top_logprobs or [None]
        return {token: value for value, token, _ in listed[0] or () if value is not None}


def check_sampling(sampling: Sampling) -> None:
    """Raise `ConfigError` for what this engine cannot do."""
    for name, low, high in _RANGES:
        value: float = msgspec.structs.asdict(sampling)[name]
        if not low <= value <= high:
            raise ConfigError(f"SGLang takes a {name} from {low:g} to {high:g}, not {value:g}")
    if len(sampling.stop) > MAX_STOPS:
        raise ConfigError(f"SGLang takes at most {MAX_STOPS} stop strings, not {len(sampling.stop)}")
    if sampling.seed is not None and not -(2**63) <= sampling.seed < 2**63:
        raise ConfigError(f"SGLang takes seeds of 64 bits, not {sampling.seed}")


def check_defaults(info: ModelInfo) -> None:
    """Raise `ConfigError` where the server has defaults for fields that a request does not set."""
    foreign = sorted((info.preferred_sampling_params or {}).keys() - _SET)
    if foreign:
        raise ConfigError(
            f"the server was started with preferred sampling parameters that no request here overrides "
            f"({', '.join(foreign)}): start it without --preferred-sampling-params"
        )


def generate_body(
    prompt: Sequence[int], sampling: Sampling, *, limit: int, stop_ids: frozenset[int], rid: str, experts: bool
) -> dict[str, Any]:
    """A request for up to `limit` tokens that may be aborted as `rid`."""
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": prompt,
        "sampling_params": _sampling_params(sampling, limit, stop_ids),
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
        "return_text_in_logprobs": False,
        "return_prompt_token_ids": True,
        "stream": False,
    }
    if experts:
        # row i: the pass over the position before sampled token i; the last sampled token never went through the model
        body |= {"return_routed_experts": True, "routed_experts_start_len": len(prompt) - 1}
    return body


def probe_body(prompt: Sequence[int], sampling: Sampling, *, listed: int, rid: str) -> dict[str, Any]:
    """A request for one token whose reply lists the `listed` highest logprobs of its place."""
    body = generate_body(prompt, sampling, limit=1, stop_ids=frozenset(), rid=rid, experts=False)
    return body | {"top_logprobs_num": listed}


def _sampling_params(sampling: Sampling, limit: int, stop_ids: frozenset[int]) -> dict[str, Any]:
    return {
        "max_new_tokens": limit,
        "min_new_tokens": 0,
        "n": 1,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "sampling_seed": sampling.seed,
        "stop": list(sampling.stop),
        "stop_regex": None,
        "stop_token_ids": sorted(stop_ids.union(sampling.stop_token_ids)),
        "ignore_eos": False,
        "ebnf": sampling.grammar,
        "regex": None,
        "json_schema": None,
        "structural_tag": None,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }


_SET = frozenset(_sampling_params(Sampling(), 1, frozenset()))


def kind_for(found: LogprobKind, sampling: Sampling) -> LogprobKind:
    """The kind of one call's logprobs, from what the start `found` for plain requests.

    Greedy requests (also those of top-k 1) have the logprobs of temperature 1. Penalties and grammar come before
    everything, so what is else `temperature` is then `processed` where nothing is truncated, and `raw` is not the
    model's own.
    """
    shaped = msgspec.structs.replace(sampling, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0).changes_distribution
    truncated = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
    if sampling.temperature == 0.0 or sampling.top_k == 1:
        return LogprobKind.UNKNOWN if shaped else LogprobKind.RAW
    if not shaped or found is LogprobKind.PROCESSED:
        return found
    return LogprobKind.PROCESSED if found is LogprobKind.TEMPERATURE and not truncated else LogprobKind.UNKNOWN


def refusal_of(reply: HttpReply) -> Exception:
    """The failure that a reply of another status than 200 stands for."""
    message, _ = error_of(reply)
    if reply.status == HTTPStatus.BAD_REQUEST and _OVERFLOW.search(message):
        return RolloutFailure(Reason.CONTEXT_OVERFLOW, message)
    return failure_of(reply)


def _contract(detail: str) -> RolloutFailure:
    return RolloutFailure(Reason.ENGINE_CONTRACT, detail)
