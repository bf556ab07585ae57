"""Whether each sampling field is honoured, refused, or dropped in silence.

Three ways to see a field at work: a truncation to the likeliest token at a high temperature gives the greedy reply; a
penalty changes what a text that repeats itself goes on with; a grammar of one word gives that word.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec.structs import replace

from rollbook.policy.check_asking import Answer, Prober, Refused
from rollbook.policy.check_judge import refusal, shared
from rollbook.policy.check_report import PolicyCheck, PolicyFinding, PolicyVerdict
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.trace.call import Sampling

__all__ = ["fields"]

TOKENS = 24
"""Tokens of each request."""
ENOUGH = 3
"""Tokens that agree with the greedy reply where a truncation is at work; without one they would hardly."""
WORD = "water"
_HOT = Sampling(temperature=1.5, seed=7, max_tokens=TOKENS)
_GREEDY = Sampling(temperature=0.0, seed=7, max_tokens=TOKENS)
_TRUNCATIONS = {
    "top_k": replace(_HOT, top_k=1),
    "top_p": replace(_HOT, top_p=0.0001),
    "min_p": replace(_HOT, min_p=0.999),
}
_PENALTIES = {
    "repetition_penalty": replace(_GREEDY, repetition_penalty=1.9),
    "presence_penalty": replace(_GREEDY, presence_penalty=2.0),
    "frequency_penalty": replace(_GREEDY, frequency_penalty=2.0),
}
_GRAMMAR = Sampling(seed=7, max_tokens=TOKENS, grammar=f'root ::= "{WORD}"')


class _Seen(StrEnum):
    """What was seen of one field."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    """Taken, and without effect."""
    REFUSED = "refused"
    """The client or the engine says that it cannot."""
    BROKEN = "broken"
    """The reply broke the token contract."""
    NOT_SEEN = "not seen"
    """The replies do not tell."""
    NO_ANSWER = "no answer"


async def fields(prober: Prober, text_of: Callable[[TokenIds], str]) -> PolicyFinding:
    """One finding for all fields."""
    inputs = prober.inputs
    plain, steady, free = (
        await prober.ask(inputs.open, _GREEDY),
        await prober.ask(inputs.repeats, _GREEDY),
        await prober.ask(inputs.open, _HOT),
    )
    if not (isinstance(plain, Completion) and isinstance(steady, Completion) and isinstance(free, Completion)):
        answers = [plain, steady, free]
        return refusal(PolicyCheck.SAMPLING, answers) or _finding({})
    seen: dict[str, _Seen] = {}
    hides = shared(plain.token_ids, free.token_ids) >= ENOUGH
    for name, sampling in _TRUNCATIONS.items():
        answer = await prober.ask(inputs.open, sampling)
        seen[name] = _truncated(answer, plain, hides=hides)
    for name, sampling in _PENALTIES.items():
        seen[name] = _penalised(await prober.ask(inputs.repeats, sampling), steady)
    seen["grammar"] = _constrained(await prober.ask(inputs.open, _GRAMMAR), text_of)
    return _finding(seen)


def _truncated(answer: Answer, greedy: Completion, *, hides: bool) -> _Seen:
    """`hides`: the untruncated reply is the greedy one too, so nothing can be seen."""
    if isinstance(answer, Refused):
        return _refused(answer)
    need = min(ENOUGH, len(greedy.token_ids))
    if shared(answer.token_ids, greedy.token_ids) < need:
        return _Seen.IGNORED
    return _Seen.NOT_SEEN if hides else _Seen.HONOURED


def _penalised(answer: Answer, plain: Completion) -> _Seen:
    if isinstance(answer, Refused):
        return _refused(answer)
    same = shared(answer.token_ids, plain.token_ids) == max(len(answer.token_ids), len(plain.token_ids))
    return _Seen.NOT_SEEN if same else _Seen.HONOURED


def _constrained(answer: Answer, text_of: Callable[[TokenIds], str]) -> _Seen:
    if isinstance(answer, Refused):
        return _refused(answer)
    return _Seen.HONOURED if text_of(answer.token_ids).startswith(WORD) else _Seen.IGNORED


def _refused(answer: Refused) -> _Seen:
    if answer.breaks:
        return _Seen.BROKEN
    return _Seen.REFUSED if answer.reason is None else _Seen.NO_ANSWER


def _finding(seen: dict[str, _Seen]) -> PolicyFinding:
    groups = {word: [name for name, what in seen.items() if what is word] for word in dict.fromkeys(seen.values())}
    detail = "; ".join(f"{word}: {', '.join(names)}" for word, names in groups.items()) or "nothing could be asked"
    numbers = {word.replace(" ", "_"): float(len(names)) for word, names in groups.items()}
    if _Seen.IGNORED in groups or _Seen.BROKEN in groups:
        verdict = PolicyVerdict.BROKEN
    elif _Seen.NO_ANSWER in groups or not groups:
        verdict = PolicyVerdict.UNKNOWN
    else:
        verdict = PolicyVerdict.DIFFERS if _Seen.NOT_SEEN in groups or _Seen.REFUSED in groups else PolicyVerdict.FINE
    return PolicyFinding(about=PolicyCheck.SAMPLING, verdict=verdict, detail=detail, numbers=numbers)
