"""Reading a foreign file into a sink, row by row.

Rules: a row that breaks its form, or of which no sound trace can be made, stops the import with its place, or is
skipped and counted where that was asked for; every trace is checked as our own are before it is kept. A file of which
nothing can be made is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from rollbook.errors import RecordError, UsageError
from rollbook.export.importers.book import Book
from rollbook.export.importers.rows import BadRow, Row
from rollbook.export.importers.table import Importer
from rollbook.trace.protocols import Sink
from rollbook.trace.trace import Trace

__all__ = ["ReadReport", "read_into"]

MOST_KEPT = 20
"""Skipped rows that are told; all are counted."""


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a file."""

    rows: int
    """Rows that were read, skipped ones included."""
    rollouts: int
    """Traces that were made."""
    text_only: int
    """Of these, without token ids."""
    without_reward: int
    """Of these, with no reward in the file."""
    sampled: int
    """Sampled tokens."""
    skipped: int
    """Rows that were left out, for they break their form."""
    first_skipped: tuple[str, ...]
    """The first of these, with what is wrong."""


def read_into(sink: Sink, importer: Importer, path: Path, book: Book, *, skip_bad: bool = False) -> ReadReport:
    """Put the traces of a file into `sink`. Raises `UsageError` with the row's place."""
    count = dict.fromkeys(("rows", "rollouts", "text_only", "without_reward", "sampled"), 0)
    skipped, told = 0, list[str]()
    for row in importer.module.rows(path):
        count["rows"] += 1
        book.place = row.place
        try:
            made = list(_sound(importer, row, book))
        except (BadRow, RecordError) as error:
            if not skip_bad:
                raise UsageError(
                    f"{path}, {row.place}: {error}. Mend the row, or leave such rows out (--skip-bad)"
                ) from error
            skipped += 1
            if len(told) < MOST_KEPT:
                told.append(f"{row.place}: {error}")
            continue
        for trace in made:
            sink.seal(trace)
            count["rollouts"] += 1
            count["text_only"] += not trace.head.tokens
            count["without_reward"] += trace.reward is None
            count["sampled"] += trace.graph.sampled_count
    if not count["rollouts"]:
        why = f"all {skipped} rows of it are bad; the first, {told[0]}" if told else "it holds no row"
        raise UsageError(f"nothing can be imported from {path} as '{importer.name}': {why}")
    return ReadReport(**count, skipped=skipped, first_skipped=tuple(told))


def _sound(importer: Importer, row: Row, book: Book) -> Iterator[Trace]:
    for trace in importer.module.traces(row.read(), book):
        trace.check()
        yield trace
