"""A run and its copy in an object store: whole while workers die, refused where it would mix runs, behind no result."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollbook.envs import Environment, StepResult
from rollbook.errors import ConfigError, RunLocked, StoreError, UsageError, told
from rollbook.rewards import Outcome
from rollbook.rollout import LoadedPolicy
from rollbook.rollout.pool import Closed, Scheduler
from rollbook.run import Access, RunConfig, open_run, run
from rollbook.run.copies import open_copy, writing
from rollbook.run.executors import RunParts, WorkerSpec, open_executor, start_process
from rollbook.run.live_run import next_book
from rollbook.run.planning import Planner
from rollbook.run.recording import Recorder, Silent
from rollbook.run.resume import open_folder
from rollbook.run.worker import open_worker
from rollbook.store import Manifest, RunReader, RunWriter, create_spool
from rollbook.trace import Message, Reason, Task, Trace
from rollbook.worlds import make
from tests.rollout.made import SMOLLM, Engine, says
from tests.run.run_made import script
from tests.store.made import content, whole_trace

pytest.importorskip("obstore")

from rollbook.run.mirroring import Mirroring, open_spool
from rollbook.store.fetch import fetch_parts
from rollbook.store.mirror import MirrorReport, ObjectMirror

WORLD = "tests.run.test_copies:Waits"


class Waits(Environment):
    """One turn, which takes as long as is asked; a task whose id ends with 3 kills its worker, once."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"waits-{index}", prompt="Go.") for index in range(count)]

    async def setup(self, task: Task) -> Sequence[Message]:
        await asyncio.sleep(0.01)
        if self.mark and task.id.endswith("3") and first_here(self.mark):
            while len(sent_by(self.mark)) < 2:  # both workers have sent something  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        return task.messages()

    async def step(self, reply: Message) -> StepResult | None:
        return None

    async def score(self, trace: Trace) -> float:
        return 1.0


def first_here(mark: str) -> bool:
    """Whether nobody was here before."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def sent_by(mark: str) -> list[Path]:
    """The parts that are in the bucket beside the mark."""
    return list((Path(mark).parent / "bucket" / "demo" / "writers").glob("*"))


def url_of(folder: Path) -> str:
    return f"file://{folder / 'bucket' / 'demo'}"


def same(tmp_path: Path, here: RunReader, name: str = "copies") -> RunReader:
    """The copy, which must be the run."""
    there = open_run(url_of(tmp_path), cache=tmp_path / name)
    assert {each.id: content(each) for each in there.traces()} == {each.id: content(each) for each in here.traces()}
    assert there.annotations() == here.annotations()
    assert there.report.clean
    return there


def asked(tmp_path: Path, **more: Any) -> RunConfig:
    policy = script(tmp_path / "model", "It is 8.")
    return RunConfig(**{"environment": WORLD, "policy": policy, "tasks": 3, "group": 2, **more})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_is_copied_while_it_runs(tmp_path: Path, workers: int) -> None:
    asyncio.run(run(asked(tmp_path), tmp_path / "run", store=url_of(tmp_path), workers=workers))
    assert len(same(tmp_path, open_run(tmp_path / "run"))) == 6


def test_the_copy_of_a_resumed_run_goes_on_and_no_other_run_gets_there(tmp_path: Path) -> None:
    config, url = asked(tmp_path), url_of(tmp_path)
    asyncio.run(run(config, tmp_path / "run", store=url))
    with pytest.raises(ConfigError, match="holds a run already"):
        asyncio.run(run(config, tmp_path / "other", store=url))
    assert not (tmp_path / "other").exists()
    more = asked(tmp_path, tasks=4)
    asyncio.run(run(more, tmp_path / "run", resume=True, allow_changed=True, store=url))
    assert len(same(tmp_path, open_run(tmp_path / "run"))) == 8
    asyncio.run(run(config, tmp_path / "other"))
    with pytest.raises(StoreError, match="another run"):
        asyncio.run(run(config, tmp_path / "other", resume=True, store=url))
    RunWriter.open(tmp_path / "other").close()  # it was not left locked


def test_ray_needs_workers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--workers"):
        asyncio.run(run(asked(tmp_path), tmp_path / "run", ray=True))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="it is about a machine without Ray")
def test_without_ray_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the extra ray"):
        asyncio.run(run(asked(tmp_path), tmp_path / "run", ray=True, workers=1))
    assert not (tmp_path / "run").exists()


# Workers with spools


@dataclass
class Told(Silent):
    """What the run said had ended."""

    ended_so: dict[str, Reason] = field(default_factory=dict[str, Reason])
    groups: list[Closed] = field(default_factory=list[Closed])

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        assert not late
        assert outcome.rollout not in self.ended_so
        self.ended_so[outcome.rollout] = outcome.reason

    def closed(self, closed: Closed) -> None:
        self.groups.append(closed)


async def spooled(config: RunConfig, folder: Path, url: str, told: Told, *, resume: bool = False) -> None:
    """A run whose workers write into spools, as they do on other machines."""
    copy = open_copy(url, folder)
    if resume:
        copy.fetch()
    run_id, writer = open_folder(config, folder, resume=resume, allow_changed=resume)
    tasks = list(make(config.environment, **config.options).tasks(config.tasks, config.seed))
    async with writing(writer, copy, parts=False):
        writer.seal_interrupted()
        planner = Planner(config, tasks, run_id, RunReader(folder))
        recorder = Recorder(config, planner, writer, told)
        recorder.begin()
        parts = RunParts(
            config=config,
            folder=folder,
            run_id=run_id,
            make_env=lambda: make(config.environment, **config.options),
            loaded=LoadedPolicy(Engine([says("x")]), SMOLLM.renderer),
            writer=writer,
            recorder=recorder,
            access=Access(),
            start=start_process,
            copy=copy,
            spools=True,
        )
        async with open_executor(parts, 2) as executor:
            scheduler = Scheduler(executor, recorder, concurrency=4)

            async def give() -> Any:
                return await next_book(planner, recorder)

            await scheduler.run(give)


def test_what_a_dead_worker_had_mirrored_is_kept_and_the_rest_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    config = asked(tmp_path, tasks=4, options={"mark": str(tmp_path / "mark")})
    folder, told = tmp_path / "run", Told()
    asyncio.run(spooled(config, folder, url_of(tmp_path), told))
    reader = open_run(folder)
    assert (tmp_path / "mark").exists()
    assert {row.rollout: row.reason for row in reader.summaries()} == told.ended_so
    assert len(told.ended_so) == len(reader) == 8
    assert [each.used for each in told.groups] == [2] * 4
    same(tmp_path, reader)
    (left,) = (tmp_path / "t").glob("rollbook-spool-*")  # of the dead one
    dead = left.name.removeprefix("rollbook-spool-").partition("-")[2]
    assert any((folder / "writers" / dead).rglob("*.seg"))
    old = time.time() - 1000
    os.utime(next(left.glob("writers/*/lock")), (old, old))
    asyncio.run(spooled(asked(tmp_path, tasks=5, options=config.options), folder, url_of(tmp_path), told, resume=True))
    assert list((tmp_path / "t").glob("rollbook-spool-*")) == []
    assert len(same(tmp_path, open_run(folder), "again")) == 10


def test_a_resumed_run_takes_what_workers_mirrored_behind_the_death_of_their_parent(tmp_path: Path) -> None:
    config, folder, url = asked(tmp_path, tasks=2), tmp_path / "run", url_of(tmp_path)
    asyncio.run(spooled(config, folder, url, Told()))
    before = {each.id: content(each) for each in open_run(folder).traces()}
    for path in (folder / "writers").rglob("*.seg"):
        path.unlink()
    told = Told()
    asyncio.run(spooled(config, folder, url, told, resume=True))
    assert {each.id: content(each) for each in open_run(folder).traces()} == before
    assert told.ended_so == {}


def test_a_worker_that_does_not_see_the_folder_says_what_to_do(tmp_path: Path) -> None:
    config = asked(tmp_path)
    RunWriter.create(tmp_path / "here").close()

    async def main(folder: Path) -> None:
        spec = WorkerSpec(
            config=config,
            run_id="r",
            folder=folder,
            name="w",
            path=[],
            access=Access(api_key="s3cret"),
            manifest=Manifest(created=1.0, rollbook="x"),
        )
        assert WorkerSpec.read(spec.plain()) == spec
        assert "s3cret" not in repr(spec)
        async with open_worker(spec.plain()):
            pass

    for folder in ("nowhere", "here"):
        with pytest.raises(UsageError, match="--store"):
            asyncio.run(main(tmp_path / folder))


# Parts in the object store


def parts(tmp_path: Path, *names: str) -> Path:
    """A run whose parts are in the object store alone; its folder."""
    folder, url = tmp_path / "run", url_of(tmp_path)
    with RunWriter.create(folder) as owner:
        ObjectMirror(folder, url).sync()
        for name in names:
            create_spool(tmp_path / name, owner.manifest)
            with RunWriter.join(tmp_path / name, name) as writer:
                writer.seal(whole_trace(f"of-{name}"))
            ObjectMirror(tmp_path / name, url, part=name).sync()
    return folder


def test_parts_are_fetched_as_far_as_they_are_wanted_and_not_there(tmp_path: Path) -> None:
    folder, url = parts(tmp_path, "a", "b", "c"), url_of(tmp_path)
    assert fetch_parts(url, folder, lambda name: name != "b") == ["a", "c"]
    assert sorted(open_run(folder).rollouts()) == ["of-a", "of-c"]
    (file,) = (folder / "writers" / "a").rglob("*.seg")
    file.write_bytes(longer := file.read_bytes() + b"repaired here")
    assert fetch_parts(url, folder, lambda _: True) == ["a", "b", "c"]
    assert file.read_bytes() == longer
    file.write_bytes(longer[:100])
    fetch_parts(url, folder, lambda _: True)
    assert file.read_bytes() == longer.removesuffix(b"repaired here")


def test_the_owner_leaves_the_parts_of_others_alone(tmp_path: Path) -> None:
    folder, url = parts(tmp_path, "a"), url_of(tmp_path)
    fetch_parts(url, folder, lambda _: True)
    with RunWriter.open(folder) as owner:
        with RunWriter.join(folder, "z") as other:
            other.seal(whole_trace("of-z"))
        owner.seal(whole_trace("own"))
    assert ObjectMirror(folder, url, parts=False).sync().objects == 1
    assert sorted(open_run(url, cache=tmp_path / "copies").rollouts()) == ["of-a", "own"]


def test_what_a_dead_worker_sends_behind_its_salvage_is_refused(tmp_path: Path) -> None:
    folder, url = parts(tmp_path), url_of(tmp_path)
    with RunWriter.open(folder) as owner:
        create_spool(tmp_path / "w", owner.manifest)
        with RunWriter.join(tmp_path / "w", "w") as cut_off:
            mirror = ObjectMirror(tmp_path / "w", url, part="w")
            cut_off.seal(whole_trace("sent"))
            mirror.sync()
            open_copy(url, folder).recover(owner, "w")
            cut_off.seal(whole_trace("late"))
            with pytest.raises(StoreError):
                mirror.sync()
    assert open_run(folder).rollouts() == ["sent"]
    assert open_run(url, cache=tmp_path / "copies").rollouts() == ["sent"]


# The spool and its mirror


class Slow:
    """A mirror that takes its time, and fails as it is told to."""

    def __init__(self, *fails: int) -> None:
        self.fails = fails
        self.began = self.running = 0
        self.gate = threading.Event()
        self.gate.set()

    def sync(self) -> MirrorReport:
        number, self.began = self.began, self.began + 1
        self.running += 1
        assert self.running == 1
        self.gate.wait(10)
        self.running -= 1
        if number in self.fails:
            raise StoreError(f"sync {number}")
        return MirrorReport()


def test_who_waits_gets_a_sync_that_began_later_and_all_share_it() -> None:
    mirror = Slow()

    async def main() -> None:
        async with Mirroring(mirror, 60.0) as mirroring:
            mirror.gate.clear()
            first = asyncio.create_task(mirroring.settled())
            while not mirror.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            others = [asyncio.create_task(mirroring.settled()) for _ in range(5)]
            await asyncio.sleep(0.01)
            others[0].cancel()
            mirror.gate.set()
            await first
            assert not any(each.done() for each in others[1:])
            await asyncio.gather(*others[1:])
            assert mirror.began == 2
        assert mirror.began == 3

    asyncio.run(main())


def test_a_failed_sync_is_told_to_those_who_wait_and_counts_only_at_the_end() -> None:
    async def main(*fails: int) -> None:
        async with Mirroring(Slow(*fails), 60.0) as mirroring:
            with pytest.raises(StoreError, match="sync 0"):
                await mirroring.settled()

    asyncio.run(main(0))
    with pytest.raises(StoreError, match="sync 1"):
        asyncio.run(main(0, 1))


def test_a_failure_wins_over_that_of_the_last_sync() -> None:
    async def main(why: BaseException) -> None:
        async with Mirroring(Slow(0), 60.0):
            raise why

    with pytest.raises(UsageError, match="no more") as raised:
        asyncio.run(main(UsageError("no more")))
    assert told(raised.value) == "no more\nBehind it, sync 0"
    with pytest.raises(StoreError, match="sync 0"):
        asyncio.run(main(asyncio.CancelledError()))


def test_a_sync_in_time_where_nobody_waits() -> None:
    mirror = Slow()

    async def main() -> None:
        async with Mirroring(mirror, 0.01):
            while not mirror.began:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_spool_goes_with_its_worker_and_stays_where_it_could_not_be_sent(tmp_path: Path) -> None:
    spool, first = tmp_path / "rollbook-spool-r-w0", tmp_path / "bucket/demo/writers/w0/segments/w0-000001.seg/00000001"
    with RunWriter.create(tmp_path / "run") as owner:
        manifest = owner.manifest

    async def main(*, fail: bool) -> None:
        async with open_spool(url_of(tmp_path), "r", "w0", manifest, tmp_path) as (writer, _):
            writer.seal(whole_trace("r0"))
            with pytest.raises(RunLocked):
                RunWriter.join(spool, "w0")
            if fail:  # somebody else's, in the place of the first piece
                first.parent.mkdir(parents=True)
                first.write_bytes(b"x" * 100)

    asyncio.run(main(fail=False))
    assert not spool.exists()
    shutil.rmtree(tmp_path / "bucket")
    with pytest.raises(StoreError):
        asyncio.run(main(fail=True))
    assert spool.is_dir()


def test_spools_of_workers_that_live_or_of_other_runs_stay(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as owner:
        manifest = owner.manifest
    for name in ("r-dead", "r-alive", "r-young", "s-dead"):
        create_spool(tmp_path / f"rollbook-spool-{name}", manifest)
        RunWriter.join(tmp_path / f"rollbook-spool-{name}", "w").close()
    old = time.time() - 1000

    async def main() -> None:
        async with open_spool(url_of(tmp_path), "r", "w0", manifest, tmp_path):
            pass

    with RunWriter.join(tmp_path / "rollbook-spool-r-alive", "w"):
        for name in ("r-dead", "r-alive", "s-dead"):
            os.utime(tmp_path / f"rollbook-spool-{name}" / "writers/w/lock", (old, old))
        asyncio.run(main())
    assert sorted(path.name for path in tmp_path.glob("rollbook-spool-*")) == [
        f"rollbook-spool-{name}" for name in ("r-alive", "r-young", "s-dead")
    ]
