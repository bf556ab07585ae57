"""SIGKILL whole runs at random moments, resume them to the end, and check that nothing was lost or done twice.

    python -m tests.slow.run_storm [KILLS] [SEED] [TASKS]    default 200 kills, runs of 60 tasks; prints a JSON report

Exit code 1 where something was lost.

Each life is a forked process that does a whole `rollbook.run` with a scripted policy, from creating or opening the
folder on; it is killed at a moment that is drawn before. A run that ends in spite of that makes place for the next.
Before the policy is asked for turn n + 1 it says that n turns are durable; the run says each rollout that is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rollbook.envs import tool
from rollbook.policy import Completion, TokenIds
from rollbook.rewards import Outcome
from rollbook.rollout import Limits, LoadedPolicy
from rollbook.rollout.pool import Closed
from rollbook.rollout.snapshot import Snapshot
from rollbook.run import RunConfig, run
from rollbook.store import RecoveryReport, RunReader
from rollbook.store.notes import read_annotations
from rollbook.trace import EndingKind, Fate, Reason, Sampling, Task, Trace, facts
from rollbook.worlds import register
from tests.rollout.made import SMOLLM, Engine, Talk, call, says

TURNS = 4
TASKS = 60
CONFIG = RunConfig(environment="storm", tasks=TASKS, group=4, limits=Limits(max_turns=TURNS + 1))
DEFAULTS = (200, 0, TASKS)
"""Kills, seed, tasks of a run."""
LONGEST = 0.35
"""Seconds that a life lasts at most."""


class Storm(Talk):
    """Some turns with a tool, then an answer; every second member is right."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"storm-{index}", prompt=f"Add up {index}.") for index in range(count)]

    @tool
    async def add(self, a: int, b: int) -> int:
        """Adds two numbers."""
        await asyncio.sleep(0.001)
        return a + b

    async def score(self, trace: Trace) -> float:
        return float(trace.text == "right")


register("storm", Storm)


class Says(Engine):
    """Replies that follow from member and turn alone; says on a pipe what is durable."""

    pipe: int | None = None

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        turn = sum(asked.session == session for asked in self.requests[-200:])
        tell(self.pipe, "turns", session, turn)
        await super().sample(prompt, sampling, session=session)
        await asyncio.sleep(0.004)
        member = int(session.rpartition("-")[2].partition(".")[0])
        return SAID[TURNS if turn == TURNS else 0 if turn else 1, member % 2]


SAID = {
    (kind, even): says(call() if kind < TURNS else ("right", "wrong")[even])
    for kind in (0, 1, TURNS)
    for even in (0, 1)
}


@dataclass
class Told:
    """Progress on a pipe."""

    pipe: int | None

    def planned(self, members: int, done: int) -> None:
        tell(self.pipe, "planned", members, done)

    def turn(self, trace: Trace) -> None:
        pass

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        del late
        tell(self.pipe, "finished", outcome.rollout, f"{outcome.reason.kind}/{outcome.reason}")

    def closed(self, closed: Closed) -> None:
        pass

    def snapshot(self, snapshot: Snapshot) -> None:
        pass


def tell(pipe: int | None, *words: object) -> None:
    """One line, in one write."""
    if pipe is not None:
        os.write(pipe, (" ".join(map(str, words)) + "\n").encode())


def live(folder: Path, pipe: int | None, config: RunConfig) -> None:
    """One life: begin the run, or go on with it."""
    engine = Says([says("x")])
    engine.pipe = pipe
    loaded = LoadedPolicy(engine, SMOLLM.renderer)
    resume = (folder / "run.json").exists()
    asyncio.run(run(config, folder, resume=resume, policy=loaded, progress=Told(pipe)))


@dataclass
class Report:
    """What happened and what was wrong."""

    runs: int = 0
    kills: int = 0
    lives: int = 0
    rollouts: int = 0
    interrupted: int = 0
    acknowledged_turns: int = 0
    acknowledged_rollouts: int = 0
    torn_tails: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass
class Victim:
    """One run and what its lives acknowledged."""

    folder: Path
    config: RunConfig
    turns: dict[str, int] = field(default_factory=dict[str, int])
    finished: dict[str, str] = field(default_factory=dict[str, str])

    def kill_once(self, seconds: float) -> bool:
        """One life that is killed after `seconds`; returns False where it ended before."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            code = 1
            try:
                live(self.folder, writing, self.config)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        with os.fdopen(reading) as lines:
            for line in lines:
                if line.endswith("\n"):
                    self._hear(*line.split())
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise RuntimeError(f"a life of {self.folder} failed by itself")
        return os.WIFSIGNALED(status)

    def _hear(self, word: str, rollout: str, value: str) -> None:
        if word == "turns":
            self.turns[rollout] = int(value)
        elif word == "finished":
            self.finished[rollout] = value

    def check(self, expected: dict[tuple[int, int], float | None], report: Report) -> None:
        """Resume to the end and hold the run against what was acknowledged and against a run without kills."""
        live(self.folder, None, self.config)
        reader = RunReader(self.folder, strict=True)
        found = {trace.id: trace for trace in reader.traces()}
        rows = Counter(row.rollout for row in reader.summaries())
        problems = [f"{rollout} stands {count} times" for rollout, count in rows.items() if count > 1]
        problems += [
            f"{rollout} is gone" for rollout in self.turns.keys() | self.finished.keys() if rollout not in found
        ]
        for rollout, turns in self.turns.items():
            if rollout in found and len(found[rollout].policy_nodes) < turns:
                problems.append(f"{rollout} has {len(found[rollout].policy_nodes)} of {turns} turns")
        for rollout, ending in self.finished.items():
            if rollout in found and str(found[rollout].ending) != ending:
                problems.append(f"{rollout} ended {ending} and stands as {found[rollout].ending}")
        problems += self._check_members(reader, found) + self._check_advantages(found, expected)
        report.problems += [f"{self.folder.name}: {problem}" for problem in problems]
        report.rollouts += len(found)
        report.interrupted += sum(
            trace.ending is not None and trace.ending.reason is Reason.INTERRUPTED for trace in found.values()
        )
        report.acknowledged_turns += sum(self.turns.values())
        report.acknowledged_rollouts += len(self.finished)

    def _check_members(self, reader: RunReader, found: dict[str, Trace]) -> list[str]:
        """Each member has exactly one attempt that counts, the others were interrupted and retried."""
        fates = facts.dispositions(reader.annotations())
        counting = defaultdict[tuple[str, int], list[str]](list)
        problems: list[str] = []
        for rollout, trace in found.items():
            ending = trace.ending
            if ending is not None and ending.kind is EndingKind.SUBMITTED:
                counting[trace.head.group, trace.head.member].append(rollout)
                if fates[rollout].fate is not Fate.USED:
                    problems.append(f"{rollout} is {fates[rollout]}")
            elif ending is None or ending.reason is not Reason.INTERRUPTED:
                problems.append(f"{rollout} ended {ending}")
        problems += [
            f"{place} has {len(rollouts)} outcomes" for place, rollouts in counting.items() if len(rollouts) != 1
        ]
        if len(counting) != self.config.tasks * self.config.group:
            problems.append(f"{len(counting)} members of {self.config.tasks * self.config.group}")
        return problems

    def _check_advantages(self, found: dict[str, Trace], expected: dict[tuple[int, int], float | None]) -> list[str]:
        """Each group closed once, with the advantages of a run that nobody killed."""
        notes = [note for note in read_annotations(self.folder, RecoveryReport()) if note.name == "advantage"]
        problems = [
            f"{key} was closed {n} times" for key, n in Counter(note.rollout for note in notes).items() if n > 1
        ]
        if advantages_of(self.folder) != expected:
            problems.append("the advantages are not those of a run without kills")
        return problems + [
            f"{rollout} has no advantage row" for rollout in found.keys() - {note.rollout for note in notes}
        ]


def advantages_of(folder: Path) -> dict[tuple[int, int], float | None]:
    """By group number and member, of the attempts that vote."""
    reader = RunReader(folder)
    given = facts.advantages(reader.annotations())
    return {
        (int(row.group.rpartition("-")[2]), row.member): given[row.rollout].advantage
        for row in reader.summaries()
        if row.kind is EndingKind.SUBMITTED and row.rollout in given
    }


def storm(root: Path, kills: int, seed: int, config: RunConfig) -> Report:
    """Kill `kills` lives, and resume every run to its end."""
    live(root / "calm", None, config)
    expected = advantages_of(root / "calm")
    report, moments = Report(), random.Random(seed)
    while report.kills < kills:
        victim = Victim(root / f"run{report.runs}", config)
        report.runs += 1
        killed = True
        while killed and report.kills < kills:
            killed = victim.kill_once(moments.uniform(0.0, LONGEST))
            report.lives += 1
            report.kills += killed
        victim.check(expected, report)
    return report


def main() -> int:
    """Print the report of one storm."""
    kills, seed, tasks = (int(given) for given in [*sys.argv[1:], *map(str, DEFAULTS[len(sys.argv) - 1 :])])
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = storm(Path(folder), kills, seed, msgspec.structs.replace(CONFIG, tasks=tasks))
    shown = {
        "asked": kills,
        "seed": seed,
        "tasks_a_run": tasks,
        **vars(report),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(shown, indent=2))  # noqa: T201 - the report is the output
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
