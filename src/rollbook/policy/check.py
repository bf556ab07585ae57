"""The handshake with an engine: each promise that rollouts stand on is tried, not read from documentation.

Everything goes through `Policy.sample`, so any engine can be checked, one's own too. What is asked is in this module,
what the answers mean in `check_judge`. Each check asks for few tokens; the whole takes some fifty requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import numpy as np
from msgspec.structs import replace

from rollbook.policy import check_judge as judge
from rollbook.policy.check_asking import Answer, Prober
from rollbook.policy.check_fields import fields
from rollbook.policy.check_inputs import CheckInputs, Speaker
from rollbook.policy.check_report import PolicyCheck, PolicyFinding, PolicyReport
from rollbook.policy.protocol import Completion, Policy, TokenIds
from rollbook.trace.call import Sampling

__all__ = ["QUICK", "check_policy"]

QUICK = (PolicyCheck.PROMPT_IDS, PolicyCheck.MAX_TOKENS)
"""What a run checks before it begins: three requests of one token."""

GREEDY = Sampling(temperature=0.0, seed=0, max_tokens=24)
FREE = Sampling(seed=0, max_tokens=24)
ONE = replace(GREEDY, max_tokens=1)
LONG = 640
"""Tokens of a prompt that should be found in the cache again: some blocks of any engine."""
TURNS = 8
"""Long requests that are cancelled."""
RUNNING = 0.5
"""Seconds that they run before."""
SEEDS = range(4)
"""Tokens drawn without truncation, to see whether the model is sure of the next one."""
CUT = 12
"""Tokens behind which a reply is cut and sent back."""
PLACES = 8
"""Tokens whose logprobs are looked at for their kind."""
MOST = 64
"""Tokens within which a short turn should end."""
MOST_ABORTED = 2048
"""Tokens of a generation that is cancelled."""
MOST_OVERFLOW = 1 << 22
"""Tokens of a context that is not overrun: the request alone would have megabytes."""
VERY_HOT, HOT = 1000.0, 2.0
"""Temperatures at which every id is about as likely as another, and the highest that all engines take."""


async def check_policy(
    policy: Policy,
    speaker: Speaker,
    *,
    checks: Collection[PolicyCheck] = tuple(PolicyCheck),
    begins: Callable[[PolicyCheck], None] = lambda check: None,
) -> PolicyReport:
    """Try a started engine; ``report.fit`` says whether to train on its tokens.

    `speaker`: the model's renderer (``loaded.renderer``), which makes the prompts. `checks`: those to make. `begins`:
    told of each when it begins. Costs a few hundred tokens and, for the cache, one prompt of 640. Raises `UsageError`
    where nothing can be asked at all.
    """
    prober = Prober(policy, CheckInputs.of(speaker))
    run: dict[PolicyCheck, Callable[[], Awaitable[PolicyFinding]]] = {
        check: _bound(ask, prober) for check, ask in _ASKS.items()
    }
    run[PolicyCheck.STOP_STRING] = lambda: _stop_string(prober, speaker)
    run[PolicyCheck.SAMPLING] = lambda: fields(prober, speaker.decode)
    findings: list[PolicyFinding] = []
    for check in PolicyCheck:
        if check in checks:
            begins(check)
            findings.append(await run[check]())
    info = policy.info
    return PolicyReport(
        name=info.name,
        engine=info.engine,
        context_length=info.context_length,
        requests=prober.requests,
        findings=tuple(findings),
    )


def _bound(ask: Callable[[Prober], Awaitable[PolicyFinding]], prober: Prober) -> Callable[[], Awaitable[PolicyFinding]]:
    return lambda: ask(prober)


def _judged(
    about: PolicyCheck, answers: list[Answer], verdict: Callable[[list[Completion]], PolicyFinding]
) -> PolicyFinding:
    """What the replies say, where each request got one."""
    return judge.refusal(about, answers) or verdict(judge.sure(answers))


async def _prompt_ids(prober: Prober) -> PolicyFinding:
    inputs = prober.inputs
    answers = [await prober.ask(prompt, ONE) for prompt in (inputs.chat, inputs.letters)]
    return _judged(PolicyCheck.PROMPT_IDS, answers, judge.judge_prompt)


async def _max_tokens(prober: Prober) -> PolicyFinding:
    answers = [await prober.ask(prober.inputs.open, replace(FREE, max_tokens=1))]
    return _judged(PolicyCheck.MAX_TOKENS, answers, lambda replies: judge.judge_limit(replies[0]))


async def _stop_token(prober: Prober) -> PolicyFinding:
    answers: list[Answer] = []
    for prompt in (prober.inputs.answered, prober.inputs.chat):
        answers.append(await prober.ask(prompt, replace(GREEDY, max_tokens=MOST)))
        found = _judged(
            PolicyCheck.STOP_TOKEN, answers, lambda replies: judge.judge_stop_token(replies, prober.inputs.stop_ids)
        )
        if found.verdict is not judge.UNKNOWN:
            return found
    return found


async def _stop_string(prober: Prober, speaker: Speaker) -> PolicyFinding:
    first = await prober.ask(prober.inputs.chat, GREEDY)
    if not isinstance(first, Completion):
        return judge.refused(PolicyCheck.STOP_STRING, first)
    text = _stop_text(first.token_ids, speaker)
    if text is None:
        return judge.judge_stop_string(first, None, speaker.decode)
    answer = await prober.ask(prober.inputs.chat, replace(GREEDY, stop=(text,)))
    return judge.judge_stop_string(answer, text, speaker.decode)


def _stop_text(ids: TokenIds, speaker: Speaker) -> str | None:
    """The text of two tokens in the middle of a reply that does not stand in it before; None: there is none."""
    for start in range(2, len(ids) - 3):
        text = speaker.decode(ids[start : start + 2]).strip()
        whole = text.isprintable() and "\ufffd" not in text
        if text and whole and text not in speaker.decode(ids[: start + 1]):
            return text
    return None


async def _logprob_kind(prober: Prober) -> PolicyFinding:
    prompt, about = prober.inputs.open, PolicyCheck.LOGPROB_KIND
    top = await prober.ask(prompt, replace(FREE, max_tokens=PLACES, top_k=1))
    cool = await prober.ask(prompt, replace(FREE, max_tokens=PLACES, top_k=1, temperature=0.5))
    if not (isinstance(top, Completion) and isinstance(cool, Completion)):
        return _judged(about, [top, cool], lambda _: judge.judge_kind(None, prober.policy.info.logprob_kind))
    size = judge.shared(top.token_ids, cool.token_ids)
    plain: float | None = None
    if (top.logprobs[:size] > judge.CERTAIN).all():
        drawn = await prober.together(*((prompt, replace(FREE, max_tokens=1, seed=seed)) for seed in SEEDS))
        plain = min((float(reply.logprobs[0]) for reply in judge.sure(drawn)), default=None)
    found = judge.found_kind(plain, top.logprobs[:size], cool.logprobs[:size]) if size else None
    return judge.judge_kind(found, prober.policy.info.logprob_kind)


async def _logprobs(prober: Prober) -> PolicyFinding:
    samplings = [replace(FREE, temperature=1.3, seed=seed) for seed in range(4)]
    answers = await prober.together(*((prober.inputs.odd, sampling) for sampling in samplings))
    return _judged(PolicyCheck.LOGPROBS, answers, judge.judge_logprobs)


async def _first_logprob(prober: Prober) -> PolicyFinding:
    answers = [await prober.ask(prober.inputs.chat, ONE), await prober.ask(prober.inputs.chat, ONE)]
    answers += await prober.together(*[(prober.inputs.chat, ONE)] * 4)
    return _judged(PolicyCheck.FIRST_LOGPROB, answers, judge.judge_first)


async def _greedy(prober: Prober) -> PolicyFinding:
    answers = [await prober.ask(prober.inputs.chat, GREEDY) for _ in range(2)]
    return _judged(PolicyCheck.GREEDY, answers, lambda replies: judge.judge_greedy(*replies))


async def _seed(prober: Prober) -> PolicyFinding:
    seeds = (11, 11, 12, 13, 14)
    answers = [await prober.ask(prober.inputs.open, replace(FREE, seed=seed)) for seed in seeds]
    return _judged(PolicyCheck.SEED, answers, lambda replies: judge.judge_seed(replies[:2], replies[2:]))


async def _continuation(prober: Prober) -> PolicyFinding:
    about, prompt = PolicyCheck.CONTINUATION, prober.inputs.open
    whole = await prober.ask(prompt, GREEDY)
    if not isinstance(whole, Completion):
        return judge.refused(about, whole)
    cut = min(CUT, len(whole.token_ids) - 1)
    left = len(whole.token_ids) - cut
    again = np.concatenate([prompt, whole.token_ids[:cut]])
    rest = await prober.ask(again, replace(GREEDY, max_tokens=left))
    return _judged(about, [rest], lambda replies: judge.judge_continuation(whole, cut, replies[0]))


async def _cache(prober: Prober) -> PolicyFinding:
    about = PolicyCheck.CACHE
    length = prober.policy.info.context_length
    prompt = prober.inputs.long(LONG if length is None else max(min(LONG, length * 3 // 4 - MOST), 1))
    first = await prober.ask(prompt, replace(GREEDY, max_tokens=8))
    if not isinstance(first, Completion):
        return judge.refused(about, first)
    seen = np.concatenate([prompt, first.token_ids])
    second = await prober.ask(np.concatenate([seen, prober.inputs.open]), ONE)
    return _judged(about, [second], lambda replies: judge.judge_cache(replies[0], len(seen)))


async def _overflow(prober: Prober) -> PolicyFinding:
    length = prober.policy.info.context_length
    if length is None or length > MOST_OVERFLOW:
        return judge.no_overflow(length)
    answer = await prober.ask(prober.inputs.long(length + 1), ONE)
    return judge.judge_overflow(answer, length + 1, length)


async def _abort(prober: Prober) -> PolicyFinding:
    clock = asyncio.get_running_loop().time
    prompt, about = prober.inputs.open, PolicyCheck.ABORT
    start = clock()
    answers = [await prober.ask(prompt, ONE)]
    before = clock() - start
    length = prober.policy.info.context_length
    most = MOST_ABORTED if length is None else max(min(MOST_ABORTED, length - len(prompt)), 1)
    long = [replace(FREE, seed=seed, max_tokens=most) for seed in range(TURNS)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(prober.ask(prompt, sampling)) for sampling in long]
        await asyncio.wait(tasks, timeout=RUNNING)
        cancelled = sum(task.cancel() for task in tasks)
    start = clock()
    answers.append(await prober.ask(prompt, ONE))
    after = clock() - start
    return _judged(about, answers, lambda _: judge.judge_abort(cancelled, before, after))


async def _version(prober: Prober) -> PolicyFinding:
    answers = [await prober.ask(prober.inputs.open, ONE)]
    return _judged(PolicyCheck.VERSION, answers, judge.judge_version)


async def _vocabulary(prober: Prober) -> PolicyFinding:
    cool = [asked for asked in prober.replies if asked.sampling.temperature <= 1.0]
    for temperature in (VERY_HOT, HOT):
        hot = await prober.ask(prober.inputs.open, replace(FREE, temperature=temperature, max_tokens=MOST))
        if isinstance(hot, Completion):
            break
    return judge.judge_vocabulary(cool, hot, prober.inputs.vocab_size)


_ASKS: dict[PolicyCheck, Callable[[Prober], Awaitable[PolicyFinding]]] = {
    PolicyCheck.PROMPT_IDS: _prompt_ids,
    PolicyCheck.MAX_TOKENS: _max_tokens,
    PolicyCheck.STOP_TOKEN: _stop_token,
    PolicyCheck.LOGPROB_KIND: _logprob_kind,
    PolicyCheck.LOGPROBS: _logprobs,
    PolicyCheck.FIRST_LOGPROB: _first_logprob,
    PolicyCheck.GREEDY: _greedy,
    PolicyCheck.SEED: _seed,
    PolicyCheck.CONTINUATION: _continuation,
    PolicyCheck.CACHE: _cache,
    PolicyCheck.OVERFLOW: _overflow,
    PolicyCheck.ABORT: _abort,
    PolicyCheck.VERSION: _version,
    PolicyCheck.VOCABULARY: _vocabulary,
}
