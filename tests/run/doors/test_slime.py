"""slime's custom generate function and its reward hook, with a stand-in of its sample."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from rollbook.errors import UsageError
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings
from rollbook.run.doors.slime import Generate, post_process_rewards
from rollbook.trace import MemorySink, Reason, RolloutFailure, Task
from tests.rollout.made import SMOLLM, Engine, Said, Talk, cut, says


@dataclass
class Given:
    """What slime hands over, with the two methods of its `Sample` that are used."""

    group_index: int = 2
    index: int = 5
    rollout_id: int | None = None
    prompt: str = "What is the sum of two and three?"
    label: str = "5"
    tokens: list[int] = field(default_factory=list)
    response_length: int = 0
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    reward: float | None = None
    remove_sample: bool = False
    status: str = "pending"
    metadata: dict[str, Any] = field(default_factory=lambda: {"source": "mine"})

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Given:
        return Given(**{name: value for name, value in data.items() if name in Given.__dataclass_fields__})


def task_of(sample: Given) -> Task:
    return Task(id=str(sample.index), prompt=sample.prompt, target=sample.label)


def generated(
    *said: Said, answers: tuple[str, ...] = (), allowed: bool = False, **asked: Any
) -> tuple[list[Given], Engine, MemorySink]:
    engine, sink = Engine(said), MemorySink()
    generate = Generate(
        lambda: Talk(*answers),
        task_of,
        LoadedPolicy(engine, SMOLLM.renderer),
        settings=RolloutSettings(limits=Limits(max_generation=64)),
        sink=sink,
        allow_unfit_logprobs=allowed,
    )
    return asyncio.run(generate(None, Given(), {"temperature": 1.0, "top_p": 1.0, "top_k": -1} | asked)), engine, sink


def test_an_attempt_is_slimes_own_sample_in_its_own_place() -> None:
    (made,), engine, sink = generated(says("4"), says("5"), answers=("Again.",), max_new_tokens=9)
    (trace,) = sink.traces()
    assert (made.group_index, made.index, made.rollout_id, made.label) == (2, 5, 5, "5")
    assert made.prompt == "What is the sum of two and three?"
    assert made.tokens == trace.graph.path_ids(len(trace.graph) - 1).tolist()
    assert made.loss_mask is not None
    assert made.rollout_log_probs is not None
    assert len(made.loss_mask) == len(made.rollout_log_probs) == made.response_length
    assert 0 < sum(made.loss_mask) < made.response_length
    assert (made.reward, made.status, made.remove_sample) == (1.0, "completed", False)
    assert made.metadata["source"] == "mine"
    assert made.metadata["rollout"] == trace.id
    assert engine.requests[0].sampling.max_tokens == 9


def test_what_slime_says_of_sampling_is_what_is_asked() -> None:
    _, engine, _ = generated(says("5"), temperature=0.5, stop_token_ids=[7], allowed=True)
    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.top_k, sampling.stop_token_ids) == (0.5, 0, (7,))
    with pytest.raises(UsageError, match="rollout-stop"):
        generated(says("5"), stop=["x"])


def test_a_part_of_the_vocabulary_is_refused_unless_allowed() -> None:
    with pytest.raises(UsageError, match="not of the distribution"):
        generated(says("5"), top_p=0.5)


def test_a_cut_attempt_is_truncated_and_nothing_is_added() -> None:
    (made,), _, _ = generated(cut(3), max_new_tokens=3)
    assert (made.status, made.response_length, made.loss_mask) == ("truncated", 3, [1, 1, 1])


def test_an_attempt_without_a_vote_is_its_prompt_and_is_removed() -> None:
    (made,), engine, _ = generated(RolloutFailure(Reason.ENGINE_CONTRACT, "gone"))
    assert made.tokens == engine.requests[0].prompt
    assert (made.response_length, made.loss_mask, made.rollout_log_probs) == (0, [], [])
    assert (made.remove_sample, made.status, made.rollout_id) == (True, "failed", 5)
    assert made.metadata == {"source": "mine", "vote": False, "ending_reason": "engine_contract"}


def test_a_rollout_id_of_slime_stays() -> None:
    engine = Engine([says("5")])
    generate = Generate(Talk, task_of, LoadedPolicy(engine, SMOLLM.renderer))
    (made,) = asyncio.run(generate(None, Given(rollout_id=11), {}))
    assert made.rollout_id == 11


def row(rollout: int, reward: float, group: int = 0, **more: Any) -> Given:
    return Given(group_index=group, rollout_id=rollout, reward=reward, metadata=more.pop("metadata", {}), **more)


def test_each_attempt_votes_once_and_what_is_removed_votes_not() -> None:
    samples = [row(0, 1.0), row(0, 1.0), row(0, 1.0), row(1, 0.0), row(2, 0.0, remove_sample=True), row(3, 1.0, 1)]
    rewards, advantages = post_process_rewards(None, samples)
    assert rewards == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    assert advantages == [0.5, 0.5, 0.5, -0.5, 0.0, 0.0]


def test_recorded_advantages_are_used_where_all_voters_have_one() -> None:
    first, second = row(0, 1.0, metadata={"advantage": 0.25}), row(1, 0.0, metadata={"advantage": -0.75})
    lost = row(2, 0.0, remove_sample=True)
    assert post_process_rewards(None, [first, lost, second])[1] == [0.25, 0.0, -0.75]
    assert post_process_rewards(None, [first, row(1, 0.0)])[1] == [0.5, -0.5]


def test_different_rewards_of_one_attempt_are_refused() -> None:
    with pytest.raises(UsageError, match="different rewards"):
        post_process_rewards(None, [row(0, 1.0), row(0, 0.5)])


def test_a_vote_without_a_reward_is_refused_and_not_zero() -> None:
    bare = row(1, 0.0)
    bare.reward = None
    with pytest.raises(UsageError, match="rollout 1 has no reward, which is not 0"):
        post_process_rewards(None, [row(0, 1.0), bare])


def test_a_batch_of_which_nothing_votes_trains_nothing() -> None:
    assert post_process_rewards(None, [row(0, 0.0, remove_sample=True)]) == ([0.0], [0.0])


def test_each_sample_of_slime_draws_its_own_numbers() -> None:
    engine = Engine([says("5")])
    generate = Generate(Talk, task_of, LoadedPolicy(engine, SMOLLM.renderer))

    async def group() -> None:
        for index in (0, 1, None, None, 0):
            given = Given()
            given.index = index  # type: ignore[assignment]
            await generate(None, given, {})

    asyncio.run(group())
    first, second, third, fourth, again = (request.sampling.seed for request in engine.requests)
    assert first == again
    assert len({first, second, third, fourth}) == 4
