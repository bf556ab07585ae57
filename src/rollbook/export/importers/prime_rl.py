"""prime-rl's records: the trainer's token exports, and the orchestrator's episodes.

Source: PrimeIntellect-ai/prime-rl @ 559b4477, `src/prime_rl/trainer/rl/token_export.py`
(``token_exports/step_N/rank_R.jsonl``, schema 1) and `src/prime_rl/monitors/file.py`
(``rollouts/step_N/.../traces.jsonl``: verifiers' episodes, see `rollbook.export.importers.verifiers`).

Convention of a token export: one line is one packed sequence, its arrays of full length (F), entry t about token t:
`token_ids`, `loss_mask`, `inference_logprobs` (0.0 off the mask, null where not finite). The line holds neither text
nor reward, group or ending, and a rollout of several branches is several lines, each a rollout of its own here. The
trainer's logprobs, advantages and weights are its own and are not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rollbook.export.importers.book import Book, content_id
from rollbook.export.importers.rows import BadRow, Row, as_record, json_lines
from rollbook.export.importers.spans import add_flat, add_prompt, float32s, int32s
from rollbook.export.importers.verifiers import episode_traces
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["rows", "traces"]

SCHEMA = 1


class _Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a token export, as far as it is read."""

    schema_version: int
    step: int
    rank: int
    token_ids: list[int]
    loss_mask: list[bool]
    inference_logprobs: list[float | None]
    env_name: str | None = None
    export_sequence_idx: int | None = None


def rows(path: Path) -> Iterator[Row]:
    """One row for each line."""
    return json_lines(path)


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The traces of one line."""
    if isinstance(plain, dict) and "loss_mask" in plain:
        yield _sequence(as_record(plain, _Sequence), book)
    else:
        yield from episode_traces(plain, book)


def _sequence(row: _Sequence, book: Book) -> Trace:
    if row.schema_version != SCHEMA:
        raise BadRow(f"its schema is {row.schema_version}; {SCHEMA} can be read")
    ids = int32s(row.token_ids, "token_ids")
    mask = np.array(row.loss_mask, np.int32)
    if not len(ids) == len(mask) == len(row.inference_logprobs):
        raise BadRow(f"its arrays have {len(ids)}, {len(mask)} and {len(row.inference_logprobs)} entries")
    trained = zip(row.inference_logprobs, row.loss_mask, strict=True)
    if any(value is None and held for value, held in trained):
        raise BadRow("a trained token has a logprob that is not finite")
    start = int(mask.argmax()) if mask.any() else len(mask)
    head = book.head(
        task=Task(id=content_id(row.token_ids[:start]), prompt=""),
        environment=row.env_name or "",
        tokens=True,
        source={"step": row.step, "rank": row.rank, "sequence": row.export_sequence_idx},
    )
    trace = Trace(head)
    leaf = add_prompt(trace, [Message(role=Role.USER)], ids[:start])
    logprobs = float32s([value or 0.0 for value in row.inference_logprobs], "inference_logprobs")
    add_flat(trace, leaf, ids[start:], mask[start:], logprobs[start:])
    trace.end(Ending(Reason.NOT_RECORDED, "token exports do not say how a rollout ended"))
    return trace
