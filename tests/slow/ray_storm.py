"""A storm of faults over a run on a Ray cluster of two nodes, with a killed actor and a removed node.

    python -m tests.slow.ray_storm [--groups N] [--size N] [--seed N] [--moto FOLDER]

200 rollouts against the fake engine with every fault at random, twice: first the nodes share the run's folder, then an
S3 server alone (moto's, in an environment of its own). The record is held against what the engine wrote down, as in
`tests.storm.checks`; what a machine took with it that was in no object store ran again, and only that. What is left of
the cluster then gets a small run from the command line. Prints a JSON report; exit code 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from rollbook.policy.testing import LogEntry
from rollbook.rewards import Outcome
from rollbook.rollout import GroupRules, Limits
from rollbook.run import RunConfig, open_run, run
from rollbook.run.recording import Silent
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Reason, Retry, facts
from tests.run.run_made import model_folder
from tests.slow.object_store import ROOT, URL, s3_server
from tests.store.made import content
from tests.storm.checks import problems_of
from tests.storm.engine import storm_engine
from tests.storm.lives import MARK, Storm, every_fault
from tests.storm.log import read_log, state_of
from tests.storm.world import NAME

WORKERS, CONCURRENCY = 4, 32
SLOW = 6.0
ACTOR = b"ray::WorkerActor"
"""How the process of an actor is called."""
S3 = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
}


class TwoNodes:
    """The cluster, and what is done to it."""

    def __init__(self) -> None:
        memory = {"object_store_memory": 80 << 20}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False, **memory}
        )
        self.second = self.cluster.add_node(num_cpus=4, **memory)
        self.killed: int | None = None
        """The process of the actor that was killed."""
        self.seats_lost = 0
        """Actors on the node that was removed."""
        self._removing: threading.Thread | None = None

    def seats(self, node: object) -> list[int]:
        """The processes of actors on a node."""
        (raylet,) = node.all_processes["raylet"]  # type: ignore[attr-defined]
        children = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())
        return [pid for pid in children if parent(pid) == raylet.process.pid and name(pid).startswith(ACTOR)]

    def kill_actor(self) -> None:
        """One on the head, so that the other node still has some."""
        self.killed = self.seats(self.cluster.head_node)[0]
        os.kill(self.killed, signal.SIGKILL)

    def remove_node(self) -> None:
        """Its raylet is killed, and all that runs there with it."""
        self.seats_lost = len(self.seats(self.second))
        self._removing = threading.Thread(target=self.cluster.remove_node, args=(self.second, False))
        self._removing.start()

    def close(self) -> None:
        if self._removing is not None:
            self._removing.join()
        self.cluster.shutdown()


@dataclass
class Strikes(Silent):
    """Progress that kills as it goes on."""

    nodes: TwoNodes
    planned_members: int
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        del late
        self.told.append((outcome.rollout, str(outcome.reason)))
        if len(self.told) == self.planned_members // 4:
            self.nodes.kill_actor()
        if len(self.told) == self.planned_members // 2:
            self.nodes.remove_node()


def name(pid: int) -> bytes:
    """The command line of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int | None:
    """Of a process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def clock_of(url: str) -> float:
    """When the engine's clock stood at zero, in Unix seconds: rather a little later than earlier."""
    body = json.dumps({"model": "fake", "prompt": [5, 6, 7], "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).close()
    after = time.time()
    return after - read_log(url)[-1].started


def without_lost_lives(log: Sequence[LogEntry], started: Mapping[str, float]) -> tuple[list[LogEntry], set[str]]:
    """The log without what belongs to a life of a rollout that is in no record, and the rollouts that had one.
    `started`: when the recorded life of each began, in seconds of the engine's clock."""
    kept = [entry for entry in log if entry.started >= started.get(entry.session, 0.0)]
    return kept, {entry.session for entry in log if entry.started < started.get(entry.session, 0.0)}


@contextmanager
def surroundings(folder: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for all of its processes: a mark to find them by, a place for what is temporary."""
    os.environ |= {MARK: str(folder / "run"), "TMPDIR": str(folder / "t"), "PYTHONPATH": str(ROOT), **more}
    (folder / "t").mkdir()
    tempfile.tempdir = None
    yield


@dataclass(frozen=True)
class RunRequest:
    """What the command line says."""

    groups: int
    size: int
    seed: int
    moto: Path


def storm(asked: RunRequest, *, shared: bool) -> dict[str, object]:
    """Run it; the report."""
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as place:  # Ray's sockets need short names
        folder, model = Path(place), model_folder(Path(place) / "model")
        server = nullcontext(None) if shared else s3_server(asked.moto)
        with server as address, storm_engine(every_fault(asked.seed, slow=SLOW), model) as url:
            config = RunConfig(
                environment=NAME,
                policy=f"vllm:{url}",
                tokenizer=str(model),
                tasks=asked.groups,
                group=asked.size,
                limits=Limits(request_retries=1),
                request_timeout=SLOW / 2,
                rules=EndingRules().override({Reason.ENGINE_CONTRACT: Retry(1)}),
                groups=GroupRules(refill=1),
            )
            with surroundings(folder, {} if address is None else {**S3, "AWS_ENDPOINT_URL": address}):
                return {
                    **_storm(asked, config, folder, url, None if shared else URL),
                    "seconds": round(time.time() - began, 1),
                }


def _storm(asked: RunRequest, config: RunConfig, folder: Path, url: str, store: str | None) -> dict[str, object]:
    problems: list[str] = []
    offset, began = clock_of(url), time.time()
    nodes = TwoNodes()
    strikes = Strikes(nodes, asked.groups * asked.size)
    try:
        running = run(
            config,
            folder / "run",
            workers=WORKERS,
            ray=nodes.cluster.address,
            store=store,
            concurrency=CONCURRENCY,
            progress=strikes,
        )
        asyncio.run(running)
        if ray.is_initialized():
            problems.append("the run left its connection to the cluster open")
        problems += [f"an actor runs still: {pid}" for pid in nodes.seats(nodes.cluster.head_node)]
        log = read_log(url)
        problems += _command_line(config, folder / "again", nodes.cluster.address, store)
    finally:
        nodes.close()
    left = Storm(folder / "run", config, folder / "t").wait_for_orphans(10)
    problems += [f"process {pid} runs still: {name(pid)!r}" for pid in left]
    spools = list((folder / "t").glob("rollbook-spool-*"))
    reader = RunReader(folder / "run", strict=True)
    started = {trace.id: trace.head.started - offset for trace in reader.traces()}
    log, lost = without_lost_lives(log, started)
    problems += problems_of(folder / "run", config, log, strikes.told, [began])
    problems += _surroundings(nodes, url, len(lost), len(spools), shared=store is None)
    if store is not None:
        problems += _copy_problems(reader, open_run(store, cache=folder / "copies"))
    rows = list(reader.summaries())
    fates = facts.dispositions(reader.annotations())
    return {
        "ray": version("ray"),
        "obstore": version("obstore"),
        "store": store,
        "nodes": 2,
        "workers": WORKERS,
        "seed": asked.seed,
        "members": asked.groups * asked.size,
        "attempts": len(rows),
        "endings": Counter(str(row.reason) for row in rows),
        "fates": Counter(str(each.fate) for each in fates.values()),
        "faults": Counter(str(entry.fault) for entry in log if entry.fault is not None),
        "actors_killed": int(nodes.killed is not None),
        "actors_lost_with_their_node": nodes.seats_lost,
        "rollouts_run_again_for_want_of_a_record": len(lost),
        "spools_left_by_the_dead": len(spools),
        "problems": problems,
    }


def _command_line(config: RunConfig, out: Path, cluster: str, store: str | None) -> Iterator[str]:
    """One command runs on the cluster."""
    command = [sys.executable, "-m", "rollbook.cli", "run", config.environment, "--policy", config.policy]
    command += ["--tokenizer", str(config.tokenizer), "--tasks", "2", "--group", "2", "--out", str(out), "--json"]
    command += ["--workers", "2", "--ray", cluster, *([] if store is None else ["--store", f"{store}-again"])]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, timeout=120, check=False)
    if done.returncode not in (0, 1):  # 1: the audit found a limit broken, as faults do
        yield f"the command line exited with {done.returncode}"
        return
    endings = json.loads(done.stdout)["report"]["endings"]
    kept = len(open_run(out if store is None else f"{store}-again", cache=out.parent / "copies"))
    if sum(row["count"] for row in endings) != kept or kept < 4:
        yield f"the command line tells of {endings}, and {kept} rollouts are kept"


def _surroundings(nodes: TwoNodes, url: str, lost: int, spools: int, *, shared: bool) -> Iterator[str]:
    """What must hold beside the record."""
    if nodes.killed is None or nodes.seats_lost == 0:
        yield "no actor was killed, or the node that was removed had none"
    if lost > (0 if shared else CONCURRENCY):
        yield f"{lost} rollouts had a life that is in no record"
    if spools > (0 if shared else 1 + nodes.seats_lost):
        yield f"{spools} spools were left behind"
    if state_of(url)["running"] != 0:
        yield "the engine still works for somebody"


def _copy_problems(here: RunReader, there: RunReader) -> Iterator[str]:
    """The run in the object store is the run."""
    mine = {trace.id: content(trace) for trace in here.traces()}
    theirs = {trace.id: content(trace) for trace in there.traces()}
    yield from (
        f"{rollout} is another one in the object store" for rollout in mine if mine[rollout] != theirs.get(rollout)
    )
    yield from (f"{rollout} is in the object store alone" for rollout in theirs.keys() - mine.keys())
    if here.annotations() != there.annotations():
        yield "the object store has other annotations"
    yield from map(str, there.report.damages)


def main() -> int:
    """The report is all that goes to stdout, whatever Ray prints."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--groups", type=int, default=25)
    words.add_argument("--size", type=int, default=8)
    words.add_argument("--seed", type=int, default=3)
    words.add_argument("--moto", type=Path, default=ROOT / ".venv-moto")
    asked = RunRequest(**vars(words.parse_args()))
    out = os.dup(1)
    os.dup2(2, 1)
    report = {
        "shared_folder": storm(asked, shared=True),
        "object_store": storm(asked, shared=False),
    }
    os.write(out, json.dumps(report, indent=2).encode() + b"\n")
    return 1 if any(each["problems"] for each in report.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
