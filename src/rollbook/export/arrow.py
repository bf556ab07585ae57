"""Arrow: an uncompressed stream of record batches, fields as in `rollbook.export.fields`, columns as in
`rollbook.export.columnar`. ``datasets.Dataset.from_file`` and ``pyarrow.ipc.open_stream`` map it without a copy.

Rule: ``reward_parts`` is a list of (part, value), for not every reader of Arrow knows maps.
"""

from __future__ import annotations

import importlib
from typing import Any, BinaryIO

from rollbook.export.columnar import Batches
from rollbook.export.columns import schema
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["SCHEMA", "ArrowWriter", "open_writer"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")

SCHEMA: Any = schema(maps=False)
"""The pyarrow schema of the stream."""


class ArrowWriter:
    """Writes record batches; holds the samples of one at most."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream: Any = pa.ipc.new_stream(pa.PythonFile(file, mode="w"), SCHEMA)
        self._batches = Batches(SCHEMA, self._stream.write_batch)

    def write(self, sample: Sample) -> None:
        self._batches.write(sample)

    def write_block(self, block: SampleBlock) -> None:
        self._batches.write_block(block)

    def finish(self) -> None:
        self._batches.flush()
        self._stream.close()

    def release(self) -> None:
        pass


def open_writer(file: BinaryIO) -> ArrowWriter:
    """A writer into an open file."""
    return ArrowWriter(file)
