"""What was found of an engine, one typed finding for each promise that rollouts stand on.

A finding is `fine` where the promise is kept, `differs` where training on its tokens is right but something is to be
known, `broken` where it would be wrong, and `unknown` where the engine's answers do not tell. A report cannot judge
where one of `NEEDED` is unknown and nothing is broken.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["NEEDED", "PolicyCheck", "PolicyFinding", "PolicyReport", "PolicyVerdict"]


class PolicyCheck(StrEnum):
    """What is looked at, in the order of the report."""

    PROMPT_IDS = "prompt_ids"
    """The engine runs on exactly the ids that were sent."""
    MAX_TOKENS = "max_tokens"
    """A reply has no more tokens than were asked for."""
    STOP_TOKEN = "stop_token"  # noqa: S105 (a name, no secret)
    """The token that ends a turn is among the ids, as the last."""
    STOP_STRING = "stop_string"
    """What becomes of the ids where a stop string ends the reply."""
    LOGPROB_KIND = "logprob_kind"
    """Of which distribution the logprobs are, and whether that is what the client says."""
    LOGPROBS = "logprobs"
    """Each token has its logprob, also one inside a character."""
    FIRST_LOGPROB = "first_logprob"
    """The same prompt gets the same first token with the same logprob, also beside other requests."""
    GREEDY = "greedy"
    """Temperature 0 repeats itself."""
    SEED = "seed"
    """The same seed repeats itself at temperature 1, and another seed does not."""
    CONTINUATION = "continuation"
    """A reply that is cut and sent back goes on as if it had not been cut."""
    CACHE = "cache"
    """A later turn's prompt comes out of the engine's cache."""
    OVERFLOW = "overflow"
    """A prompt that does not fit the context is refused."""
    ABORT = "abort"
    """A cancelled request frees the engine."""
    VERSION = "version"
    """The engine says which version of the weights it sampled from."""
    SAMPLING = "sampling"
    """Each sampling field is honoured or refused, never dropped."""
    VOCABULARY = "vocabulary"
    """Sampled ids are in the tokenizer's vocabulary."""


NEEDED = frozenset(
    {
        PolicyCheck.PROMPT_IDS,
        PolicyCheck.MAX_TOKENS,
        PolicyCheck.STOP_TOKEN,
        PolicyCheck.LOGPROB_KIND,
        PolicyCheck.LOGPROBS,
    }
)
"""What must be known before anything is trained on the engine's tokens."""


class PolicyVerdict(StrEnum):
    """What a finding means for training."""

    FINE = "fine"
    """The promise is kept."""
    DIFFERS = "differs"
    """Right to train on, with something to know."""
    BROKEN = "broken"
    """Wrong to train on."""
    UNKNOWN = "unknown"
    """The engine's answers do not tell."""


class PolicyFinding(msgspec.Struct, frozen=True, kw_only=True, rename={"about": "check"}):
    """One promise of one engine."""

    about: PolicyCheck
    verdict: PolicyVerdict
    detail: str
    """What was seen, in a sentence."""
    numbers: dict[str, float] = {}
    """What was counted or measured, by name."""


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one engine."""

    name: str
    """The policy's name."""
    engine: str
    """As it names itself, with its version."""
    context_length: int | None
    """Tokens of prompt and reply together; None: not known."""
    requests: int
    """How many requests were made."""
    findings: tuple[PolicyFinding, ...]

    @property
    def broken(self) -> tuple[PolicyFinding, ...]:
        """The promises that are not kept."""
        return tuple(each for each in self.findings if each.verdict is PolicyVerdict.BROKEN)

    @property
    def undecided(self) -> tuple[PolicyFinding, ...]:
        """What must be known and is not."""
        unknown = (each for each in self.findings if each.verdict is PolicyVerdict.UNKNOWN)
        return tuple(each for each in unknown if each.about in NEEDED)

    @property
    def fit(self) -> bool:
        """True where nothing is broken and all that must be known is known."""
        return not self.broken and not self.undecided

    def get(self, asked: PolicyCheck) -> PolicyFinding | None:
        """The finding for one promise; None where it was not looked at."""
        return next((each for each in self.findings if each.about is asked), None)
