"""A training as a picture: reward, endings and parse statuses over its steps."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# (matplotlib is typed in part; this is the one module that touches it)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rollbook.errors import StoreError, UsageError

__all__ = ["Curve", "plot"]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of a training is drawn from."""

    step: int
    reward: float | None
    """Mean of those that vote; None: nobody does."""
    endings: Mapping[str, int]
    """Rollouts by how they ended."""
    turns: Mapping[str, int]
    """Turns with attempted tool calls by parse status."""


def plot(curves: Sequence[Curve], path: Path, *, title: str, held_out: tuple[float, float] | None = None) -> None:
    """Write a PNG. `held_out`: reward on tasks that were kept out, before the first and after the last step.

    Raises `UsageError` where there is nothing to draw, `StoreError` where the file cannot be written.
    """
    if not curves:
        raise UsageError("there is no step to draw")
    figure = Figure(figsize=(8, 8), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    steps = [each.step for each in curves]
    known = [(each.step, each.reward) for each in curves if each.reward is not None]
    top.plot([step for step, _ in known], [reward for _, reward in known], color="black", label="training tasks")
    if held_out is not None:
        ends = [steps[0], steps[-1] + 1]
        top.plot(ends, list(held_out), "o", color="tab:red", label="held-out tasks")
    top.set_ylabel("mean reward")
    top.set_title(title)
    top.legend(loc="lower right")
    _shares(middle, steps, [each.endings for each in curves], "share of rollouts by ending")
    _shares(bottom, steps, [each.turns for each in curves], "share of turns with calls by parse status")
    bottom.set_xlabel("step")
    try:
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _shares(axes: Any, steps: Sequence[int], rows: Sequence[Mapping[str, int]], label: str) -> None:
    names = sorted({name for row in rows for name in row})
    totals = [sum(row.values()) for row in rows]
    shares = [
        [row.get(name, 0) / total if total else 0.0 for row, total in zip(rows, totals, strict=True)] for name in names
    ]
    if names:
        axes.stackplot(steps, *shares, labels=names)
        axes.legend(loc="center left", fontsize="small")
    axes.set_ylim(0, 1)
    axes.set_ylabel(label, fontsize="small")
