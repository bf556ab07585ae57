"""What the answers of an engine say of it. Pure: answers in, a finding out.

Tolerances. Two passes over the same prompt in another batch or out of the cache round differently; in bfloat16 that
moves a logprob by some hundredths. So `SAME` is what counts as equal, and only `APART`, far above any rounding, as
another distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from rollbook.policy.check_asking import Answer, Asked, Refused
from rollbook.policy.check_report import PolicyCheck, PolicyFinding, PolicyVerdict
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.policy.stopping import check_stop_string
from rollbook.trace.call import Finish, LogprobKind
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = [
    "found_kind",
    "judge_abort",
    "judge_cache",
    "judge_continuation",
    "judge_first",
    "judge_greedy",
    "judge_kind",
    "judge_limit",
    "judge_logprobs",
    "judge_overflow",
    "judge_prompt",
    "judge_seed",
    "judge_stop_string",
    "judge_stop_token",
    "judge_version",
    "judge_vocabulary",
    "refusal",
    "refused",
    "sure",
]

Logprobs = npt.NDArray[np.float32]

SAME = 0.01
"""Nats: logprobs that far apart are equal."""
APART = 1.0
"""Nats: logprobs farther apart are of different distributions."""
CERTAIN = -0.05
"""A first token more likely than this tells nothing of temperature and truncation."""

FINE, DIFFERS, BROKEN, UNKNOWN = PolicyVerdict


def refusal(about: PolicyCheck, answers: Iterable[Answer]) -> PolicyFinding | None:
    """The finding where a plain request got no reply; None: each got one."""
    found = [answer for answer in answers if isinstance(answer, Refused)]
    if not found:
        return None
    return refused(about, next((each for each in found if each.breaks), found[0]))


def refused(about: PolicyCheck, answer: Refused) -> PolicyFinding:
    """The finding where a request that any engine can serve got no reply."""
    if answer.breaks:
        return PolicyFinding(about=about, verdict=BROKEN, detail=answer.detail)
    why = "cannot be asked" if answer.reason is None else str(answer.reason)
    return PolicyFinding(about=about, verdict=UNKNOWN, detail=f"{why}: {answer.detail}")


def sure(answers: Iterable[Answer]) -> list[Completion]:
    """The replies among the answers."""
    return [answer for answer in answers if isinstance(answer, Completion)]


def judge_prompt(replies: Sequence[Completion]) -> PolicyFinding:
    """Replies to prompts of ids that the tokenizer would and would not give; echoes and counts agree by contract."""
    about = PolicyCheck.PROMPT_IDS
    if all(reply.prompt_ids is not None for reply in replies):
        detail = "echoed as they were sent, also ids that the tokenizer itself would not give"
        return PolicyFinding(about=about, verdict=FINE, detail=detail)
    if all(reply.prompt_tokens is not None for reply in replies):
        detail = "counted as they were sent, also ids that the tokenizer itself would not give; not echoed"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail)
    detail = "neither echoed nor counted: what the engine ran on cannot be told"
    return PolicyFinding(about=about, verdict=UNKNOWN, detail=detail)


def judge_limit(reply: Completion) -> PolicyFinding:
    """The reply to a request for one token."""
    about, tokens = PolicyCheck.MAX_TOKENS, len(reply.token_ids)
    if tokens != 1:
        return PolicyFinding(about=about, verdict=BROKEN, detail=f"{tokens} tokens where 1 was asked for")
    if reply.finish not in (Finish.LENGTH, Finish.STOP):
        return PolicyFinding(
            about=about, verdict=BROKEN, detail=f"a reply of the 1 token asked for ended as {reply.finish}"
        )
    return PolicyFinding(about=about, verdict=FINE, detail="1 asked for, 1 sampled")


def judge_stop_token(replies: Sequence[Completion], stop_ids: frozenset[int]) -> PolicyFinding:
    """Replies that should end their turn."""
    about = PolicyCheck.STOP_TOKEN
    for reply in replies:
        ids = reply.token_ids.tolist()
        inside = next((at for at, token in enumerate(ids[:-1]) if token in stop_ids), None)
        if inside is not None:
            detail = (
                f"the engine went on behind the end-of-turn token {ids[inside]}, for {len(ids) - inside - 1} tokens"
            )
            return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
        if reply.finish is Finish.STOP:
            if ids[-1] not in stop_ids:
                detail = f"a turn was ended by the model, and its last id {ids[-1]} is no end-of-turn token"
                return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
            return PolicyFinding(about=about, verdict=FINE, detail=f"included: the reply ends with id {ids[-1]}")
    most = max(len(reply.token_ids) for reply in replies)
    return PolicyFinding(about=about, verdict=UNKNOWN, detail=f"the model ended no turn within {most} tokens")


def judge_stop_string(answer: Answer, word: str | None, text_of: Callable[[TokenIds], str]) -> PolicyFinding:
    """The answer to a greedy request that was to stop at `word`, which stands in the greedy reply; None: none does."""
    about = PolicyCheck.STOP_STRING
    if isinstance(answer, Refused):
        if answer.reason is None:
            return PolicyFinding(about=about, verdict=DIFFERS, detail=f"refused: {answer.detail}")
        return refused(about, answer)
    if word is None:
        return PolicyFinding(about=about, verdict=UNKNOWN, detail="the model's reply has no text to stop at")
    verdict, detail = UNKNOWN, "the model went another way this time"
    if answer.finish is Finish.STOP_STRING:
        verdict, detail = FINE, "ids are kept to the token that completes the string"
        try:
            check_stop_string((word,), answer.token_ids, text_of)
        except RolloutFailure as failure:
            verdict, detail = BROKEN, failure.detail
    elif word in text_of(answer.token_ids):
        verdict, detail = BROKEN, f"ignored: the reply holds it and ended as {answer.finish}"
    return PolicyFinding(about=about, verdict=verdict, detail=detail)


def found_kind(plain: float | None, top: Logprobs, cool: Logprobs) -> LogprobKind | None:
    """The kind that logprobs of the same tokens show; None where they do not tell.

    `top`: at temperature 1, only the likeliest kept; `cool`: the same at temperature 0.5; float32, shape (tokens,).
    `plain`: the lowest logprob of tokens drawn at temperature 1 without truncation (None: not asked for), which shows
    whether the model is sure.
    """
    open_places = top < CERTAIN
    if not open_places.any():
        told = plain is not None and plain < CERTAIN - SAME
        return LogprobKind.PROCESSED if told else None
    risen = (cool - top)[open_places]
    allowed = 0.1 * np.abs(top[open_places]) + SAME
    if (np.abs(risen) < allowed).all():
        return LogprobKind.RAW
    return LogprobKind.TEMPERATURE if (risen > -allowed).all() else None


def judge_kind(found: LogprobKind | None, said: LogprobKind) -> PolicyFinding:
    """What was found beside what the client says."""
    about = PolicyCheck.LOGPROB_KIND
    if found is None:
        detail = f"the client says {said}; the replies do not tell (the model is too sure of its next token)"
        return PolicyFinding(about=about, verdict=UNKNOWN, detail=detail)
    if said is LogprobKind.UNKNOWN:
        detail = f"{found} by the replies, but the client calls it unknown, and exports refuse that"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail)
    if found is not said:
        detail = f"the client says {said}, the replies show {found}"
        return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
    means = {
        LogprobKind.RAW: "of the model's own distribution: sample at temperature 1 without truncation",
        LogprobKind.TEMPERATURE: "after temperature, before truncation: sample without truncation",
        LogprobKind.PROCESSED: "of the distribution that is sampled, truncation included",
    }[found]
    return PolicyFinding(about=about, verdict=FINE, detail=f"{found}: {means}")


def judge_logprobs(replies: Sequence[Completion]) -> PolicyFinding:
    """Replies with characters of several tokens."""
    tokens = sum(len(reply.token_ids) for reply in replies)
    again = sum(len(reply.rescored) for reply in replies)
    numbers = {"tokens": float(tokens), "rescored": float(again)}
    if again:
        detail = f"the engine left out {again} of {tokens}; they came from a second request, and are marked"
        return PolicyFinding(about=PolicyCheck.LOGPROBS, verdict=DIFFERS, detail=detail, numbers=numbers)
    detail = f"one for each of {tokens} tokens, from the reply itself"
    return PolicyFinding(about=PolicyCheck.LOGPROBS, verdict=FINE, detail=detail, numbers=numbers)


def judge_first(replies: Sequence[Completion]) -> PolicyFinding:
    """First tokens of the same greedy request."""
    about = PolicyCheck.FIRST_LOGPROB
    if len({int(reply.token_ids[0]) for reply in replies}) > 1:
        spread = _spread(replies)
        verdict = BROKEN if spread > APART else DIFFERS
        detail = f"the likeliest token is not always the same; their logprobs differ by {spread:.3g}"
        return PolicyFinding(about=about, verdict=verdict, detail=detail, numbers={"spread": spread})
    spread = _spread(replies)
    verdict = FINE if spread <= SAME else BROKEN if spread > APART else DIFFERS
    detail = f"the same token {len(replies)} times; its logprob differs by {spread:.3g}"
    return PolicyFinding(about=about, verdict=verdict, detail=detail, numbers={"spread": spread})


def _spread(replies: Sequence[Completion]) -> float:
    firsts = [float(reply.logprobs[0]) for reply in replies]
    return max(firsts) - min(firsts)


def judge_greedy(one: Completion, other: Completion) -> PolicyFinding:
    """The same greedy request, twice and alone."""
    about, same = PolicyCheck.GREEDY, np.array_equal(one.token_ids, other.token_ids)
    if not same:
        at = shared(one.token_ids, other.token_ids)
        detail = f"the second reply leaves the first behind {at} tokens"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail, numbers={"shared": float(at)})
    apart = float(np.abs(one.logprobs - other.logprobs).max())
    detail = f"the same {len(one.token_ids)} tokens; logprobs differ by at most {apart:.3g}"
    return PolicyFinding(about=about, verdict=FINE, detail=detail, numbers={"apart": apart})


def judge_seed(same: Sequence[Completion], others: Sequence[Completion]) -> PolicyFinding:
    """Two replies of one seed, and replies of other seeds, at temperature 1."""
    about = PolicyCheck.SEED
    different = {reply.token_ids.tobytes() for reply in (same[0], *others)}
    if len(different) == 1:
        detail = f"each of {1 + len(others)} seeds gave the same reply: a group would be copies of one rollout"
        return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
    if not np.array_equal(same[0].token_ids, same[1].token_ids):
        at = shared(same[0].token_ids, same[1].token_ids)
        detail = f"the same seed gave another reply, behind {at} tokens"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail, numbers={"shared": float(at)})
    return PolicyFinding(about=about, verdict=FINE, detail="the same seed gives the same reply, others do not")


def shared(one: TokenIds, other: TokenIds) -> int:
    """How many tokens two replies begin with alike."""
    size = min(len(one), len(other))
    apart = np.flatnonzero(one[:size] != other[:size])
    return int(apart[0]) if len(apart) else size


def judge_continuation(whole: Completion, cut: int, rest: Completion) -> PolicyFinding:
    """A greedy reply, and the greedy reply to its prompt with its first `cut` tokens behind it."""
    about = PolicyCheck.CONTINUATION
    expected = whole.token_ids[cut:]
    at = shared(expected, rest.token_ids)
    if at == len(expected):
        return PolicyFinding(
            about=about, verdict=FINE, detail=f"cut behind {cut} tokens, it goes on with the same {at}"
        )
    gap = abs(float(whole.logprobs[cut + at]) - float(rest.logprobs[at])) if at < len(rest.logprobs) else 0.0
    numbers = {"shared": float(at), "gap": gap}
    if at == 0 and gap > APART:
        detail = "what was sampled is not what the engine goes on from: the next token's logprob is another"
        return PolicyFinding(about=about, verdict=BROKEN, detail=f"{detail} by {gap:.3g}", numbers=numbers)
    detail = f"cut behind {cut} tokens, it leaves the uncut reply behind {at} more (near ties round differently)"
    return PolicyFinding(about=about, verdict=DIFFERS, detail=detail, numbers=numbers)


def judge_cache(reply: Completion, shared_tokens: int) -> PolicyFinding:
    """The reply to a prompt that begins with `shared_tokens` which the engine had seen just before."""
    about, cached = PolicyCheck.CACHE, reply.cached_tokens
    if cached is None:
        return PolicyFinding(about=about, verdict=UNKNOWN, detail="the engine does not say what came from its cache")
    numbers = {"cached": float(cached), "seen_before": float(shared_tokens)}
    if not cached:
        detail = (
            f"none of {shared_tokens} tokens seen just before came from the cache: each turn costs its whole history"
        )
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail, numbers=numbers)
    detail = f"{cached} of {shared_tokens} tokens seen just before came from the cache"
    return PolicyFinding(about=about, verdict=FINE, detail=detail, numbers=numbers)


def judge_overflow(answer: Answer, size: int, context_length: int) -> PolicyFinding:
    """The answer to a prompt that is longer than the context."""
    about = PolicyCheck.OVERFLOW
    if isinstance(answer, Completion):
        detail = f"{size} prompt tokens got a reply where {context_length} fit: cut, or more fit than is said"
        return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
    if answer.reason is Reason.CONTEXT_OVERFLOW:
        return PolicyFinding(about=about, verdict=FINE, detail=f"refused: {answer.detail}")
    if answer.breaks:
        return PolicyFinding(about=about, verdict=BROKEN, detail=answer.detail)
    detail = f"refused, but not as an overflow of the context: {answer.detail}"
    return PolicyFinding(about=about, verdict=DIFFERS, detail=detail)


def no_overflow(context_length: int | None) -> PolicyFinding:
    """A context that is too long for a prompt beyond it, or of a length that is not known."""
    detail = f"a context of {context_length} tokens is too long to overrun"
    if context_length is None:
        detail = "the length of the context is not known"
    return PolicyFinding(about=PolicyCheck.OVERFLOW, verdict=UNKNOWN, detail=detail)


def judge_abort(cancelled: int, before: float, after: float) -> PolicyFinding:
    """Seconds for one token, before long requests ran and after `cancelled` of them were cancelled."""
    about, numbers = PolicyCheck.ABORT, {"cancelled": float(cancelled), "before": before, "after": after}
    if not cancelled:
        detail = "every long request was done before it could be cancelled"
        return PolicyFinding(about=about, verdict=UNKNOWN, detail=detail, numbers=numbers)
    detail = f"one token took {after:.2f} s behind {cancelled} cancelled requests, {before:.2f} s before them"
    verdict = FINE if after <= 3 * before + 2.0 else DIFFERS
    return PolicyFinding(about=about, verdict=verdict, detail=detail, numbers=numbers)


def judge_version(replies: Sequence[Completion]) -> PolicyFinding:
    """All replies of the check."""
    about = PolicyCheck.VERSION
    if not all(reply.versions for reply in replies):
        detail = "the replies name none: staleness cannot be known"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail)
    seen = sorted({version for reply in replies for version, _ in reply.versions})
    detail = f"each token has one: {', '.join(map(str, seen))}"
    return PolicyFinding(about=about, verdict=FINE, detail=detail, numbers={"newest": float(seen[-1])})


def judge_vocabulary(asked: Sequence[Asked], hot: Answer, size: int) -> PolicyFinding:
    """Ordinary replies, and the answer at a temperature at which each id is about as likely as another."""
    about = PolicyCheck.VOCABULARY
    foreign = sorted({int(token) for each in asked for token in each.reply.token_ids if token >= size})
    if foreign:
        detail = f"sampled ids that the tokenizer lacks ({foreign[:5]}): is it the model's own?"
        return PolicyFinding(about=about, verdict=BROKEN, detail=detail)
    if isinstance(hot, Refused):
        return PolicyFinding(about=about, verdict=FINE, detail=f"all sampled ids are below {size}")
    outside = int((hot.token_ids >= size).sum())
    numbers = {"outside": float(outside), "tokens": float(len(hot.token_ids))}
    if outside:
        share = f"{outside} of {len(hot.token_ids)} tokens at a high temperature"
        detail = f"the model has ids that the tokenizer lacks: {share}"
        return PolicyFinding(about=about, verdict=DIFFERS, detail=detail, numbers=numbers)
    detail = f"all sampled ids are below {size}, also at a high temperature"
    return PolicyFinding(about=about, verdict=FINE, detail=detail, numbers=numbers)
