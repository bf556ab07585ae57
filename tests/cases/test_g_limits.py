"""Reports about many rollouts that share a machine: big payloads, a rush on the scorers, accounts and their limits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.envs import Environment, StepResult
from rollbook.policy import Completion, TokenIds
from rollbook.policy.protocol import EngineBusy
from rollbook.policy.scripted import ScriptedPolicy
from rollbook.render import ChatRenderer
from rollbook.rollout import Limits, LoadedPolicy, ResourceLimit, Resources, RolloutSettings, rollout
from rollbook.store import RunWriter
from rollbook.trace import Finish, LogprobKind, Message, Reason, Sampling, Task, Trace
from tests.cases.case import STOP, Script, byte_ids, bytes_renderer, report, says


class Payloads(Environment):
    """Answers with so many characters, so often."""

    def __init__(self, turns: int, size: int) -> None:
        self.left, self.text = turns, "x" * size

    async def step(self, reply: Message) -> StepResult | None:
        self.left -= 1
        return StepResult(self.text) if self.left > 0 else None


class Answering(ScriptedPolicy):
    """An engine that takes a moment."""

    def __init__(self) -> None:
        super().__init__(Script([says("on")]), context_length=1 << 24)

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        await asyncio.sleep(0.01)
        return await super().sample(prompt, sampling, session=session)


def _loop_held(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, long: Callable[..., bool]) -> list[bool]:
    """For each call of a method with something long, whether it was on the loop's thread."""
    held: list[bool] = []
    method = getattr(kind, name)

    def watched(self: Any, *args: Any) -> Any:
        if long(*args):
            held.append(threading.current_thread() is threading.main_thread())
        return method(self, *args)

    monkeypatch.setattr(kind, name, watched)
    return held


@report("G08")
def test_bytes_grow_linearly_and_what_is_long_is_off_the_loop(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts, turns = given["rollouts"] // 16, given["turns"] // 10
    size = given["payload_bytes_per_turn"] // 50  # a renderer with a token a byte makes a token of each of them

    renderings = _loop_held(
        monkeypatch, ChatRenderer, "extend", lambda _, messages, *__: len(messages[0].content) == size
    )
    seals = _loop_held(monkeypatch, RunWriter, "seal", lambda trace: trace.graph.nbytes > size)

    async def scenario() -> tuple[Resources, list[Trace]]:
        resources = Resources()
        settings = RolloutSettings(limits=Limits(max_turns=None, max_generation=None, deadline=None))
        with RunWriter.create(tmp_path / "run") as writer:
            async with resources, asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        rollout(
                            lambda: Payloads(turns, size),
                            Task(id="t", prompt="go"),
                            LoadedPolicy(Answering(), bytes_renderer()),
                            settings=settings,
                            sink=writer,
                            resources=resources,
                        )
                    )
                    for _ in range(rollouts)
                ]
        return resources, [task.result() for task in tasks]

    resources, traces = asyncio.run(scenario())
    assert [trace.ending.reason for trace in traces if trace.ending] == [Reason.FINAL_ANSWER] * rollouts
    held = {trace.graph.nbytes for trace in traces}
    assert max(held) < 16 * turns * (size + 100)  # once each, however many turns came behind it
    on_disk = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    assert on_disk < 12 * rollouts * turns * size
    assert resources.snapshot().lag.quantile(0.99) is not None  # a metric
    assert renderings == [False] * rollouts * (turns - 1)
    assert seals == [False] * rollouts


class Rush(Environment):
    """Its scorer computes."""

    seconds = 0.0

    def score(self, trace: Trace) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        time.sleep(self.seconds)
        return 1.0


@report("G09")
def test_a_rush_on_the_scorers_times_none_of_them_out(given: dict[str, Any]) -> None:
    fast = 100.0  # times as fast as reported
    Rush.seconds = given["score_cpu_s"] / fast
    limit = given["scoring_timeout_s"] / fast
    assert given["ready_to_score"] * Rush.seconds / given["cores"] > limit  # together they take longer than one may

    async def scenario() -> tuple[Resources, list[Trace]]:
        resources = Resources({"scoring": ResourceLimit(limit=given["cores"])})
        settings = RolloutSettings(limits=Limits(score_timeout=limit))
        async with resources, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    rollout(
                        Rush,
                        Task(id="t", prompt="go"),
                        Script([says("x")]).loaded(),
                        settings=settings,
                        resources=resources,
                    )
                )
                for _ in range(given["ready_to_score"])
            ]
        return resources, [task.result() for task in tasks]

    resources, traces = asyncio.run(scenario())
    assert [trace.reward for trace in traces] == [1.0] * given["ready_to_score"]
    (scoring,) = [each for each in resources.stats() if each.name == "scoring"]
    assert (scoring.peak, scoring.entered) == (given["cores"], given["ready_to_score"])


CREATE = """
import asyncio, sys, time
from pathlib import Path
from rollbook.rollout import ResourceLimit, Resources

async def main(folder, count, per_second, pause):
    resources = Resources({"sandbox": ResourceLimit(per_second=float(per_second))}, rates=Path(folder))
    async def create(number):
        async with resources.sandbox.slot():
            print(time.monotonic(), flush=True)
            if pause and number == 0:
                resources.sandbox.pause(float(pause))
    async with resources, asyncio.TaskGroup() as group:
        for number in range(int(count)):
            group.create_task(create(number))

asyncio.run(main(*sys.argv[1:]))
"""


@report("G10")
def test_a_rate_holds_over_processes_and_a_pause_for_all_of_them(given: dict[str, Any], tmp_path: Path) -> None:
    fast = 8  # times as many in a second as reported
    per_second, pause = given["account_limit_per_s"] * fast, 0.5
    each = given["rollouts"] // given["processes"]
    pauses = [pause, *[0] * (given["processes"] - 1)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, str(tmp_path), str(each), str(per_second), str(seconds or "")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seconds in pauses
    ]
    said = [process.communicate(timeout=60)[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * given["processes"]
    assert [len(lines) for lines in said] == [each] * given["processes"]
    moments = sorted(float(line) for lines in said for line in lines)
    for begin in moments:
        assert sum(begin <= moment < begin + 1.0 for moment in moments) <= per_second
    paused = float(said[0][0])
    after = [moment for moment in moments if moment > paused + 0.1]
    assert min(after) >= paused + pause - 0.11


class Provider:
    """Takes so many requests in each window and turns the others away, with or without a time to come back."""

    def __init__(self, limit: int, window: float, retry_after: float | None) -> None:
        self.limit, self.window, self.retry_after = limit, window, retry_after
        self.began = time.monotonic()
        self.taken: dict[int, int] = {}
        self.refused = 0

    def __call__(self, prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        window = int((time.monotonic() - self.began) / self.window)
        if self.taken.get(window, 0) >= self.limit:
            self.refused += 1
            raise EngineBusy(Reason.RATE_LIMITED, "429", self.retry_after)
        self.taken[window] = self.taken.get(window, 0) + 1
        ids = [*byte_ids("x"), STOP]
        return Completion(
            token_ids=np.array(ids, np.int32),
            logprobs=np.full(len(ids), -0.5, np.float32),
            logprob_kind=LogprobKind.RAW,
            finish=Finish.STOP,
            engine_finish="stop",
        )


class Longer(Environment):
    """Talks for some turns."""

    def __init__(self) -> None:
        self.left = 3

    async def step(self, reply: Message) -> StepResult | None:
        self.left -= 1
        return StepResult("on") if self.left > 0 else None


@report("G11")
def test_who_was_turned_away_together_comes_back_spread_and_none_fails(given: dict[str, Any]) -> None:
    assert (given["retry_after_s"], given["backoff"]) == (None, "none")
    provider = Provider(given["limit_per_min"], 1.0, None)  # a minute is a second here

    async def scenario() -> list[Trace]:
        resources = Resources()
        loaded = LoadedPolicy(ScriptedPolicy(provider, context_length=1 << 20), bytes_renderer())
        settings = RolloutSettings(limits=Limits(max_generation=None, deadline=0.9))
        async with resources, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    rollout(Longer, Task(id="t", prompt="go"), loaded, settings=settings, resources=resources)
                )
                for _ in range(given["clients"])
            ]
        return [task.result() for task in tasks]

    traces = asyncio.run(scenario())
    assert provider.refused > 0
    assert [trace.ending.reason for trace in traces if trace.ending] == [Reason.FINAL_ANSWER] * given["clients"]
    waited = [trace.tail.times.limiter for trace in traces if trace.tail.times]
    assert max(waited) > 0.9  # longer than its own time lasts, and nobody was cut
    needed = 3 * given["clients"] / given["limit_per_min"]
    assert len(provider.taken) <= 3 * needed + 2, provider.taken
