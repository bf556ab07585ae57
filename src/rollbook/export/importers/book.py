"""The book of one import: ids, groups and heads of the traces that a file gives.

Rules: ids follow from the file's bytes and the place of the row, so the same file always becomes the same run; a group
is what the file calls one, else the rows of one task, for those are what can be compared; a row that belongs to nothing
else is a group of its own. The row's own id and place, and what else has no field in the record, stand in the head's
`config` under ``imported``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollbook.export.importers.rows import BadRow, opened
from rollbook.trace.ending import is_reward
from rollbook.trace.message import canonical_bytes
from rollbook.trace.record import Agent, PolicyRecord, TraceHead
from rollbook.trace.task import Task
from rollbook.trace.tools import ToolSpec

__all__ = ["UNKNOWN", "Book", "content_id", "file_hash", "numbers", "reward_of"]

UNKNOWN = "unknown"
"""The name of a policy that the file does not name."""


class Book:
    """Numbers the traces of one file."""

    def __init__(self, form: str, file: str, run: str) -> None:
        """`form`: the importer's name. `file`: the file's name. `run`: the id of the run that it becomes."""
        self.form, self.file, self.run = form, file, run
        self.place = ""
        """Of the row that is read now."""
        self._members = Counter[tuple[str, str]]()
        self._made = 0

    def head(
        self,
        *,
        task: Task,
        group: object = None,
        policy: str = UNKNOWN,
        agent: Agent | None = None,
        episode: str = "",
        environment: str = "",
        tools: tuple[ToolSpec, ...] = (),
        tokens: bool = False,
        source: Mapping[str, Any] | None = None,
    ) -> TraceHead:
        """The head of the next trace. `group`: whatever names it in the file; None: it is alone. `source`: what else
        the row says of itself, as plain data."""
        number, agent = self._made, agent or Agent()
        self._made += 1
        name = f"{self.run}-g{content_id(group) if group is not None else f'{number:06d}'}"
        member = self._members[name, agent.seat]
        self._members[name, agent.seat] += 1
        imported = {"form": self.form, "file": self.file, "row": self.place, **(source or {})}
        return TraceHead(
            rollout=f"{self.run}-{number:06d}",
            group=name,
            task=task,
            agent=agent,
            policies=(PolicyRecord(name=policy),),
            run=self.run,
            episode=episode,
            member=member,
            environment=environment,
            tools=tools,
            tools_rendered=None,
            config={"imported": imported},
            tokens=tokens,
        )


def content_id(value: object) -> str:
    """12 hex digits that are equal where two plain values are."""
    return hashlib.blake2b(canonical_bytes(value), digest_size=6).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes in hex."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def reward_of(value: float | None) -> float | None:
    """A reward as the record takes it; raises `BadRow` for one that is not finite. None stays None: absent is not
    zero."""
    if value is None:
        return None
    if not is_reward(value):
        raise BadRow(f"its reward is {value}, which is no finite number")
    return float(value)


def numbers(plain: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a mapping, for metrics; truth values count as 0 and 1."""
    return {name: float(each) for name, each in plain.items() if isinstance(each, int | float) and _finite(each)}


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
