"""What asking a judge came to, why it failed, and what the judges of one worker share.

Rule: each request to a judge leaves a `Judgement`, a failed one too, whatever the scorer makes of it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from enum import StrEnum
from typing import Protocol

import msgspec

from rollbook.policy.endpoint import TextEndpoint
from rollbook.policy.protocol import Policy
from rollbook.render.protocol import Renderer
from rollbook.rewards.scorers.scorer import ScoringFailed
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.message import Message

__all__ = ["JUDGES", "JudgeError", "JudgeFailed", "Judgement", "Judges", "Speaker"]


class JudgeError(StrEnum):
    """Why a judge gave no verdict."""

    UNREACHABLE = "unreachable"
    """Its engine could not be reached, went away, or kept turning requests away."""
    TIMEOUT = "timeout"
    """It did not reply in time."""
    CONTRACT = "contract"
    """Its engine's reply was none: ids, logprobs or finish do not hold together."""
    TOO_LONG = "too_long"
    """The question does not fit: it is over the judge's bound, or its context has no room."""
    TEMPLATE = "template"
    """Its chat template refuses the question."""
    CUT = "cut"
    """Its reply was cut by the limit of tokens before it ended."""
    MALFORMED = "malformed"
    """Its reply does not end with one verdict in the form that was asked for."""
    OUT_OF_RANGE = "out_of_range"
    """The verdict is a number outside of the range that was asked for."""
    REFUSED = "refused"
    """It said that it cannot judge, or a filter stopped it."""
    BROKEN = "broken"
    """Code of the policy or of the question raised an error of its own."""


class JudgeFailed(ScoringFailed):
    """A judge gave no verdict: there is no reward, which is not 0."""

    def __init__(self, kind: JudgeError, detail: object) -> None:
        super().__init__(f"the judge failed ({kind}): {detail}")
        self.kind = kind
        self.detail = str(detail)

    def __reduce__(self) -> tuple[type[JudgeFailed], tuple[JudgeError, str]]:
        return type(self), (self.kind, self.detail)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a judge, and what came of it."""

    judge: str
    """Its name among the judges of an environment."""
    policy: str
    """Who judged, in the policy grammar."""
    rollouts: tuple[str, ...]
    """Whose attempts were judged."""
    question: tuple[Message, ...]
    reply: Message | None = None
    """None: none came."""
    verdict: float | None = None
    """None: it failed."""
    error: JudgeError | None = None
    """None: it gave its verdict."""
    detail: str = ""
    """Of the error."""
    sampling: Sampling = Sampling()
    """As it was asked for."""
    finish: Finish | None = None
    """How the reply ended; None: none came."""
    prompt_tokens: int | None = None
    """None: not known. Likewise below."""
    completion_tokens: int | None = None
    tries: int = 1
    """Requests that were sent, those that were turned away included."""
    seconds: float = 0.0
    """Wall time of all tries, without the wait for a slot."""


class Speaker(Protocol):
    """A policy with its renderer, or a text-only endpoint: what a `rollbook.LoadedPolicy` is."""

    @property
    def policy(self) -> Policy: ...

    @property
    def text(self) -> TextEndpoint | None: ...

    @property
    def renderer(self) -> Renderer: ...


class Judges(Protocol):
    """What the judges of one worker share while a rollout or a group is scored."""

    def slot(self) -> AbstractAsyncContextManager[None]:
        """A slot of the resource ``judge``, for one request."""
        ...

    def pause(self, seconds: float) -> None:
        """Let no request out for so long: the engine is busy."""
        ...

    async def speaker(self, policy: Speaker | str) -> Speaker:
        """The policy, started; one that is given by name is loaded once. Raises `UsageError`."""
        ...

    def keep(self, judgement: Judgement) -> None:
        """Keep what a question came to, for the record."""
        ...


JUDGES: ContextVar[Judges | None] = ContextVar("rollbook_judges", default=None)
"""Set around each scoring, so that a scorer needs no further argument; None: nothing is shared, nothing is kept."""
