"""A training as a run: rollouts into one folder, a step from each batch, the new weights back to the engine.

Rules. The folder is a run like any other; in it lie the steps too (``training.json``) and their picture
(``training.png``). Beside it lie the newest weights (``OUT-weights``) and the runs over held-out tasks, ``OUT-start``
and ``OUT-end``. Each batch is sampled from one version: the engine stands still while the learner works. How far engine
and learner are apart is kept for every rollout (`rollbook.trace.facts.MISMATCH`).
"""

# pyright: reportUnknownMemberType=false
# (torch is typed in part)

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from rollbook.errors import ConfigError, ModelError, StoreError, UsageError
from rollbook.models import ModelFiles
from rollbook.policy import LocalName, RemoteName, parse_policy_name
from rollbook.policy.control import SglangControl, VllmControl
from rollbook.policy.http import EngineAddress
from rollbook.policy.local import LocalConfig, LocalPolicy
from rollbook.policy.local_control import LocalControl
from rollbook.policy.names import EngineKind
from rollbook.policy.weights import PauseMode, WeightControl, swap_weights
from rollbook.rollout import LoadedPolicy
from rollbook.run.access import Access
from rollbook.run.open import open_run
from rollbook.run.policies import policy_of, renderer_for
from rollbook.run.recording import Progress
from rollbook.run.runner import run
from rollbook.run.served import ModelSource, files_for
from rollbook.run.stream import ClosedGroup, RolloutStream, open_stream
from rollbook.run.templates import read_template
from rollbook.run.training_config import StepRow, TrainingConfig, TrainingReport
from rollbook.run.training_tasks import split_tasks
from rollbook.run.training_weights import TrainedWeights
from rollbook.trace import ParseStatus, RolloutFailure, Task, Trace
from rollbook.trace.sample import Sample
from rollbook.train.learner import Learned, Learner, LearnerConfig
from rollbook.train.loop import train
from rollbook.train.loss import Correction, LossRules
from rollbook.train.mismatch import annotate
from rollbook.train.plot import Curve, plot
from rollbook.worlds import make

__all__ = ["PICTURE", "REPORT", "train_run"]

REPORT, PICTURE = "training.json", "training.png"
"""Files within the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trainee:
    """The policy that is trained, and the hand on its weights."""

    loaded: LoadedPolicy
    control: WeightControl
    weights: TrainedWeights


async def train_run(
    config: TrainingConfig,
    folder: Path,
    *,
    access: Access | None = None,
    told: Callable[[StepRow], None] = lambda _: None,
    progress: Progress | None = None,
) -> TrainingReport:
    """Train, and leave the run in `folder`. `told`: gets each step as it is done. `progress`: as in `run`, of the
    training's own rollouts.

    Raises `UsageError` with the remedy, and what a run raises.
    """
    learns = _learner_config(config)
    env = make(config.run.environment, **config.run.options)
    steps, each = config.steps, config.run.tasks
    tasks, held_out = split_tasks(env, train=steps * each, held_out=config.held_out, seed=config.run.seed)
    start, end, weights = (folder.with_name(f"{folder.name}-{part}") for part in ("start", "end", "weights"))
    _refuse_taken(folder, start, end, weights)
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.run.seed)
    trainee = await _trainee(config, weights, access or Access())
    before = await _tried(config, trainee, held_out, start)
    learner = Learner(trainee.weights.model, learns, reference=trainee.weights.reference() if learns.loss.kl else None)
    rows: list[StepRow] = []

    def tell(row: StepRow) -> None:
        rows.append(row)
        told(row)

    whole = msgspec.structs.replace(config.run, tasks=len(tasks))
    async with open_stream(
        whole,
        folder,
        queue=each,
        control=trainee.control,
        policy=trainee.loaded,
        tasks=tasks,
        concurrency=each * config.run.group,
        progress=progress,
    ) as stream:
        rollouts = _Rollouts(stream, trainee, each, tell)
        await train(rollouts, learner, rollouts.learned)
    if not rows:
        raise UsageError(
            f"nothing was learned, for no rollout had a vote: `rollbook show {folder}` tells how they ended, and which "
            "rule decided"
        )
    after = await _tried(config, trainee, held_out, end)
    return _report(config, folder, rows, before, after)


def _refuse_taken(*folders: Path) -> None:
    for each in folders:
        if each.exists():
            raise ConfigError(f"{each} is there already: a training begins in a new folder (--out)")


async def _trainee(config: TrainingConfig, folder: Path, access: Access) -> _Trainee:
    """The policy with the weights that the learner begins from. Raises `UsageError`."""
    name = parse_policy_name(config.run.policy)
    if isinstance(name, RemoteName) and name.engine not in _CONTROLS:
        raise ConfigError(f"nobody can give new weights to '{name}': train with local:MODEL, vllm:URL or sglang:URL")
    if not isinstance(name, LocalName | RemoteName):
        raise ConfigError(f"policy '{name}' names no weights: train with local:MODEL, vllm:URL or sglang:URL")
    files = await asyncio.to_thread(files_for, name, ModelSource(tokenizer=config.run.tokenizer, access=access))
    if files.weights is None:
        raise ModelError(
            f"of policy '{name}' no weights are at hand: name them with --tokenizer, which takes a GGUF file or "
            "local:MODEL"
        )
    with_gguf = isinstance(name, LocalName)
    weights = await asyncio.to_thread(TrainedWeights, files, folder, gguf=with_gguf, bfloat16=config.bfloat16)
    try:
        first = await asyncio.to_thread(weights.write, 0)
        if isinstance(name, RemoteName):
            return await _remote(config, name, access, weights, first)
        return _local(config, name, files, weights, first)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # nothing was learned, and the next try begins in a new folder too
        raise


def _local(
    config: TrainingConfig, name: LocalName, files: ModelFiles, weights: TrainedWeights, first: Path
) -> _Trainee:
    asked = config.run
    renderer = renderer_for(
        files,
        template=None if asked.template is None else read_template(Path(asked.template)),
        date=asked.template_date,
        variables=asked.template_variables,
    )
    shape = LocalConfig(
        name=str(name),
        weights=first,
        stop_ids=files.stop_ids,
        float32=True,
        context_length=min(config.context_length, files.context_length or config.context_length),
        slots=min(config.slots, asked.tasks * asked.group),
        threads=config.threads,
    )
    engine = LocalPolicy(shape)
    return _Trainee(loaded=LoadedPolicy(engine, renderer), control=LocalControl(engine), weights=weights)


_CONTROLS = {EngineKind.VLLM: VllmControl, EngineKind.SGLANG: SglangControl}


async def _remote(
    config: TrainingConfig, name: RemoteName, access: Access, weights: TrainedWeights, first: Path
) -> _Trainee:
    control = _CONTROLS[name.engine](
        EngineAddress(url=name.url, api_key=access.api_key, timeout=config.run.request_timeout)
    )
    loaded = await asyncio.to_thread(policy_of, config.run, access)
    await control.open()
    try:
        await swap_weights(control, first, 0)  # it samples from what the learner holds, from the first token on
    except RolloutFailure as failure:
        raise UsageError(
            f"'{name}' did not take the weights that the training begins from ({failure.detail}): see that it runs, "
            "allows new weights and reads the folder that they lie in"
        ) from failure
    finally:
        await control.close()
    return _Trainee(loaded=loaded, control=control, weights=weights)


def _learner_config(config: TrainingConfig) -> LearnerConfig:
    """Raises `ConfigError`."""
    loss = LossRules(correction=Correction(config.correction), kl=config.kl, max_lag=config.max_lag)
    return LearnerConfig(lr=config.lr, loss=loss, budget=config.budget)


class _Rollouts:
    """The stream as the loop wants it: a batch of groups becomes samples, and each step a row."""

    def __init__(self, stream: RolloutStream, trainee: _Trainee, groups: int, told: Callable[[StepRow], None]) -> None:
        self._stream, self._trainee, self._groups, self._told = stream, trainee, groups, told
        self._taken: list[ClosedGroup] = []
        self._calls = _Calls()
        self._since = time.monotonic()

    @property
    def version(self) -> int:
        return self._stream.version

    async def take(self) -> Sequence[Sample] | None:
        self._taken = await self._stream.batch(self._groups)
        if not self._taken:
            return None
        await self._trainee.control.pause(PauseMode.KEEP)
        found, self._calls = await asyncio.to_thread(_samples, self._taken)
        return found

    async def publish(self, version: int) -> None:
        path = await asyncio.to_thread(self._trainee.weights.write, version)
        await self._stream.update(path, version)

    def learned(self, step: int, learned: Learned) -> None:
        """Keep what a step was learned from, and tell of it."""
        self._stream.annotate(annotate(learned.by_rollout, step))
        outcomes = [each for group in self._taken for each in group.outcomes]
        votes = [each.vote for each in outcomes if each.vote is not None]
        since, self._since = self._since, time.monotonic()
        self._told(
            StepRow(
                step=step,
                version=self.version,
                reward=sum(votes) / len(votes) if votes else None,
                votes=len(votes),
                endings=dict(sorted(Counter(f"{each.reason.kind}/{each.reason}" for each in outcomes).items())),
                calls=dict(sorted(self._calls.statuses.items())),
                turns=dict(sorted(self._calls.turns.items())),
                well_formed=self._calls.well_formed,
                tokens=learned.tokens,
                loss=learned.loss,
                norm=learned.norm,
                kl=learned.kl,
                corrected=learned.corrected,
                late=learned.late,
                lags=learned.lags,
                mismatch=learned.mismatch,
                seconds=self._since - since,
            )
        )


@dataclass(slots=True)
class _Calls:
    """The attempted tool calls of a batch."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    turns: Counter[str] = field(default_factory=Counter[str])
    """Turns with attempts, each under the first status that is not `ok`, where there is one."""

    @property
    def well_formed(self) -> float | None:
        return self.turns[ParseStatus.OK] / self.turns.total() if self.turns else None

    def see(self, trace: Trace) -> None:
        for turn in trace.turns():
            statuses = [call.status for call in turn.message.tool_calls]
            if statuses:
                self.statuses.update(map(str, statuses))
                self.turns[next((status for status in statuses if status is not ParseStatus.OK), ParseStatus.OK)] += 1


def _samples(groups: Sequence[ClosedGroup]) -> tuple[list[Sample], _Calls]:
    """What is trained from, in the order of groups and members, and the calls that were attempted."""
    found: list[Sample] = []
    calls = _Calls()
    for group in groups:
        for trace in group.traces():
            found += group.samples(trace)
            calls.see(trace)
    return found, calls


async def _tried(config: TrainingConfig, trainee: _Trainee, tasks: Sequence[Task], folder: Path) -> float | None:
    """Mean reward on tasks that are kept out, one rollout each; None where there are none, or nobody votes."""
    if not tasks:
        return None
    asked = msgspec.structs.replace(config.run, tasks=len(tasks), group=1)
    await run(asked, folder, policy=trainee.loaded, tasks=tasks, concurrency=config.slots)
    rewards = [row.reward for row in open_run(folder).summaries() if row.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _report(
    config: TrainingConfig, folder: Path, rows: Sequence[StepRow], before: float | None, after: float | None
) -> TrainingReport:
    report = TrainingReport(
        config={**msgspec.to_builtins(config), "run": config.run.plain()},
        steps=list(rows),
        held_out_start=before,
        held_out_end=after,
        weights=f"{folder.name}-weights",
    )
    try:
        (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    except OSError as error:
        raise StoreError(f"cannot write {folder / REPORT}: {error.strerror}") from error
    curves = [Curve(step=row.step, reward=row.reward, endings=row.endings, turns=row.turns) for row in rows]
    title = f"{config.run.environment}, {config.run.policy}, {config.run.tasks} x {config.run.group} rollouts a step"
    held_out = None if before is None or after is None else (before, after)
    plot(curves, folder / PICTURE, title=title, held_out=held_out)
    return report
