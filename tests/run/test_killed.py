"""What a kill leaves of a rollout with tools is as complete as what a finished one leaves, and the audit passes it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from rollbook.audit import audit
from rollbook.envs import tool
from rollbook.rollout import rollout
from rollbook.run import open_run
from rollbook.store import RunWriter
from rollbook.trace import Message, Task
from tests.run.run_made import CALL, Double, loaded


class Copies(Double):
    """Copies the run's folder as it is on disk, which is what a kill at that moment leaves."""

    def __init__(self, folder: Path, *, at: str) -> None:
        super().__init__()
        self.folder, self.at = folder, at

    def copy(self) -> None:
        shutil.copytree(self.folder, self.folder.with_name("killed"))

    async def setup(self, task: Task) -> list[Message]:
        if self.at == "setup":
            self.copy()
        return list(task.messages())

    @tool
    async def double(self, number: int) -> str:
        """Doubles a number."""
        if self.at == "tool":
            self.copy()
        return str(2 * number)


@pytest.mark.parametrize("at", ["setup", "tool"])
def test_a_killed_rollout_with_tools_passes_the_audit(tmp_path: Path, at: str) -> None:
    policy, folder = loaded(tmp_path / "m", CALL, "It is 8."), tmp_path / "run"
    with RunWriter.create(folder) as writer:
        task = Task(id="t", prompt="Double 4.")
        whole = asyncio.run(rollout(lambda: Copies(folder, at=at), task, policy, sink=writer))
    with RunWriter.open(tmp_path / "killed") as writer:
        (killed,) = writer.recover()
        writer.seal_interrupted()
    assert whole.head.tools_rendered is True
    assert killed.head.tools_rendered is (None if at == "setup" else True)
    found = audit(open_run(tmp_path / "killed"))
    assert found["tools_unrendered"].n == (0 if at == "setup" else 1)
    assert not found.broke
