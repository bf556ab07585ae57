"""verl's rollout dumps (`trainer.rollout_data_dir`, `trainer.validation_data_dir`): text without ids.

Source: verl-project/verl @ 1dda039b (0.10.0.dev), `_write_generations` in `verl/trainer/ppo/ray_trainer.py` and
`verl/trainer/ppo/v1/trainer_base.py`: ``STEP.jsonl`` with `input`, `output`, `gts`, `score`, `step`, and whatever the
reward function gave beside the score.

Convention: `input` and `output` are decoded with special tokens left out, and an agent loop's tool results stand in
`output` like the policy's own words, so the record holds one user message and one reply and cannot tell them apart.
`score` is the sum of the token scores, the reward. Rows of one `step` with the same `input` and `gts` are a group; the
newer trainer's `uid` (``SAMPLE_ROLLOUT_OUTPUT``) names it outright, and its outputs beyond the first of a rollout are
rollouts of their own here. How a row ended is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from rollbook.export.importers.book import Book, content_id, numbers, reward_of
from rollbook.export.importers.rows import Row, as_record, json_lines
from rollbook.export.importers.spans import add_text
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["rows", "traces"]

_UID = re.compile(r"(.+)_[0-9]+_[0-9]+", re.ASCII)


class _Dump(msgspec.Struct, frozen=True, kw_only=True):
    input: str
    output: str
    score: float | None
    step: int | None = None
    gts: Any = None
    uid: str | None = None


def rows(path: Path) -> Iterator[Row]:
    """One row for each line."""
    return json_lines(path)


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The trace of one row."""
    row = as_record(plain, _Dump)
    named = _UID.fullmatch(row.uid) if row.uid is not None else None
    group = [row.step, named[1]] if named else [row.step, row.input, row.gts]
    head = book.head(
        task=Task(id=content_id([row.input, row.gts]), prompt=row.input, target=row.gts),
        group=group,
        source={"step": row.step, "uid": row.uid},
    )
    trace = Trace(head)
    add_text(trace, Message(role=Role.USER, content=row.input))
    add_text(trace, Message(role=Role.ASSISTANT, content=row.output), sampled=True)
    trace.end(Ending(Reason.NOT_RECORDED, "verl's dumps do not say how a rollout ended"))
    extra = {
        name: value for name, value in cast("dict[str, Any]", plain).items() if name not in _Dump.__struct_fields__
    }
    trace.update(metrics=numbers(extra))
    if row.score is not None:
        trace.score(reward_of(row.score))
    yield trace
