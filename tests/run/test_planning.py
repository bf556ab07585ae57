"""What is left of a run follows from its record; groups of several seats count once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.rewards import Advantages, GroupAdvantages
from rollbook.rollout import GroupRules
from rollbook.rollout.pool import Closed, GroupPlan
from rollbook.run import RunConfig
from rollbook.run.planning import Planner
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Task

TASKS = [Task(id=f"t{number}", prompt="p") for number in range(4)]
CONFIG = RunConfig(environment="x", tasks=2, group=2, groups=GroupRules(resample=2))


def valued(seat: str, *values: float) -> GroupAdvantages:
    members = {f"r-0000-{seat}{number}": value for number, value in enumerate(values)}
    return GroupAdvantages(
        group="r-0000",
        seat=seat,
        values=members,
        members=tuple(members),
        baseline=0.5,
        scheduled=2,
        used=len(values),
        estimator="dr_grpo",
        rules="h",
    )


@pytest.mark.parametrize(("judge", "further"), [((0.0, 0.0), 1), ((0.5, -0.5), 0)])
def test_a_group_of_two_seats_is_replaced_once_and_alike_in_both_lives(
    tmp_path: Path, judge: tuple[float, ...], further: int
) -> None:
    seats = (valued("solver", 0.0, 0.0), valued("judge", *judge))
    with RunWriter.create(tmp_path / "run") as writer:
        writer.annotate(Advantages(seats).annotations())
    planner = Planner(CONFIG, TASKS, "r", RunReader(tmp_path / "run"))
    assert planner.total == (CONFIG.tasks + further) * CONFIG.group
    closed = Closed(
        plan=GroupPlan(id="r-0000", task=TASKS[0], size=2),
        outcomes=(),
        advantages=seats,
        refilled=0,
        unrecorded=0,
        cancelled=(),
        changed={},
    )
    assert closed.zero_variance is bool(further)
