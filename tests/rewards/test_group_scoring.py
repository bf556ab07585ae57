"""Scoring a group as a whole: who is compared, what a failure leaves, and what comparing gives."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.envs import Environment, Rewards
from rollbook.rewards.group_scoring import compared, score_group, scores_groups
from rollbook.rewards.scorers import Judge, ScoringFailed
from rollbook.rewards.scorers.group import GroupScorer, judged_pairs, pairwise, ranked
from rollbook.trace.ending import EndingRules, Mask, Reason
from rollbook.trace.facts import Reward
from rollbook.trace.record import ScoringStatus, TurnReward
from rollbook.trace.trace import Trace
from tests.cases.case import Script, says
from tests.rewards.made import ended

RULES = EndingRules()


def found(given: Any, traces: Sequence[Trace]) -> dict[str, Reward]:
    class Whole(Environment):
        async def score_group(self, traces: Sequence[Trace]) -> Any:
            if isinstance(given, Exception):
                raise given
            return given

    return asyncio.run(score_group(Whole(), traces))


def three() -> list[Trace]:
    return [ended(f"r{n}", said="x" * n) for n in range(3)]


def test_every_attempt_gets_its_reward() -> None:
    parts = Rewards(0.5, parts={"style": 1.0}, turns=(TurnReward(1, 0.5),))
    rewards = found({"r0": 1, "r1": True, "r2": parts}, three())
    assert rewards == {
        "r0": Reward(total=1.0),
        "r1": Reward(total=1.0),
        "r2": Reward(total=0.5, parts={"style": 1.0}, turn_rewards=(TurnReward(1, 0.5),)),
    }
    assert found(None, three()) == {}
    assert found({"r0": 1.0}, []) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (OSError("judge down"), "OSError: judge down"),
        ({"r0": 1.0, "r1": 1.0}, "left out ['r2']"),
        ({"r0": 1.0, "r1": 1.0, "r2": 1.0, "r3": 1.0}, "made up ['r3']"),
        ({"r0": 1.0, "r1": 1.0, "r2": None}, "gave None for r2"),
        ({"r0": 1.0, "r1": 1.0, "r2": math.nan}, "not finite"),
        ({"r0": 1.0, "r1": 1.0, "r2": "1"}, "no number"),
        ({"r0": 1.0, "r1": 1.0, "r2": Rewards(1.0, turns=(TurnReward(0, 1.0),))}, "not turns of this trace"),
        ([1.0, 1.0, 1.0], "returned a list"),
    ],
)
def test_a_failure_leaves_each_of_them_failed(given: Any, words: str) -> None:
    rewards = found(given, three())
    assert set(rewards) == {"r0", "r1", "r2"}
    assert {each.total for each in rewards.values()} == {None}
    assert {each.status for each in rewards.values()} == {ScoringStatus.FAILED}
    assert all(words in each.reason for each in rewards.values())


def test_compared_is_who_would_vote() -> None:
    assert compared(ended("r"), RULES)
    assert compared(ended("r", 0.5, reason=Reason.MAX_TURNS), RULES)
    assert not compared(ended("r", reason=Reason.ENGINE_TIMEOUT), RULES)
    assert not compared(ended("r", said=None), RULES)
    assert not compared(ended("r", reason=Reason.MAX_TURNS), EndingRules({Reason.MAX_TURNS: Mask()}))
    failed = ended("r")
    failed.score_failed("its own scorer")
    assert not compared(failed, RULES)


def test_only_who_says_so_scores_groups() -> None:
    class Whole(Environment):
        async def score_group(self, traces: Sequence[Trace]) -> Mapping[str, float]:
            return {}

    assert scores_groups(Whole())
    assert not scores_groups(Environment())


# group scorers


def totals(scorer: GroupScorer, traces: Sequence[Trace]) -> dict[str, float | None]:
    async def go() -> Mapping[str, float | Rewards]:
        return await scorer(traces)

    return {rollout: each.total if isinstance(each, Rewards) else each for rollout, each in asyncio.run(go()).items()}


async def length(trace: Trace, /) -> float:
    return float(len(trace.text))


async def longer(first: Trace, second: Trace) -> float:
    a, b = len(first.text), len(second.text)
    return 0.5 if a == b else float(a > b)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=6), st.randoms())
def test_ranks_and_pairs_agree_and_do_not_depend_on_the_order(lengths: list[int], random: Any) -> None:
    traces = [ended(f"r{n}", said="x" * size) for n, size in enumerate(lengths)]
    first = totals(ranked(length), traces)
    assert first == pytest.approx(totals(pairwise(longer), traces))
    assert math.fsum(each or 0.0 for each in first.values()) == pytest.approx(len(traces) / 2)
    random.shuffle(traces)
    assert totals(ranked(length), traces) == first


def test_a_liking_for_the_first_place_cancels_out() -> None:
    async def first_wins(first: Trace, second: Trace) -> float:
        return 1.0

    assert set(totals(pairwise(first_wins), three()).values()) == {0.5}


@pytest.mark.parametrize("scorer", [ranked(length), pairwise(longer)])
def test_one_attempt_alone_cannot_be_compared(scorer: GroupScorer) -> None:
    with pytest.raises(ScoringFailed, match="nobody to be compared with"):
        totals(scorer, three()[:1])


def test_what_cannot_be_ranked_fails() -> None:
    async def nothing(trace: Trace, /) -> float | None:
        return None if trace.id == "r1" else 1.0

    async def far(first: Trace, second: Trace) -> float:
        return 2.0

    with pytest.raises(ScoringFailed, match="None for r1"):
        totals(ranked(nothing), three())
    with pytest.raises(ScoringFailed, match="not between 0 and 1"):
        totals(pairwise(far), three())


def test_a_judge_compares_pairs_in_both_orders() -> None:
    script = Script([says("Verdict: 1"), says("Verdict: 0")])
    judge = Judge(policy=script.loaded(), rubric="The better one.")
    assert len(totals(judged_pairs(judge), three())) == 3
    assert len(script.prompts) == len(list(itertools.permutations(range(3), 2)))
