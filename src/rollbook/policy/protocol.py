"""The one thing that a policy does: token ids in, token ids and their log-probabilities out.

Rules that every implementation keeps (who asks holds each reply to them, once, by `check_completion`): ids are exactly
those that the engine sampled; one logprob per id, aligned by id, from the same reply; a logprob that the engine left
out and that a second request supplied is marked in `rescored`; whatever breaks this is an `engine_contract` failure,
never a repair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import Annotated, Any, Protocol, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.trace.call import Finish, LogprobKind, Sampling
from rollbook.trace.checks import LOGPROB_SLACK
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.node import TokenIds

__all__ = ["Completion", "EngineBusy", "Policy", "PolicyInfo", "RemotePolicy", "TokenIds", "check_completion"]


MAX_RETRY_AFTER = 3600.0
"""The longest wait that an engine can ask for, in seconds."""


class EngineBusy(RolloutFailure):
    """The engine refuses for load or while it is paused (HTTP 429, 503): the same request may be made again later.

    Waiting for it is nobody's failure; who asks decides for how long.
    """

    def __init__(self, reason: Reason, detail: object, retry_after: float | None = None) -> None:
        """`retry_after`: seconds that the engine asks to wait, kept between 0 and `MAX_RETRY_AFTER`; None, or no
        number at all: it does not say."""
        super().__init__(reason, detail)
        asked = None if retry_after is None or isnan(retry_after) else retry_after
        self.retry_after = None if asked is None else min(max(asked, 0.0), MAX_RETRY_AFTER)

    def __reduce__(self) -> tuple[type[EngineBusy], tuple[Reason, str, float | None]]:  # type: ignore[override]
        return type(self), (self.reason, self.detail, self.retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """What is known of a policy before the first request. Tokenizer and template are the renderer's."""

    name: str
    """The policy's name in the one grammar, e.g. ``local:smollm2-135m``."""
    engine: str
    """The engine and its version, e.g. ``llama.cpp (xllamacpp 2026.10)``."""
    context_length: int | None
    """The most tokens of prompt and reply together; None: not known."""
    logprob_kind: LogprobKind
    weights_hash: str = ""
    """sha256 of the file with the weights in hex; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply. Arrays are over the sampled tokens."""

    token_ids: TokenIds
    """int32, shape (tokens,); an end-of-turn token that was sampled is the last."""
    logprobs: npt.NDArray[np.float32]
    """float32, shape (tokens,); natural log, <= 0."""
    rescored: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Positions in `token_ids` whose logprob came from a second request to the same engine."""
    logprob_kind: LogprobKind
    finish: Finish
    engine_finish: str = ""
    """The engine's own words."""
    versions: tuple[tuple[int, int], ...] = ()
    """Policy versions as a run-length list of (version, tokens); empty where the engine does not say."""
    prompt_tokens: int | None = None
    """As the engine counted; None where it does not say."""
    prompt_ids: TokenIds | None = None
    """int32: the prompt that the engine says it ran on; None where it does not say. Held against what was sent."""
    cached_tokens: int | None = None
    """Prompt tokens out of the engine's cache; None where it does not say."""
    routed_experts: npt.NDArray[np.uint16] | None = None
    """uint16, shape (tokens, layers, k): the experts of the pass that each token was sampled from, which runs over the
    position before it; None where the engine does not say."""
    tries: int = 1
    """HTTP requests that the reply took."""
    queue: float | None = None
    """Seconds; None where the engine does not say. Likewise below."""
    prefill: float | None = None
    decode: float | None = None


class Policy(Protocol):
    """A model that can be sampled. `sample` may be called many times at once from one event loop."""

    @property
    def info(self) -> PolicyInfo:
        """Known after `start`."""
        ...

    async def start(self) -> None:
        """Bring the engine up, or connect to it. Raises `UsageError` with a remedy. Calling it twice does nothing."""
        ...

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        """Sample one continuation of `prompt` (int32, shape (tokens,)).

        `sampling.max_tokens` is set by the caller and fits the context. `session` names the rollout, for cache
        affinity and aborts. Raises `RolloutFailure` with an engine reason. On cancellation the generation stops.
        """
        ...

    async def close(self) -> None:
        """Free everything. Calling it twice does nothing."""
        ...


class RemotePolicy:
    """The base of the clients of engines behind a URL: a run tries those before it begins."""


_Seconds = Annotated[float, msgspec.Meta(ge=0.0, lt=2.0**31)]


class _Told(msgspec.Struct, frozen=True):
    """What an engine says beside its arrays, held to its types."""

    logprob_kind: LogprobKind
    finish: Finish
    engine_finish: Annotated[str, msgspec.Meta(max_length=1000)]
    versions: tuple[tuple[Annotated[int, msgspec.Meta(lt=2**31)], int], ...]
    prompt_tokens: int | None
    cached_tokens: Annotated[int, msgspec.Meta(ge=0)] | None
    tries: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    queue: _Seconds | None
    prefill: _Seconds | None
    decode: _Seconds | None


def _check_types(completion: Completion) -> None:
    """Python holds no field to its type, and what a completion says goes into the record."""
    try:
        msgspec.convert(completion, _Told, from_attributes=True)
    except msgspec.ValidationError as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the reply is no completion: {error}") from error
    arrays = cast("tuple[object, ...]", (completion.token_ids, completion.logprobs, completion.rescored))
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in arrays):
        raise RolloutFailure(Reason.ENGINE_CONTRACT, "ids, logprobs and rescored positions are no flat arrays")
    _check_experts(completion.routed_experts, len(completion.token_ids))


def _check_experts(experts: object, tokens: int) -> None:
    if experts is None:
        return
    if not isinstance(experts, np.ndarray):
        raise RolloutFailure(Reason.ENGINE_CONTRACT, "routed experts are no array")
    routed = cast("npt.NDArray[Any]", experts)
    if routed.dtype != np.uint16 or routed.ndim != 3 or len(routed) != tokens:
        detail = f"routed experts are {routed.dtype} of shape {routed.shape}, not uint16 over {tokens} tokens"
        raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)


def check_completion(completion: Completion, prompt: TokenIds, sampling: Sampling) -> None:
    """Hold the token contract on one reply; raises `RolloutFailure` (`engine_contract`) at the first break."""
    _check_types(completion)
    ids, logprobs = completion.token_ids, completion.logprobs
    limit = sampling.max_tokens
    versions = sum(count for _, count in completion.versions)
    checks = (
        (ids.dtype == np.int32, lambda: f"ids are {ids.dtype}, not int32"),
        (logprobs.dtype == np.float32, lambda: f"logprobs are {logprobs.dtype}, not float32"),
        (
            completion.rescored.dtype == np.int32,
            lambda: f"rescored positions are {completion.rescored.dtype}, not int32",
        ),
        (len(ids) == len(logprobs), lambda: f"{len(ids)} ids but {len(logprobs)} logprobs"),
        (bool(np.isfinite(logprobs).all()), lambda: "a logprob is not finite"),
        (not len(logprobs) or float(logprobs.max()) <= LOGPROB_SLACK, lambda: "a logprob is above 0"),
        (not len(ids) or int(ids.min()) >= 0, lambda: "a token id is negative"),
        (limit is None or len(ids) <= limit, lambda: f"{len(ids)} tokens, more than the {limit} asked for"),
        (
            completion.prompt_tokens in (None, len(prompt)),
            lambda: f"the engine counted {completion.prompt_tokens} prompt tokens, {len(prompt)} were sent",
        ),
        (
            completion.cached_tokens is None or completion.cached_tokens <= len(prompt),
            lambda: f"{completion.cached_tokens} prompt tokens came from the cache, {len(prompt)} were sent",
        ),
        (
            completion.prompt_ids is None or np.array_equal(completion.prompt_ids, prompt),
            lambda: "the engine ran on another prompt than was sent: its echo of the ids differs",
        ),
        (not completion.versions or versions == len(ids), lambda: f"versions cover {versions} of {len(ids)} tokens"),
        (
            all(version >= 0 and count > 0 for version, count in completion.versions),
            lambda: "a version or its count is none",
        ),
        (_rise_within(completion.rescored, len(ids)), lambda: "rescored positions do not rise within the reply"),
        (len(ids) > 0 or completion.finish in (Finish.ABORT, Finish.ERROR), lambda: "the reply holds no tokens"),
    )
    for fine, problem in checks:
        if not fine:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, problem())


def _rise_within(positions: npt.NDArray[np.int32], size: int) -> bool:
    if not len(positions):
        return True
    return bool(positions[0] >= 0 and positions[-1] < size and (positions[1:] > positions[:-1]).all())
