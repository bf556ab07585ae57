"""The handshake: an engine that keeps everything is fit, and each promise taken back is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollbook.errors import UsageError
from rollbook.policy import PolicyCheck, PolicyReport, PolicyVerdict, check_policy
from rollbook.policy.check import QUICK
from rollbook.trace import LogprobKind, Reason, RolloutFailure
from tests.cases.case import bytes_renderer
from tests.policy.toy_engine import made

FINE, DIFFERS, BROKEN, UNKNOWN = PolicyVerdict
C = PolicyCheck


def checked(*checks: PolicyCheck, **changes: Any) -> PolicyReport:
    return asyncio.run(check_policy(made(**changes), bytes_renderer(), checks=checks or tuple(PolicyCheck)))


def test_an_engine_that_keeps_everything_is_fit() -> None:
    report = checked(slow=0.0005)
    verdicts = {each.about: each.verdict for each in report.findings}
    assert list(verdicts) == list(PolicyCheck)
    assert {about for about, verdict in verdicts.items() if verdict is not FINE} == set()
    assert report.fit
    assert (report.name, report.engine, report.context_length) == ("toy", "toy 1", 4096)


def test_a_context_of_unknown_length_keeps_the_other_promises() -> None:
    report = checked(slow=0.0005, context=None)
    assert {each.about for each in report.findings if each.verdict is not FINE} == {C.OVERFLOW}
    assert (report.fit, report.context_length) == (True, None)


@pytest.mark.parametrize(
    ("check", "verdict", "words", "changes"),
    [
        (C.PROMPT_IDS, DIFFERS, "not echoed", {"echo": False}),
        (C.PROMPT_IDS, UNKNOWN, "neither echoed nor counted", {"echo": False, "count": False}),
        (C.MAX_TOKENS, BROKEN, "2 tokens, more than the 1", {"one_more": True}),
        (C.STOP_TOKEN, BROKEN, "is no end-of-turn token", {"drops_stop": True}),
        (C.STOP_TOKEN, BROKEN, "went on behind the end-of-turn token 257, for 3", {"goes_on": 3}),
        (C.STOP_STRING, BROKEN, "ignored", {"ignores": ("stop",)}),
        (C.STOP_STRING, DIFFERS, "refused", {"refuses": ("stop",)}),
        (C.STOP_STRING, BROKEN, "end before a stop string", {"drops_word": True}),
        (C.STOP_STRING, BROKEN, "behind the stop string", {"behind_word": 2}),
        (C.LOGPROB_KIND, BROKEN, "says raw, the replies show temperature", {"kind": LogprobKind.TEMPERATURE}),
        (C.LOGPROB_KIND, BROKEN, "says raw, the replies show processed", {"kind": LogprobKind.PROCESSED}),
        (C.LOGPROB_KIND, DIFFERS, "exports refuse that", {"said": LogprobKind.UNKNOWN}),
        (C.LOGPROBS, DIFFERS, "left out 4 of", {"rescored": 1}),
        (C.FIRST_LOGPROB, DIFFERS, "differs by 0.2", {"noise": 0.2}),
        (C.FIRST_LOGPROB, BROKEN, "differs by 2", {"noise": 2.0}),
        (C.GREEDY, DIFFERS, "leaves the first behind", {"unsteady": True}),
        (C.SEED, DIFFERS, "the same seed gave another reply", {"unsteady": True}),
        (C.SEED, BROKEN, "copies of one rollout", {"ignores": ("seed",)}),
        (C.CONTINUATION, BROKEN, "is not what the engine goes on from", {"deaf": True}),
        (C.CACHE, UNKNOWN, "does not say", {"cached": None}),
        (C.CACHE, DIFFERS, "whole history", {"cached": 0}),
        (C.OVERFLOW, BROKEN, "cut, or more fit", {"takes_all": True, "context": 2048}),
        (C.OVERFLOW, UNKNOWN, "not known", {"context": None}),
        (C.ABORT, UNKNOWN, "before it could be cancelled", {"context": 64}),
        (C.VERSION, DIFFERS, "staleness cannot be known", {"versions": False}),
        (C.SAMPLING, BROKEN, "ignored: top_k", {"ignores": ("top_k",)}),
        (C.SAMPLING, BROKEN, "ignored: top_p", {"ignores": ("top_p",)}),
        (C.SAMPLING, BROKEN, "ignored: min_p", {"ignores": ("min_p",)}),
        (C.SAMPLING, BROKEN, "ignored: grammar", {"ignores": ("grammar",)}),
        (C.SAMPLING, DIFFERS, "refused: min_p", {"refuses": ("min_p",)}),
        (C.SAMPLING, DIFFERS, "not seen: frequency_penalty", {"ignores": ("frequency_penalty",)}),
        (C.VOCABULARY, DIFFERS, "ids that the tokenizer lacks: ", {"extra_ids": 200}),
    ],
)
def test_each_promise_taken_back_is_found(
    check: PolicyCheck, verdict: PolicyVerdict, words: str, changes: dict[str, Any]
) -> None:
    report = checked(check, **changes)
    finding = report.get(check)
    assert finding is not None
    assert words in finding.detail
    assert finding.verdict is verdict
    assert report.fit == (verdict not in (BROKEN, UNKNOWN) or (verdict is UNKNOWN and not report.undecided))


def test_what_must_be_known_and_is_not_makes_no_engine_fit() -> None:
    report = checked(C.PROMPT_IDS, C.CACHE, echo=False, count=False, cached=None)
    assert [each.about for each in report.undecided] == [C.PROMPT_IDS]
    assert (report.broken, report.fit) == ((), False)


def test_ids_that_the_tokenizer_lacks_in_an_ordinary_reply_are_another_model() -> None:
    report = checked(C.SEED, C.VOCABULARY, extra_ids=5000)
    finding = report.get(C.VOCABULARY)
    assert finding is not None
    assert (finding.verdict, "is it the model's own?" in finding.detail) == (BROKEN, True)


@pytest.mark.parametrize("check", list(PolicyCheck))
def test_a_broken_reply_breaks_every_promise_and_a_lost_one_tells_nothing(check: PolicyCheck) -> None:
    broken = checked(check, failure=RolloutFailure(Reason.ENGINE_CONTRACT, "2 ids but 1 logprobs"))
    lost = checked(check, failure=RolloutFailure(Reason.ENGINE_TIMEOUT, "no reply within 1 s"))
    assert [each.verdict for each in broken.findings] == [FINE if check is C.VOCABULARY else BROKEN]
    assert [each.verdict for each in lost.findings] == [{C.VOCABULARY: FINE, C.OVERFLOW: DIFFERS}.get(check, UNKNOWN)]


def test_an_engine_that_is_busy_is_asked_again_and_not_for_ever() -> None:
    assert checked(*QUICK, busy=2).fit
    report = checked(C.MAX_TOKENS, busy=10)
    assert (report.findings[0].verdict, report.requests) == (UNKNOWN, 5)
    assert "rate_limited" in report.findings[0].detail


def test_what_makes_asking_impossible_is_raised() -> None:
    with pytest.raises(UsageError, match="no access"):
        checked(*QUICK, failure=UsageError("no access"))


def test_the_quick_questions_are_three() -> None:
    assert checked(*QUICK).requests == 3


def test_each_check_is_told_when_it_begins() -> None:
    told: list[PolicyCheck] = []
    wanted = (PolicyCheck.MAX_TOKENS, PolicyCheck.PROMPT_IDS)
    report = asyncio.run(check_policy(made(), bytes_renderer(), checks=wanted, begins=told.append))
    assert told == [each.about for each in report.findings] == [PolicyCheck.PROMPT_IDS, PolicyCheck.MAX_TOKENS]
