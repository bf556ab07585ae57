"""Parquet: one sample per row, fields as in `rollbook.export.fields`, columns as in `rollbook.export.columnar`.

Rules: ``reward_parts`` is a map; a row group has at most 512 rows, and fewer where they hold more than two million
tokens. Logprobs are split by byte before compression, which is light, for ids and logprobs hardly shrink; dictionaries
are kept for texts that repeat.
"""

from __future__ import annotations

import importlib
from typing import Any, BinaryIO

from rollbook.export.columnar import MAX_TOKENS, Batches
from rollbook.export.columns import schema
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["SCHEMA", "ParquetWriter", "open_writer"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

SCHEMA: Any = schema(maps=True)
"""The pyarrow schema of the file."""

GROUP_ROWS = 512
_REPEATING = ["run", "group", "episode", "rollout", "ending_kind", "ending_reason", "samplings"]
_VALUES_AT_ONCE = 1 << 18
"""Numbers that pyarrow encodes at a time: its own choice, 1024, is a third slower for lists."""


class _Tap:
    """Passes bytes on until it is shut: pyarrow writes a footer whenever it closes, also after an error, and a shut
    tap lets that fall. It has what pyarrow asks of a file."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file
        self._written = 0

    def write(self, data: bytes) -> int:
        if self._file is not None:
            self._file.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def shut(self) -> None:
        self._file = None


class ParquetWriter:
    """Writes row groups; holds the samples of one at most."""

    def __init__(self, file: BinaryIO) -> None:
        self._tap = _Tap(file)
        self._writer: Any = pq.ParquetWriter(
            self._tap,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATING,
            use_byte_stream_split=["logprobs.list.element"],
            write_statistics=_REPEATING,
            write_batch_size=_VALUES_AT_ONCE,
        )
        self._group: list[Any] = []
        self._batches = Batches(SCHEMA, self._take)

    def write(self, sample: Sample) -> None:
        self._batches.write(sample)

    def write_block(self, block: SampleBlock) -> None:
        self._batches.write_block(block)

    def finish(self) -> None:
        self._batches.flush()
        self._write_group()
        self._writer.close()

    def release(self) -> None:
        self._tap.shut()
        self._writer.close()

    def _take(self, batch: Any) -> None:
        """Put one more batch into the group."""
        held = [*self._group, batch]
        if self._group and sum(map(_tokens, held)) > MAX_TOKENS:
            self._write_group()
        self._group.append(batch)
        if sum(map(len, self._group)) >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group), GROUP_ROWS)
            self._group.clear()


def _tokens(batch: Any) -> int:
    return len(batch.column("token_ids").flatten())


def open_writer(file: BinaryIO) -> ParquetWriter:
    """A writer into an open file."""
    return ParquetWriter(file)
