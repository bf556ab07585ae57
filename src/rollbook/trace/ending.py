"""Why an attempt stopped, and what follows from it.

Rules: the ending is fixed when the attempt stops and the first cause wins; its kind follows from its reason, so the two
cannot disagree; what becomes of the rollout is a separate, later decision (a disposition) made by one frozen table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rollbook.errors import ConfigError, RecordError, RollbookError

__all__ = [
    "Disposition",
    "Drop",
    "Ending",
    "EndingKind",
    "EndingRules",
    "Fate",
    "Mask",
    "Penalize",
    "Reason",
    "Retry",
    "RolloutFailure",
    "Rule",
    "Score",
]


class EndingKind(StrEnum):
    """What an ending says of the policy."""

    SUBMITTED = "submitted"
    """The agent handed something in: an outcome."""
    DETECTED = "detected"
    """The environment saw an outcome."""
    TRUNCATED = "truncated"
    """The agent did not finish within its budget."""
    LENGTH_CUT = "length_cut"
    """One generation ran into its own limit mid-output."""
    ERROR = "error"
    """Something broke; usually it says nothing of the policy."""
    UNKNOWN = "unknown"
    """It was recorded elsewhere, and the record does not say; never given to a rollout of our own."""


class Reason(StrEnum):
    """The typed cause of an ending; each belongs to exactly one kind."""

    FINAL_ANSWER = "final_answer"
    """The agent replied without a tool call."""
    STOP_TOOL = "stop_tool"
    """The agent called a tool that ends the attempt."""
    USER_STOP = "user_stop"
    """The (simulated) user ended the conversation."""
    GOAL_REACHED = "goal_reached"
    """The environment saw the goal reached."""
    UNRECOVERABLE = "unrecoverable"
    """The environment saw that the goal cannot be reached any more."""
    MAX_TURNS = "max_turns"
    """The turn budget was used up."""
    MAX_TOKENS = "max_tokens"
    """The rollout's own token budget was used up."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The next prompt leaves no room in the context window."""
    DEADLINE = "deadline"
    """The rollout's own time (decoding, tools) was used up."""
    MAX_TOOL_CALLS = "max_tool_calls"
    """The tool-call budget was used up."""
    NO_ACTIVITY = "no_activity"
    """A foreign agent sent nothing for longer than allowed."""
    GENERATION_LIMIT = "generation_limit"
    """One generation reached the per-call limit that was asked for."""
    ENGINE_TIMEOUT = "engine_timeout"
    """The engine did not answer in time."""
    ENGINE_UNREACHABLE = "engine_unreachable"
    """The engine could not be reached, or answered that it is down."""
    RATE_LIMITED = "rate_limited"
    """The engine refused for load, beyond the retries allowed."""
    ENGINE_CONTRACT = "engine_contract"
    """The engine broke the token contract (ids, logprobs, counts)."""
    ENV_SETUP = "env_setup"
    """The environment could not be set up."""
    TOOL_SERVER = "tool_server"
    """The machinery that runs tools failed (not a tool that raised)."""
    SANDBOX_LOST = "sandbox_lost"
    """The sandbox's host failed, with evidence."""
    HARNESS = "harness"
    """The program that drives the model failed, or ran past the wall cap."""
    PEER = "peer"
    """Another seat of the episode failed and this one could not go on."""
    INTERRUPTED = "interrupted"
    """The process that ran the rollout died."""
    CANCELLED = "cancelled"
    """Somebody cancelled the rollout."""
    TEMPLATE_REFUSED = "template_refused"
    """The chat template has no form for the conversation; another try would come to the same."""
    INTERNAL = "internal"
    """A fault of ours."""
    NOT_RECORDED = "not_recorded"
    """An imported record does not say why the attempt stopped."""

    @property
    def kind(self) -> EndingKind:
        """The kind that this reason belongs to."""
        return _KINDS[self]


_KINDS: dict[Reason, EndingKind] = {
    Reason.FINAL_ANSWER: EndingKind.SUBMITTED,
    Reason.STOP_TOOL: EndingKind.SUBMITTED,
    Reason.USER_STOP: EndingKind.SUBMITTED,
    Reason.GOAL_REACHED: EndingKind.DETECTED,
    Reason.UNRECOVERABLE: EndingKind.DETECTED,
    Reason.MAX_TURNS: EndingKind.TRUNCATED,
    Reason.MAX_TOKENS: EndingKind.TRUNCATED,
    Reason.CONTEXT_OVERFLOW: EndingKind.TRUNCATED,
    Reason.DEADLINE: EndingKind.TRUNCATED,
    Reason.MAX_TOOL_CALLS: EndingKind.TRUNCATED,
    Reason.NO_ACTIVITY: EndingKind.TRUNCATED,
    Reason.GENERATION_LIMIT: EndingKind.LENGTH_CUT,
    Reason.ENGINE_TIMEOUT: EndingKind.ERROR,
    Reason.ENGINE_UNREACHABLE: EndingKind.ERROR,
    Reason.RATE_LIMITED: EndingKind.ERROR,
    Reason.ENGINE_CONTRACT: EndingKind.ERROR,
    Reason.ENV_SETUP: EndingKind.ERROR,
    Reason.TOOL_SERVER: EndingKind.ERROR,
    Reason.SANDBOX_LOST: EndingKind.ERROR,
    Reason.HARNESS: EndingKind.ERROR,
    Reason.PEER: EndingKind.ERROR,
    Reason.INTERRUPTED: EndingKind.ERROR,
    Reason.CANCELLED: EndingKind.ERROR,
    Reason.TEMPLATE_REFUSED: EndingKind.ERROR,
    Reason.INTERNAL: EndingKind.ERROR,
    Reason.NOT_RECORDED: EndingKind.UNKNOWN,
}


LARGEST_REWARD = 3.4028234663852886e38
"""The largest float32: what trainers hold rewards in. Sums of such numbers cannot overflow here."""


def is_reward(value: float) -> bool:
    """True for a number that can be a reward: finite, also as a float32."""
    return abs(value) <= LARGEST_REWARD


class Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the attempt stopped."""

    reason: Reason
    detail: str = ""
    """For people: numbers and messages behind the reason. Never parsed."""

    @property
    def kind(self) -> EndingKind:
        """What the ending says of the policy."""
        return self.reason.kind

    @property
    def truncated(self) -> bool:
        """True where a budget or limit cut the attempt short (kinds ``truncated`` and ``length_cut``)."""
        return self.kind in (EndingKind.TRUNCATED, EndingKind.LENGTH_CUT)

    def __str__(self) -> str:
        return f"{self.kind}/{self.reason}"


class RolloutFailure(RollbookError):
    """A fault or a limit that ends a rollout as `reason`; raised at the edges, turned into an ending in one place.

    An outcome is no failure: only a reply and the environment's own `StepResult` can be one. Raises `RecordError`.
    """

    def __init__(self, reason: Reason, detail: object) -> None:
        """`detail`: for people; what is no text (an exception, say) is kept as its text."""
        if reason.kind in (EndingKind.SUBMITTED, EndingKind.DETECTED, EndingKind.UNKNOWN):
            raise RecordError(f"{reason.kind}/{reason} is an outcome or nothing known, which no failure is: {detail}")
        super().__init__(f"{reason.kind}/{reason}: {detail}")
        self.reason = reason
        self.detail = str(detail)

    def __reduce__(self) -> tuple[type[RolloutFailure], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)

    @property
    def ending(self) -> Ending:
        """The ending that this failure causes, if it is the first cause."""
        return Ending(self.reason, self.detail)


class Score(msgspec.Struct, frozen=True, tag="score"):
    """Use the rollout with the reward that its scorer gave."""


class Mask(msgspec.Struct, frozen=True, tag="mask"):
    """Keep the rollout for the record: no loss, no vote."""


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Leave the rollout out of the batch."""


class Penalize(msgspec.Struct, frozen=True, tag="penalize"):
    """Use the rollout with its reward plus `amount`."""

    amount: float
    """Added to the reward; negative for a penalty."""

    def __post_init__(self) -> None:
        if not is_reward(self.amount):
            raise ConfigError(f"Penalize: the amount must be finite, not {self.amount}")


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """Run the task again as the next attempt, up to `times`, then drop."""

    times: int
    """How often this reason may be retried for one scheduled rollout."""

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ConfigError(f"Retry: times must be >= 0, not {self.times}")


Rule = Score | Mask | Drop | Penalize | Retry


class Fate(StrEnum):
    """What became of an ended rollout."""

    USED = "used"
    """It is in the batch and votes in its group."""
    MASKED = "masked"
    """Kept for the record: no loss, no vote."""
    DROPPED = "dropped"
    """Left out of the batch."""
    RETRIED = "retried"
    """Replaced by a further attempt."""
    PENALISED = "penalised"
    """Used, with an explicit amount added to its reward."""


class Disposition(msgspec.Struct, frozen=True):
    """What became of one ended rollout, and by which rule."""

    fate: Fate
    rule: str
    """The row that decided, as text, e.g. ``env_setup: retry(2)`` or ``scoring failed``."""

    @property
    def votes(self) -> bool:
        """True where the rollout enters its group's statistics and the loss."""
        return self.fate in (Fate.USED, Fate.PENALISED)


NO_BUDGET = 2**31 - 1
"""Retries without a bound of their own: after an interruption a person asks for each of them, by resuming."""


def _default_rule(reason: Reason) -> Rule:
    match reason:
        case Reason.CANCELLED | Reason.TEMPLATE_REFUSED:
            return Drop()
        case Reason.INTERRUPTED:
            return Retry(NO_BUDGET)
        case _:
            return Retry(2) if reason.kind is EndingKind.ERROR else Score()


class EndingRules(msgspec.Struct, frozen=True):
    """One frozen table: reason -> rule. Where no row is overridden, outcomes, budget ends and what is not known are
    scored, errors are retried twice and then dropped, ``interrupted`` is retried by each resume, and ``cancelled`` and
    ``template_refused`` are dropped."""

    rows: dict[Reason, Rule] = {}
    """Overrides only."""

    def __post_init__(self) -> None:
        if isinstance(self.rows.get(Reason.CANCELLED), Retry):
            raise ConfigError("EndingRules: 'cancelled' is never retried; use Drop() or Mask()")

    def rule(self, reason: Reason) -> Rule:
        """The rule that applies to `reason`."""
        found = self.rows.get(reason)
        return _default_rule(reason) if found is None else found

    def override(self, rows: Mapping[Reason, Rule]) -> EndingRules:
        """A table with `rows` replaced; the original is unchanged."""
        return EndingRules({**self.rows, **rows})

    def describe(self, reason: Reason) -> str:
        """The row as text, for dispositions and reports."""
        match self.rule(reason):
            case Retry(times) if times == NO_BUDGET:
                return f"{reason}: retry"
            case Retry(times):
                return f"{reason}: retry({times})"
            case Penalize(amount):
                return f"{reason}: penalize({amount:g})"
            case rule:
                return f"{reason}: {type(rule).__name__.lower()}"
