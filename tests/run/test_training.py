"""A training as a run, on the model that comes with the package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from msgspec import structs
from transformers import AutoModelForCausalLM

from rollbook.audit import audit
from rollbook.envs import Environment
from rollbook.errors import ConfigError, UsageError
from rollbook.models import load_model
from rollbook.models.gguf_tensors import read_tensors
from rollbook.rollout import Limits
from rollbook.run import RunConfig, open_run
from rollbook.run.training import train_run
from rollbook.run.training_config import CORRECTIONS, StepRow, TrainingConfig
from rollbook.run.training_tasks import split_tasks
from rollbook.run.training_weights import TrainedWeights
from rollbook.trace import Task, Trace
from rollbook.trace.facts import advantages, mismatches
from rollbook.train.loss import Correction
from rollbook.worlds import register

NATS = 1e-3
"""Between the engine and torch, both in float32."""


class Digits(Environment):
    """Rewarded by a number that hardly two replies share. `many`: different tasks."""

    def __init__(self, many: int = 1000) -> None:
        self.many = many

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [
            Task(id=f"t{seed}-{at}", prompt=f"Compute {(at + seed) % self.many}+1", target="1") for at in range(count)
        ]

    async def score(self, trace: Trace) -> float:
        return sum(trace.graph[int(turn)].token_ids.sum() for turn in trace.policy_nodes) % 97 / 97


register("test-digits", Digits)


def config(**changes: object) -> TrainingConfig:
    run = RunConfig(
        environment="test-digits",
        policy="local:tiny",
        tasks=2,
        group=3,
        limits=Limits(max_turns=2, max_generation=16),
    )
    return TrainingConfig(**({"run": run, "steps": 3, "held_out": 2} | changes))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StepRow]]:
    """The folder of a short training, and its steps."""
    folder, rows = tmp_path_factory.mktemp("training") / "run", list[StepRow]()
    asyncio.run(train_run(config(), folder, told=rows.append))
    return folder, rows


def test_engine_and_learner_agree_on_every_batch(trained: tuple[Path, list[StepRow]]) -> None:
    """Also behind each update, so the weights that went back are the learner's."""
    folder, rows = trained
    assert [row.mismatch.most is not None and row.mismatch.most < NATS for row in rows] == [True] * 3
    found = mismatches(open_run(folder).annotations())
    assert len(found) == 18
    assert all(each.most is not None and each.most < NATS for each in found.values())
    assert {each.version for each in found.values()} == {0, 1, 2}
    judged = audit(open_run(folder))["mismatch"]
    assert judged.value is not None
    assert judged.value < NATS
    assert judged.n == sum(row.tokens for row in rows)


def test_each_step_is_sampled_from_its_own_weights(trained: tuple[Path, list[StepRow]]) -> None:
    folder, rows = trained
    assert [(row.step, row.version, list(row.lags)) for row in rows] == [(0, 0, [0]), (1, 1, [0]), (2, 2, [0])]
    hashes = {trace.head.policies[0].weights_hash for trace in open_run(folder).traces()}
    assert hashes == {""}, "none is better than that of the weights before"
    for trace in open_run(folder).traces():
        assert len(set(trace.graph.versions.view[:, 0].tolist())) == 1


def test_the_weights_move_and_the_newest_are_kept(trained: tuple[Path, list[StepRow]], tmp_path: Path) -> None:
    folder, rows = trained
    (kept,) = folder.with_name("run-weights").iterdir()
    assert kept.name == "version-3.gguf"
    files = load_model("tiny", tmp_path)
    assert files.weights is not None
    before, after = read_tensors(files.weights), read_tensors(kept)
    assert before.keys() == after.keys()
    assert any((before[name] != after[name]).any() for name in before)
    assert all(row.norm is not None for row in rows)


def test_it_is_a_run_and_leaves_its_steps_and_their_picture(trained: tuple[Path, list[StepRow]]) -> None:
    folder, rows = trained
    source = open_run(folder)
    assert len(list(source.summaries())) == 18
    assert len(advantages(source.annotations())) == 18
    stored = json.loads((folder / "training.json").read_text())
    assert [row["reward"] for row in stored["steps"]] == [row.reward for row in rows]
    assert stored["config"]["run"]["environment"] == "test-digits"
    assert (folder / "training.png").read_bytes().startswith(b"\x89PNG")


def test_held_out_tasks_are_tried_before_and_after_and_never_trained_on(trained: tuple[Path, list[StepRow]]) -> None:
    folder, _ = trained
    train = {trace.task.prompt for trace in open_run(folder).traces()}
    start, end = ([*open_run(folder.with_name(f"run-{when}")).traces()] for when in ("start", "end"))
    assert {trace.task.id for trace in start} == {trace.task.id for trace in end}
    assert train.isdisjoint({trace.task.prompt for trace in start})
    assert len(start) == 2


def test_too_few_tasks_are_refused_and_none_is_trained_on_that_is_held_out() -> None:
    train, held_out = split_tasks(Digits(8), train=6, held_out=2, seed=0)
    assert (len(train), len(held_out)) == (6, 2)
    assert {task.prompt for task in train}.isdisjoint({task.prompt for task in held_out})
    with pytest.raises(ConfigError, match="too few different tasks"):
        split_tasks(Digits(2), train=6, held_out=2, seed=0)


def test_what_cannot_train_is_refused_before_anything_runs(tmp_path: Path) -> None:
    run = config().run
    for changes, what in (
        ({"policy": "llamacpp:http://127.0.0.1:1", "tokenizer": "local:tiny"}, "nobody can give new weights"),
        ({"policy": "scripted:nothing.json"}, "names no weights"),
    ):
        asked = config(run=RunConfig(**{**{name: getattr(run, name) for name in run.__struct_fields__}, **changes}))
        with pytest.raises(UsageError, match=what):
            asyncio.run(train_run(asked, tmp_path / "run"))
        assert not (tmp_path / "run").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="there already"):
        asyncio.run(train_run(config(), tmp_path / "there"))


def test_the_corrections_are_those_of_the_loss() -> None:
    assert set(CORRECTIONS) == set(Correction)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"held_out": -1},
        {"correction": "clip"},
        {"slots": 0},
        {"budget": 0},
        {"lr": 0.0},
        {"kl": -0.1},
        {"max_lag": -1},
    ],
)
def test_there_is_no_such_training(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        config(**wrong)


class Speechless(Digits):
    """Nobody gets a reward."""

    async def score(self, trace: Trace) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class OftenSpeechless(Digits):
    """The first and the last of three tasks give nobody a reward."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        drawn = super().tasks(count, seed)
        return [structs.replace(task, data={**task.data, "place": place}) for place, task in enumerate(drawn)]

    async def score(self, trace: Trace) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return await super().score(trace) if trace.task.data["place"] == 1 else None


register("test-speechless", Speechless)
register("test-often-speechless", OftenSpeechless)


def test_a_training_without_a_vote_says_so(tmp_path: Path) -> None:
    mute = RunConfig(
        environment="test-speechless", policy="local:tiny", tasks=1, group=2, limits=Limits(max_generation=4)
    )
    with pytest.raises(UsageError, match="no rollout had a vote: `rollbook show"):
        asyncio.run(train_run(config(run=mute, steps=1, held_out=0), tmp_path / "run"))


def test_a_group_without_a_vote_is_passed_over(tmp_path: Path) -> None:
    seldom = RunConfig(
        environment="test-often-speechless", policy="local:tiny", tasks=1, group=2, limits=Limits(max_generation=4)
    )
    report = asyncio.run(train_run(config(run=seldom, steps=3, held_out=0), tmp_path / "run"))
    assert [(step.step, step.version, step.votes) for step in report.steps] == [(0, 0, 2)]


@pytest.mark.parametrize("wrong", [{"lr": float("nan")}, {"lr": float("inf")}, {"kl": float("nan")}])
def test_numbers_that_nobody_can_learn_with_are_refused_before_anything_is_made(
    tmp_path: Path, wrong: dict[str, float]
) -> None:
    with pytest.raises(ConfigError):
        asyncio.run(train_run(config(**wrong), tmp_path / "run"))
    assert not list(tmp_path.iterdir())


def test_a_folder_for_an_engine_has_its_head_written_out(tmp_path: Path) -> None:
    files = load_model("tiny", tmp_path)
    weights = TrainedWeights(files, tmp_path / "weights", gguf=False)
    folder = weights.write(3)
    assert json.loads((folder / "config.json").read_bytes())["tie_word_embeddings"] is False
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    head, embedding = loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight
    assert head.data_ptr() != embedding.data_ptr()
    assert torch.equal(head, embedding)
    assert torch.equal(head, torch.from_numpy(weights.model.arrays()["model.embed_tokens.weight"]))
