"""What goes to and comes from the ``/completion`` route of llama.cpp's server: request bodies and replies, without I/O.

The server's defaults change the distribution, so every sampler field is set in each request. Order of the transform:
penalties, temperature, then min-p, top-k and top-p. Logprobs are of the raw model distribution. Penalties count the
prompt's tokens too; that is this engine's meaning of them. A setting that the engine has no field for is refused, not
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.policy.http import HttpReply, error_of, failure_of
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = [
    "FINISHES",
    "ModelMeta",
    "Reply",
    "check_sampling",
    "completion_body",
    "probe_body",
    "refusal_of",
    "rescore_body",
]

ENGINE_SEED = 2**32 - 1
"""The seed that makes the engine choose one."""
FINISHES = {"eos": Finish.STOP, "limit": Finish.LENGTH, "word": Finish.STOP_STRING}
"""What the engine's ``stop_type`` says; every other word is none that ends a reply."""

_NEUTRAL: dict[str, Any] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "typical_p": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 0,
    "mirostat": 0,
    "min_keep": 0,
    "logit_bias": [],
    "ignore_eos": False,
    "n_keep": 0,
    "post_sampling_probs": False,
    "cache_prompt": True,
    "return_tokens": True,
    "stream": False,
}
_SAMPLERS = ["penalties", "temperature", "min_p", "top_k", "top_p"]
_WHOLE = "root ::= [a-z]+"
# The server lists probabilities only for a reply that ends on a whole character; the grammar makes the throw-away token
# such a one, and it does not touch the listed distribution, which is raw.


_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=0.0)]


class _Entry(msgspec.Struct):
    id: int
    logprob: float
    top_logprobs: list[_Entry] = []


class _Timings(msgspec.Struct):
    cache_n: _Count
    prompt_n: _Count
    prompt_ms: _Milliseconds
    predicted_ms: _Milliseconds


class Reply(msgspec.Struct):
    """The fields of a reply that are read."""

    tokens: list[_Id]
    stop_type: str
    truncated: bool
    tokens_evaluated: int
    tokens_predicted: int
    timings: _Timings
    completion_probabilities: list[_Entry]

    @property
    def entries(self) -> list[tuple[int, float]]:
        """(id, logprob) of the sampled tokens, some perhaps left out."""
        return [(entry.id, entry.logprob) for entry in self.completion_probabilities]

    def alternatives(self) -> dict[int, float]:
        """The highest logprobs of the first sampled place by id; empty where they are not listed."""
        return {other.id: other.logprob for entry in self.completion_probabilities[:1] for other in entry.top_logprobs}

    def listed(self, token: int) -> float | None:
        """The logprob of `token` among the alternatives for the first place; None where it is not listed."""
        for entry in self.completion_probabilities[:1]:
            for other in entry.top_logprobs:
                if other.id == token:
                    return other.logprob
        return None

    def check(self, sent: int, asked: int) -> None:
        """Hold the counts. Raises `RolloutFailure`."""
        counted = self.timings.cache_n + self.timings.prompt_n
        problem = None
        if self.truncated:
            problem = "the engine cut the prompt or ran out of its context"
        elif not self.tokens_evaluated == counted == sent:
            problem = (
                f"{sent} prompt tokens were sent, the engine counts {self.tokens_evaluated} and worked on {counted}"
            )
        elif self.tokens_predicted != len(self.tokens):
            problem = f"the engine sampled {self.tokens_predicted} tokens and returned {len(self.tokens)}"
        elif len(self.tokens) > asked:
            problem = f"{len(self.tokens)} tokens, more than the {asked} asked for"
        if problem:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, problem)
        if self.stop_type == "limit" and len(self.tokens) < asked:
            raise RolloutFailure(Reason.ENGINE_TIMEOUT, f"{len(self.tokens)} of {asked} tokens before the time limit")


class _Meta(msgspec.Struct):
    n_vocab: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    n_ctx_train: int


class _Model(msgspec.Struct):
    id: str
    meta: _Meta


class ModelMeta(msgspec.Struct):
    """The reply of ``/v1/models``."""

    data: list[_Model]

    def vocabulary(self, model: str) -> int:
        """Ids that `model` has. Raises `RolloutFailure` (`engine_contract`)."""
        for each in self.data:
            if each.id == model:
                return each.meta.n_vocab
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the model {model!r} is no longer listed")


def check_sampling(sampling: Sampling, stop_ids: frozenset[int]) -> None:
    """Raise `ConfigError` for what this engine cannot do."""
    foreign = set(sampling.stop_token_ids) - stop_ids
    if foreign:
        raise ConfigError(
            f"llama.cpp stops at the model's own end tokens only, not at {sorted(foreign)}: use stop strings"
        )
    if sampling.seed is not None and not 0 <= sampling.seed < ENGINE_SEED:
        raise ConfigError(f"llama.cpp takes seeds from 0 to {ENGINE_SEED - 1}, not {sampling.seed}")


def completion_body(
    prompt: Sequence[int], sampling: Sampling, *, limit: int, seed: int | None, time_limit: float
) -> dict[str, Any]:
    """A request for up to `limit` tokens. `time_limit` in seconds bounds the decoding on the server's side,
    but the server looks at it only once a line is complete: the caller needs a limit of its own."""
    penalised = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1.0, 0.0, 0.0)
    return _NEUTRAL | {
        "prompt": prompt,
        "n_predict": limit,
        "t_max_predict_ms": int(time_limit * 1000),
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_last_n": len(prompt) + limit if penalised else 0,
        "samplers": _SAMPLERS,
        "seed": ENGINE_SEED if seed is None else seed,
        "stop": list(sampling.stop),
        "grammar": sampling.grammar or "",
        "n_probs": 1,
    }


def rescore_body(prefix: Sequence[int], listed: int, time_limit: float) -> dict[str, Any]:
    """A request whose reply lists the `listed` most likely tokens behind `prefix`, with raw logprobs."""
    return probe_body(prefix, Sampling(seed=0), listed, time_limit)


def probe_body(prompt: Sequence[int], sampling: Sampling, listed: int, time_limit: float) -> dict[str, Any]:
    """A request for one throw-away token whose reply lists the `listed` highest logprobs of its place."""
    whole = msgspec.structs.replace(sampling, grammar=_WHOLE)
    return completion_body(prompt, whole, limit=1, seed=sampling.seed, time_limit=time_limit) | {"n_probs": listed}


def refusal_of(reply: HttpReply) -> Exception:
    """The failure that an HTTP error stands for, by status and the engine's error type."""
    message, kind = error_of(reply)
    if kind == "exceed_context_size_error":
        return RolloutFailure(Reason.CONTEXT_OVERFLOW, message)
    return failure_of(reply)
