"""`rollbook run --workers`: Ctrl-C as a terminal sends it, to the whole foreground group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rollbook.run import open_run
from tests.cli.cli_made import SAID, rollbook
from tests.cli.test_run import command_of
from tests.run.run_made import script
from tests.storm.lives import MARK, marked

WORLD = "tests.run.run_made:Double"
ROOT = Path(__file__).parents[2]


def slow_script(folder: Path, seconds: float) -> str:
    """The name of a policy that takes so long for each reply."""
    policy = script(folder, *SAID)
    file = folder / "script.json"
    steps = json.loads(file.read_text())
    for step in steps["replies"]:
        step["delay"] = seconds
    file.write_text(json.dumps(steps))
    return policy


def started(tmp_path: Path, folder: Path) -> subprocess.Popen[str]:
    """A run with two workers, in a process group of its own, once something of it is finished."""
    policy = slow_script(tmp_path / "m", 0.05)
    words = ["run", WORLD, "--policy", policy, "--tasks", "20", "--workers", "2", "--concurrency", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook.cli", *words, "--out", str(folder)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), MARK: str(folder)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 30
    while not list(folder.glob("writers/*/segments/*.seg")) and time.monotonic() < end:
        time.sleep(0.02)
    return process


def test_ctrl_c_leaves_no_process_and_keeps_what_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(tmp_path, folder)
    assert len(marked(folder)) == 3
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "finished rollouts are kept" in err
    assert marked(folder) == []
    kept = {row.rollout for row in open_run(folder).summaries() if row.reward is not None}
    assert 0 < len(kept) < 80
    slow_script(tmp_path / "m", 0.0)
    words = command_of(err)
    assert words[words.index("--workers") + 1] == "2"
    again = rollbook(*words)
    assert again.exit_code in (0, 1), again.output
    scored = [row for row in open_run(folder).summaries() if row.reward is not None]
    assert len({(row.group, row.member) for row in scored}) == len(scored) == 80
    assert kept <= {row.rollout for row in scored}


def test_a_second_ctrl_c_does_not_leave_workers_behind(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(tmp_path, folder)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    process.communicate(timeout=30)
    assert process.returncode != 0
    end = time.monotonic() + 10
    while marked(folder) and time.monotonic() < end:
        time.sleep(0.05)
    assert marked(folder) == []
    assert [row for row in open_run(folder).summaries() if row.reward is not None]
