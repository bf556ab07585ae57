"""The worker that TRL's asynchronous trainer takes: its protocol, its rows, and what the trainer reads in them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.errors import ConfigError, UsageError
from rollbook.rollout import LoadedPolicy, StalenessBound
from rollbook.store import RunReader
from rollbook.trace import Fate, Reason, facts
from rollbook.trace.sample import samples
from tests.rollout.made import SMOLLM
from tests.run.test_runner import CONFIG
from tests.run.test_stream import Trainee, group_number

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TRL says of all that is experimental that it may change
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    from rollbook.run.doors.trl_async import RolloutWorker

PATIENCE = 30.0
PartialState(cpu=True)  # TRL's queue logs through it where it waits long


def worker(folder: Path, engine: Any = None, **more: Any) -> RolloutWorker:
    loaded = LoadedPolicy(engine or Trainee(), SMOLLM.renderer)
    given = {"rounds": 1, "start_jitter": 0.0, "config": CONFIG, **more}
    return RolloutWorker(given.pop("config"), folder, policy=loaded, **given)


def until(fine: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fine():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def rows(made: RolloutWorker, count: int) -> list[RolloutSample]:
    return [made.rollout_buffer.get(timeout=PATIENCE) for _ in range(count)]


def test_each_row_is_the_recorded_sample_with_the_recorded_advantage(tmp_path: Path) -> None:
    made = worker(tmp_path / "run")
    made.start()
    found = rows(made, 12)
    until(lambda: not made._thread.is_alive())
    reader = RunReader(tmp_path / "run")
    advantages = {rollout: fact.advantage for rollout, fact in facts.advantages(reader.annotations()).items()}
    (wanted,) = [[sample for trace in reader.traces() for sample in samples(trace, advantage=advantages[trace.id])]]
    left = list(wanted)
    for row in found:
        (match,) = [
            each
            for each in left
            if each.token_ids.tolist() == row.input_ids.tolist() and each.advantage == row.advantage
        ][:1]
        left = [each for each in left if each is not match]
        assert row.input_ids.dtype == row.completion_mask.dtype == np.int64
        assert row.old_log_probs.dtype == np.float32
        assert row.completion_mask.tolist() == match.loss_mask.astype(int).tolist()
        assert np.array_equal(row.old_log_probs[match.loss_mask], match.logprobs[match.loss_mask])
        assert not row.old_log_probs[~match.loss_mask].any()
        assert (row.metrics["reward"], row.model_version) == (match.reward, 0)
        assert row.prompt[-1]["role"] == "user"
        assert row.completion[0]["role"] == "assistant"
    assert left == []
    groups = [row.group_id for row in found]
    assert groups == sorted(groups)
    assert [groups.count(number) for number in set(groups)] == [4, 4, 4]
    assert made.metrics_queue.get_nowait()["rollout/used"] == (4.0, 4.0)
    made.stop()
    made.stop()


def test_trl_reads_the_rows_as_its_own(tmp_path: Path) -> None:
    made = worker(tmp_path / "run")
    made.start()
    metrics: dict[str, list[float]] = {name: [] for name in NAMES}
    dataset = RolloutQueueDataset(made.rollout_buffer, lambda: 0, made.check_health, PATIENCE, metrics)
    reading = iter(dataset)
    read = [next(reading) for _ in range(12)]
    made.stop()
    assert sorted(each["advantage"] for each in read) == [-0.5] * 6 + [0.5] * 6
    assert metrics["sample/staleness_max"] == [0.0] * 12


NAMES = (
    "sample/dropped_stale_total",
    "sample/rollout_queue_size",
    "sample/time_in_queue_s",
    "sample/staleness_mean",
    "sample/staleness_max",
)


def test_a_full_buffer_holds_the_rollouts_up(tmp_path: Path) -> None:
    made = worker(tmp_path / "run", buffer=1, queue_size=1, rounds=None)
    made.start()
    until(made.rollout_buffer.full)
    time.sleep(0.2)
    assert len(list(RunReader(tmp_path / "run").summaries())) <= 8, "one group handed out, one in the queue"
    made.check_health(0.1)
    assert {row.group_id for row in rows(made, 5)} == {0, 1}
    made.stop()


def test_a_later_version_reaches_the_stream_and_drops_what_is_too_old(tmp_path: Path) -> None:
    engine = Trainee(lambda session: group_number(session) == 2)
    made = worker(tmp_path / "run", engine, queue_size=3, bound=StalenessBound(most=0))
    made.update_model_version(0)
    made.start()
    rows(made, 8)
    made.update_model_version(1)
    until(lambda: any(fact.fate is Fate.DROPPED for fact in facts.dispositions(notes(tmp_path)).values()))
    made.stop()
    assert made.rollout_buffer.empty()


def notes(folder: Path) -> Any:
    return RunReader(folder / "run").annotations()


def test_an_engine_that_tells_no_version_is_stamped_with_the_trainers(tmp_path: Path) -> None:
    engine = Trainee()
    engine.version = None
    made = worker(tmp_path / "run", engine)
    made.update_model_version(7)
    made.start()
    assert {row.model_version for row in rows(made, 12)} == {7}
    made.stop()


def test_a_stream_that_is_over_is_told_to_a_trainer_that_waits(tmp_path: Path) -> None:
    made = worker(tmp_path / "run")
    made.start()
    rows(made, 12)
    until(lambda: not made._thread.is_alive())
    with pytest.raises(UsageError, match="the stream is over"):
        made.check_health(PATIENCE)


def test_what_stopped_the_stream_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    made = worker(tmp_path / "run")
    made.start()
    until(lambda: not made._thread.is_alive())
    with pytest.raises(ConfigError, match="is a file"):
        made.check_health(PATIENCE)
    made.stop()


def test_an_engine_that_hangs_is_told(tmp_path: Path) -> None:
    made = worker(tmp_path / "run", Trainee(lambda _: True))
    made.start()
    until((tmp_path / "run").is_dir)
    time.sleep(0.1)
    with pytest.raises(UsageError, match=r"no group closed for \d+ s"):
        made.check_health(0.05)
    made.check_health(PATIENCE)
    made.stop()


def test_stopping_keeps_the_rollouts_that_were_in_flight_as_interrupted(tmp_path: Path) -> None:
    engine = Trainee(lambda _: True)
    made = worker(tmp_path / "run", engine)
    made.start()
    until(lambda: len(engine.requests) > 0)
    made.stop()
    assert not made._thread.is_alive()
    endings = {summary.reason for summary in RunReader(tmp_path / "run").summaries()}
    assert endings == {Reason.INTERRUPTED}
    made.update_model_version(1)


def test_it_starts_once_and_a_buffer_holds_something(tmp_path: Path) -> None:
    made = worker(tmp_path / "run")
    made.stop()
    made.start()
    with pytest.raises(UsageError, match="started before"):
        made.start()
    made.stop()
    with pytest.raises(ConfigError, match="at least 1 row"):
        worker(tmp_path / "other", buffer=0)
