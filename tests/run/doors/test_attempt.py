"""One attempt for a trainer: retried by the rules, and then its samples."""

from __future__ import annotations

import asyncio

from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings
from rollbook.run.doors.attempt import Attempt, make_attempt
from rollbook.trace import EndingRules, Mask, MemorySink, Penalize, Reason, RolloutFailure
from tests.rollout.made import SMOLLM, TASK, Engine, Said, Talk, cut, says

LOST = RolloutFailure(Reason.ENGINE_CONTRACT, "gone")


def attempt(*said: Said, rules: EndingRules | None = None, sink: MemorySink | None = None) -> Attempt:
    settings = RolloutSettings(rules=rules or EndingRules(), limits=Limits(max_generation=4))
    policy = LoadedPolicy(Engine(said), SMOLLM.renderer)
    return asyncio.run(make_attempt(Talk, TASK, policy, settings, "key", sink=sink))


def test_an_attempt_gives_its_samples_and_keeps_every_try() -> None:
    sink = MemorySink()
    made = attempt(says("5"), sink=sink)
    (sample,) = made.samples
    assert (sample.reward, sample.rollout) == (1.0, made.trace.id)
    assert list(sink.sealed) == [made.trace.id]


def test_an_attempt_that_fails_is_made_again_and_only_the_last_one_gives_samples() -> None:
    sink = MemorySink()
    retried = Reason.ENGINE_UNREACHABLE
    made = attempt(RolloutFailure(retried, "gone"), *[RolloutFailure(retried, "gone")] * 3, says("5"), sink=sink)
    assert len(sink.sealed) == made.trace.head.attempt + 1 == 2
    assert [sample.rollout for sample in made.samples] == [made.trace.id]


def test_an_attempt_without_a_vote_gives_none() -> None:
    made = attempt(LOST)
    assert made.samples == ()
    assert made.trace.ending is not None
    assert made.trace.ending.reason is Reason.ENGINE_CONTRACT
    assert attempt(cut(4), rules=EndingRules({Reason.GENERATION_LIMIT: Mask()})).samples == ()


def test_the_reward_is_the_one_that_votes() -> None:
    made = attempt(cut(4), rules=EndingRules({Reason.GENERATION_LIMIT: Penalize(-0.5)}))
    assert [sample.reward for sample in made.samples] == [0.5]
    assert made.trace.reward == 1.0


def test_attempts_at_one_task_draw_their_own_numbers_and_the_same_key_the_same() -> None:
    """One seed for all would give a group of equal rollouts."""

    def seed(key: str) -> int | None:
        engine = Engine([says("5")])
        asyncio.run(make_attempt(Talk, TASK, LoadedPolicy(engine, SMOLLM.renderer), RolloutSettings(), key))
        return engine.requests[0].sampling.seed

    assert seed("0") == seed("0")
    assert len({seed(str(index)) for index in range(20)}) == 20
