"""Samples as batches of Arrow columns, for the forms that are made of such.

Rules: arrays are list columns of their own type (masks are bool); an absent logprob is NaN, as in the sample, so the
column is bit for bit the sample's; an array that a sample does not have is null; ``samplings`` is JSON text. A batch
has at most 64 rows, and fewer where they hold more than two million tokens, so that memory stays bounded; where it ends
does not depend on whether samples came one by one or in blocks. A block that makes a whole batch is not copied.
"""

from __future__ import annotations

import importlib
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from rollbook.export.columns import block_batch, refuse_surrogates, sample_batch
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["MAX_ROWS", "MAX_TOKENS", "Batches"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")

MAX_ROWS = 64
MAX_TOKENS = 2_000_000


class Batches:
    """Collects samples and gives each full batch to `write`; holds one at most."""

    def __init__(self, schema: Any, write: Callable[[Any], None]) -> None:
        self._write, self._schema = write, schema
        self._alone: list[Sample] = []
        """Samples that are not in a piece yet; they come behind the pieces."""
        self._pieces: list[Any] = []
        self._rows = self._tokens = 0

    def write(self, sample: Sample) -> None:
        """Take one sample."""
        refuse_surrogates(sample)
        self._make_room(len(sample))
        self._alone.append(sample)
        self._count(1, len(sample))

    def write_block(self, block: SampleBlock) -> None:
        """Take several."""
        ends: list[int] = block.offsets.tolist()
        start = 0
        while start < len(block):
            self._make_room(ends[start + 1] - ends[start])
            most = bisect_right(ends, ends[start] + MAX_TOKENS - self._tokens) - 1
            end = max(start + 1, min(len(block), start + MAX_ROWS - self._rows, most))
            self._gather()
            self._pieces.append(block_batch(block.part(start, end), self._schema))
            self._count(end - start, ends[end] - ends[start])
            start = end

    def flush(self) -> None:
        """Give away what is held."""
        self._gather()
        if len(self._pieces) == 1:
            self._write(self._pieces[0])
        elif self._pieces:
            self._write(pa.concat_batches(self._pieces))
        self._pieces.clear()
        self._rows = self._tokens = 0

    def _make_room(self, tokens: int) -> None:
        if self._rows and self._tokens + tokens > MAX_TOKENS:
            self.flush()

    def _count(self, rows: int, tokens: int) -> None:
        self._rows += rows
        self._tokens += tokens
        if self._rows == MAX_ROWS:
            self.flush()

    def _gather(self) -> None:
        if self._alone:
            self._pieces.append(sample_batch(self._alone, self._schema))
            self._alone.clear()
