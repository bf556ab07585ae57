"""Our rollouts inside of TRL's real trainer: a toy model learns from them, and only from what may train."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.errors import UsageError
from rollbook.policy import ScriptedPolicy, ScriptedReply
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings
from rollbook.run.doors.trl import RolloutFunc, rollout_reward
from rollbook.trace import Drop, EndingRules, Fate, MemorySink, Reason, Sampling, Task, Trace
from rollbook.trace.disposition import decide
from rollbook.trace.sample import samples
from tests.rollout.made import SMOLLM, ids_of
from tests.run.doors import trl_made as made

SHORT = RolloutSettings(limits=Limits(max_generation=8))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """TRL says that it may change, and transformers that a toy tokenizer has no model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(autouse=True)
def nothing_lost() -> Iterator[None]:
    made.Letters.lost = 0
    yield
    made.Letters.lost = 0


def opened(sink: MemorySink | None = None, **more: Any) -> RolloutFunc:
    given = {"settings": SHORT, **more}
    return RolloutFunc(made.Letters, made.Letters().tasks(2), SMOLLM.renderer, sink=sink, **given)


def beside(model: Any, **more: Any) -> Any:
    """What a rollout function looks at of a trainer."""
    fields = {
        "model": model,
        "args": SimpleNamespace(temperature=1.0),
        "tools": None,
        "state": SimpleNamespace(global_step=3),
        "accelerator": SimpleNamespace(process_index=0, unwrap_model=lambda wrapped: wrapped),
    }
    return SimpleNamespace(**{**fields, **more})


def recomputed(model: Any, ids: list[int], behind: int, temperature: float = 1.0) -> np.ndarray:
    """Logprobs of the last `behind` ids."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -behind - 1 : -1].float() / temperature
    spread = torch.log_softmax(logits, -1)
    return spread.gather(1, torch.tensor(ids[-behind:])[:, None])[:, 0].numpy()


def mean_logprob(model: Any, trace: Trace) -> float:
    (sample,) = samples(trace)
    behind = len(sample) - sample.prompt_len
    return float(recomputed(model, sample.token_ids.tolist(), behind)[sample.loss_mask[sample.prompt_len :]].mean())


def test_a_toy_model_learns_from_our_rollouts_in_trls_trainer(tmp_path: Path) -> None:
    sink, model, before = MemorySink(), made.model(), made.model()
    rollouts = opened(sink)
    trainer = made.trainer(rollouts, model, tmp_path, steps=3, group=12)
    trainer.train()
    rollouts.close()
    first = [trace for trace in sink.traces() if trace.calls and versions(trace) == {0}]
    best, worst = max(first, key=reward_of), min(first, key=reward_of)
    assert (reward_of(best), reward_of(worst)) == (1.0, 0.0)
    assert mean_logprob(model, best) > mean_logprob(before, best) + 0.1
    assert mean_logprob(model, worst) < mean_logprob(before, worst) - 0.1
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    assert rewards[-1] > rewards[0]
    assert {version for trace in sink.traces() for version in versions(trace)} == set(range(3))


def reward_of(trace: Trace) -> float:
    assert trace.reward is not None
    return trace.reward


def versions(trace: Trace) -> set[int]:
    return set(trace.graph.versions.view[:, 0].tolist())


def test_the_rows_are_what_the_record_says_and_the_logprobs_what_the_model_computes() -> None:
    sink, model = MemorySink(), made.model()
    rollouts = opened(
        sink, settings=RolloutSettings(limits=Limits(max_generation=8), sampling=Sampling(temperature=0.5))
    )
    trainer = beside(model, args=SimpleNamespace(temperature=0.5))
    model.train()
    rows = rollouts(["Say 1.", "Say 1.", "Say 0."], trainer)
    rollouts.close()
    assert model.training
    traces = {trace.id: trace for trace in sink.traces()}
    assert [traces[rollout].task.id for rollout in rows["rollout"]] == ["letters-1", "letters-1", "letters-0"]
    model.eval()
    for place, rollout in enumerate(rows["rollout"]):
        (sample,) = samples(traces[rollout])
        prompt, said = rows["prompt_ids"][place], rows["completion_ids"][place]
        assert [*prompt, *said] == sample.token_ids.tolist()
        mask = np.array(rows["env_mask"][place], bool)
        assert mask.tolist() == sample.loss_mask[sample.prompt_len :].tolist()
        assert 0 < mask.sum() < len(mask)
        ours = np.array(rows["logprobs"][place])
        assert np.abs(ours - recomputed(model, [*prompt, *said], len(said), 0.5))[mask].max() < 1e-5
        assert not ours[~mask].any()
        assert rows["reward"][place] == traces[rollout].reward
    assert rollout_reward(reward=rows["reward"], completions=[]) == rows["reward"]


def test_each_call_and_each_row_draws_anew_and_the_same_seed_the_same() -> None:
    model = made.model()

    def drawn() -> list[list[list[int]]]:
        rollouts = opened()
        calls = [rollouts(["Say 1.", "Say 1.", "Say 0.", "Say 1."], beside(model))["completion_ids"] for _ in range(2)]
        rollouts.close()
        return calls

    first, again = drawn(), drawn()
    assert first == again
    assert len({tuple(row) for call in first for row in call}) > 2


def test_a_lost_rollout_gives_a_row_that_trains_nothing_and_has_no_vote() -> None:
    made.Letters.lost = 1
    sink, model = MemorySink(), made.model()
    rollouts = opened(
        sink, settings=RolloutSettings(limits=SHORT.limits, rules=EndingRules({Reason.SANDBOX_LOST: Drop()}))
    )
    rows = rollouts(["Say 1."] * 4, beside(model))
    rollouts.close()
    assert len(rows["rollout"]) == 4
    (lost,) = [place for place, reward in enumerate(rows["reward"]) if reward is None]
    (trace,) = [trace for trace in sink.traces() if trace.id == rows["rollout"][lost]]
    assert decide(trace).fate is Fate.DROPPED
    assert not any(rows["env_mask"][lost])
    assert [*rows["prompt_ids"][lost], *rows["completion_ids"][lost]] == trace.graph.path_ids(
        len(trace.graph) - 1
    ).tolist()


@pytest.mark.parametrize("temperature", [0.7])
def test_another_temperature_than_trls_is_refused(temperature: float) -> None:
    rollouts = opened()
    with pytest.raises(UsageError, match="give both the same one"):
        rollouts(["Say 1."], beside(made.model(), args=SimpleNamespace(temperature=temperature)))


@pytest.mark.parametrize("sampling", [Sampling(top_k=3), Sampling(temperature=0.0), Sampling(stop=("x",))])
def test_sampling_that_the_trainer_knows_nothing_of_is_refused(sampling: Sampling) -> None:
    with pytest.raises(UsageError, match="a model that trains"):
        opened(settings=RolloutSettings(sampling=sampling))


def test_tasks_that_trl_cannot_tell_apart_are_refused() -> None:
    tasks = [Task(id="a", prompt="Say."), Task(id="b", prompt="Say.")]
    with pytest.raises(UsageError, match="'a' and 'b' have the same prompt"):
        RolloutFunc(made.Letters, tasks, SMOLLM.renderer)
    with pytest.raises(UsageError, match="at least one task"):
        RolloutFunc(made.Letters, [], SMOLLM.renderer)


def test_a_prompt_without_a_task_and_tools_of_trl_are_refused() -> None:
    rollouts, model = opened(), made.model()
    with pytest.raises(UsageError, match=r"no task has the prompt 'Else\.'"):
        rollouts(["Else."], beside(model))
    with pytest.raises(UsageError, match="tool loop"):
        rollouts(["Say 1."], beside(model, tools=[print]))


def test_an_engine_of_its_own_is_started_and_closed() -> None:
    said = ids_of("yes")
    policy = LoadedPolicy(ScriptedPolicy([ScriptedReply(said, [-0.5] * len(said))]), SMOLLM.renderer)
    rollouts = RolloutFunc(made.Letters, made.Letters().tasks(1), policy)
    rows = rollouts(["Say 0."], beside(None))
    rollouts.close()
    rollouts.close()
    assert np.sum(rows["env_mask"][0]) == 2 * len(said)
    with pytest.raises(UsageError, match="nothing of scripted is trained"):
        RolloutFunc(made.Letters, made.Letters().tasks(1), LoadedPolicy(policy.policy, SMOLLM.renderer, False))
