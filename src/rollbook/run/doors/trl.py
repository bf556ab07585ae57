"""Our rollouts inside of TRL's `GRPOTrainer`: the object to give as its `rollout_func` (TRL 1.16).

    rollouts = RolloutFunc(Calculator, tasks, renderer)
    GRPOTrainer(model, rollout_reward, args, train_dataset=Dataset.from_list(rollouts.rows()), rollout_func=rollouts)

TRL gives the prompts of its dataset, each as often as it wants rollouts of it; each becomes rollouts of the task that
it belongs to, run as a group with the retries of the ending rules, and gives exactly one row
(`rollbook.export.doors.trl` has the fields). A rollout without a vote gives a row that trains nothing and is outside of
TRL's group mean; one with several branches cannot be told to TRL, and is refused.

Who samples: given a renderer, the trainer's own model (`ModelPolicy`), in evaluation mode, with the version that is the
trainer's step; given a policy, that engine, and whoever updates it. Rewards are ours: `rollout_reward` hands them to
TRL. Rollouts run in a thread with an event loop of its own, so a notebook's loop does not matter; `close` ends it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from rollbook.errors import UsageError, first_cause
from rollbook.export.doors.trl import columns, records, without_vote
from rollbook.render.protocol import Renderer
from rollbook.rewards import decide, voting_reward
from rollbook.rollout import EnvFactory, LoadedPolicy, ResourceLimit, Resources, RolloutSettings, derive_seed
from rollbook.rollout.group import group
from rollbook.rollout.rollout import DEFAULT_SETTINGS
from rollbook.run.doors.model_policy import ModelPolicy, refuse_sampling
from rollbook.trace import Sink, Task, Trace
from rollbook.trace.graph import NO_IDS
from rollbook.trace.sample import samples

__all__ = ["RolloutFunc", "rollout_reward"]


def rollout_reward(*, reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """A reward function for TRL: the votes of the rollouts, None where one has none."""
    return list(reward)


class RolloutFunc:
    """What TRL calls as ``rollout_func(prompts, trainer)``."""

    def __init__(
        self,
        make_env: EnvFactory,
        tasks: Iterable[Task],
        policy: Renderer | LoadedPolicy,
        *,
        settings: RolloutSettings = DEFAULT_SETTINGS,
        concurrency: int | None = None,
        sink: Sink | None = None,
    ) -> None:
        """`policy`: the renderer of the trainer's model, which then samples; or a policy with an engine of its own.
        `settings`: its temperature must be TRL's. `concurrency`: requests to the engine at once. `sink`: where the
        traces are kept; None: nowhere. Raises `UsageError` where two tasks have the same prompt, for TRL tells tasks by
        nothing else, and for what cannot train."""
        self._make_env, self._policy, self._sink = make_env, policy, sink
        self._settings, self._concurrency = settings, concurrency
        self._tasks = _by_prompt(tasks)
        refuse_sampling(settings.sampling)
        if isinstance(policy, LoadedPolicy) and not policy.trainable:
            raise UsageError(f"nothing of {policy.policy.info.name} is trained: TRL needs a policy with token ids")
        self._calls = 0
        self._open = True
        self._thread = ThreadPoolExecutor(1, "rollouts")
        self._runner: asyncio.Runner | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The dataset: a row for each task, its prompt and its id."""
        return [{"prompt": _prompt(task), "task": task.id} for task in self._tasks.values()]

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Run the rollouts of `prompts`; the columns of `rollbook.export.doors.trl`, a row for each prompt. Raises
        `UsageError`."""
        self._check(trainer)
        self._calls += 1
        wanted = [(self._task(key), len(list(same))) for key, same in itertools.groupby(prompts, _key)]
        place = (trainer.accelerator.process_index, self._calls)
        if isinstance(self._policy, LoadedPolicy):
            return self._run(self._rollouts(wanted, self._policy, place))
        model = trainer.accelerator.unwrap_model(trainer.model)
        version = int(trainer.state.global_step)
        policy = ModelPolicy(model, self._policy.info.stop_ids, name="trl", version=version)
        was = bool(model.training)
        model.eval()
        try:
            return self._run(self._rollouts(wanted, LoadedPolicy(policy, self._policy), place))
        finally:
            model.train(was)

    def close(self) -> None:
        """Close the engine, where one was given, and end the thread. Calling it twice does nothing."""
        if self._open:
            self._open = False
            self._thread.submit(self._stop).result()
            self._thread.shutdown()

    def _stop(self) -> None:
        if self._runner is not None:
            if isinstance(self._policy, LoadedPolicy):
                self._runner.run(self._policy.policy.close())
            self._runner.close()
            self._runner = None

    def _check(self, trainer: Any) -> None:
        """What of TRL's own settings would make its numbers be of other tokens or another distribution."""
        asked, ours = float(trainer.args.temperature), self._settings.sampling.temperature
        if asked != ours:
            raise UsageError(
                f"TRL divides logits by its temperature {asked:g}, and the rollouts sample at {ours:g}: give both the "
                "same one (GRPOConfig(temperature=...), Sampling(temperature=...))"
            )
        if trainer.tools:
            raise UsageError("TRL's own tool loop would run behind the rollouts: leave out the trainer's `tools`")

    def _task(self, key: str) -> Task:
        task = self._tasks.get(key)
        if task is None:
            raise UsageError(f"no task has the prompt {key[:80]!a}: make the dataset of `rows()`")
        return task

    def _run(self, rollouts: Coroutine[Any, Any, dict[str, list[Any]]]) -> dict[str, list[Any]]:
        """Run them in the thread. Ctrl-C, which is told to the main thread alone, cancels them."""
        running = self._thread.submit(self._in_thread, rollouts)
        try:
            return running.result()
        except KeyboardInterrupt:
            if self._runner is not None:
                loop = self._runner.get_loop()
                loop.call_soon_threadsafe(lambda: [each.cancel() for each in asyncio.all_tasks(loop)])
            raise

    def _in_thread(self, rollouts: Coroutine[Any, Any, dict[str, list[Any]]]) -> dict[str, list[Any]]:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(rollouts)

    async def _rollouts(
        self, wanted: Sequence[tuple[Task, int]], policy: LoadedPolicy, place: tuple[int, ...]
    ) -> dict[str, list[Any]]:
        await policy.policy.start()
        resources = Resources({"engine": ResourceLimit(limit=self._concurrency)})
        try:
            async with asyncio.TaskGroup() as running:
                groups = [
                    running.create_task(self._group(task, size, policy, resources, (*place, index)))
                    for index, (task, size) in enumerate(wanted)
                ]
        except BaseExceptionGroup as failed:
            raise first_cause(failed) from None
        return columns(self._row(trace) for each in groups for trace in each.result())

    async def _group(
        self, task: Task, size: int, policy: LoadedPolicy, resources: Resources, place: tuple[int, ...]
    ) -> list[Trace]:
        """The last attempt of each member, in order. Each call draws anew: its seed tells of the place."""
        sampling = self._settings.sampling
        seeded = msgspec.structs.replace(sampling, seed=derive_seed(sampling.seed or 0, *place))
        settings = dataclasses.replace(self._settings, sampling=seeded)
        traces = await group(
            self._make_env, task, policy, size, settings=settings, sink=self._sink, resources=resources
        )
        return list({trace.head.member: trace for trace in traces}.values())

    def _row(self, trace: Trace) -> dict[str, Any]:
        disposition = decide(trace, self._settings.rules)
        vote = voting_reward(trace, self._settings.rules) if disposition.votes else None
        if vote is not None:
            taken = [dataclasses.replace(each, reward=vote) for each in samples(trace, disposition=disposition)]
            return {name: column[0] for name, column in records(taken).items()}
        last = samples(trace).samples[-1:]
        if last:
            return without_vote(trace.id, last[0].token_ids, last[0].prompt_len)
        ids = trace.graph.path_ids(len(trace.graph) - 1) if len(trace.graph) else NO_IDS
        return without_vote(trace.id, ids, len(ids))


def _by_prompt(tasks: Iterable[Task]) -> dict[str, Task]:
    found: dict[str, Task] = {}
    for task in tasks:
        known = found.setdefault(_key(_prompt(task)), task)
        if known is not task:
            raise UsageError(
                f"tasks {known.id!a} and {task.id!a} have the same prompt, and TRL tells them by nothing else"
            )
    if not found:
        raise UsageError("a dataset needs at least one task")
    return found


def _prompt(task: Task) -> str | list[dict[str, str]]:
    """As TRL's dataset holds it: a text, or messages."""
    if isinstance(task.prompt, str):
        return task.prompt
    return [{"role": str(message.role), "content": message.content} for message in task.prompt]


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
