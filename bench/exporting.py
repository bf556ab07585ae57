"""Samples of a stored run in each form that a trainer reads, beside plain decompression of the same sections.

The run is made of a few hundred rollouts as `Maker` makes them, each stored many times under other ids.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from bench.clock import cpu_of
from bench.effort import Effort
from bench.rows import At, Of, Peer, Row, Target
from bench.synthetic import Maker
from rollbook.export import FORMS, export
from rollbook.store import RunReader, RunWriter, StoreOptions, Sync
from rollbook.store.folder import numbered_path, segment_files
from rollbook.store.frame import Codec, FrameKind, Packer, SectionId, SectionRow
from rollbook.store.scan import open_frames
from rollbook.store.segment import PART_SECTIONS, PackedTrace, SegmentReader, SegmentWriter
from rollbook.trace import Trace, summarise
from rollbook.trace.wire import encode_part, encode_record, encode_tail

__all__ = ["measure_exports"]

# pyarrow comes without types
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

FLAT = ("arrow", "parquet")
"""Forms of flat arrays, which are wished to keep half the speed of decompression."""
KINDS = 200
"""Different rollouts."""
PARQUET_REPEATS = 9


def measure_exports(maker: Maker, folder: Path, effort: Effort) -> list[Row]:
    """Samples a second and bytes a token, one pair of rows a form."""
    run = folder / "exported"
    tokens = _store(maker, run, effort.exported)
    sections = _sections(run)
    floor = effort.exported / min(cpu_of(lambda: _decompress(sections)) for _ in range(effort.export_repeats))
    rows: list[Row] = []
    for form in FORMS:
        out = folder / f"out.{form}"
        spent = min(_export(run, form, out) for _ in range(effort.export_repeats))
        how = (
            f"{effort.exported:,} rollouts of {tokens / effort.exported:,.0f} tokens, least of {effort.export_repeats}"
        )
        rows += [
            Row(
                name=f"export to {form}",
                value=effort.exported / spent,
                unit="samples/s",
                how=how,
                target=Target(limit=0.5, at=At.LEAST, of=Of.RATIO) if form in FLAT else None,
                peer=Peer("plain decompression of the same sections", floor),
            ),
            Row(name=f"size in {form}", value=out.stat().st_size / tokens, unit="bytes/token", how="the whole file"),
        ]
        if form == "arrow":
            rows.append(_pyarrow_alone(out, floor))
        out.unlink()
    return rows


def _export(run: Path, form: str, out: Path) -> float:
    out.unlink(missing_ok=True)
    return cpu_of(lambda: export(RunReader(run), form, out, overwrite=True))


def _pyarrow_alone(out: Path, floor: float) -> Row:
    """What Parquet costs when everything else is done: its columns lie ready in memory, and nothing is compressed."""
    with pa.ipc.open_stream(out) as stream:
        batch = stream.read_next_batch()
    table = pa.Table.from_batches([batch])
    spent = min(
        cpu_of(lambda: pq.write_table(table, pa.BufferOutputStream(), compression="none", use_dictionary=False))
        for _ in range(PARQUET_REPEATS)
    )
    return Row(
        name="pyarrow alone: parquet",
        value=len(batch) / spent,
        unit="samples/s",
        how="the same columns from memory into memory, not compressed: the most that an export can reach",
        peer=Peer("plain decompression of the same sections", floor),
    )


class _Clones(Packer):
    """A packer that compresses a section once, however many traces have it."""

    def __init__(self) -> None:
        super().__init__()
        self._compress = lru_cache(maxsize=None)(self._compress)


def _store(maker: Maker, run: Path, rollouts: int) -> int:
    """Fill a run with traces that differ in their names and share all else with one of the kinds; returns its
    tokens."""
    kinds = [_Kind(maker.trace(number)) for number in range(min(KINDS, rollouts))]
    packer, tokens = _Clones(), 0
    RunWriter.create(run).close()
    segment = SegmentWriter(
        numbered_path(run, "segments", "bench", 1, "seg"), "bench", StoreOptions(sync=Sync.NONE), packer
    )
    for number in range(rollouts):
        kind = kinds[number % len(kinds)]
        name = f"{number // 8:06d}-{number % 8}"
        segment.append(name, kind.named(packer, rollout=name, group=name[:6], member=number % 8))
        tokens += kind.tokens
    segment.seal()
    segment.close()
    return tokens


class _Kind:
    """One rollout, encoded."""

    def __init__(self, trace: Trace) -> None:
        self._head, self._summary, self.tokens = trace.head, summarise(trace), len(trace.graph.tokens)
        self._rest = [
            *((PART_SECTIONS[name], Codec.ZSTD, raw) for name, raw in encode_part(trace).items()),
            (SectionId.TAIL, Codec.ZSTD, encode_tail(trace)),
        ]

    def named(self, packer: Packer, **names: Any) -> PackedTrace:
        """Its frame under another name."""
        head = encode_record(msgspec.structs.replace(self._head, **names))
        summary = encode_record(msgspec.structs.replace(self._summary, **names))
        return packer.pack(FrameKind.TRACE, summary, [(SectionId.HEAD, Codec.ZSTD, head), *self._rest]), summary


def _sections(run: Path) -> list[tuple[Path, list[tuple[int, SectionRow]]]]:
    """For each trace its file, and offset and row of each of its sections."""
    found: list[tuple[Path, list[tuple[int, SectionRow]]]] = []
    for path in segment_files(run):
        with open_frames(path) as file:
            for entry in SegmentReader(path).entries():
                frame = file.frame_at(entry.offset)
                found.append((path, [(entry.offset + row.offset, row) for row in frame.sections.values()]))
    return found


def _decompress(sections: list[tuple[Path, list[tuple[int, SectionRow]]]]) -> None:
    decompress = zstandard.ZstdDecompressor().decompress
    descriptors = {path: os.open(path, os.O_RDONLY) for path in {path for path, _ in sections}}
    for path, rows in sections:
        for offset, row in rows:
            decompress(os.pread(descriptors[path], row.stored, offset))
    for descriptor in descriptors.values():
        os.close(descriptor)
