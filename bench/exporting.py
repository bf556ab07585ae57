"""Samples of a stored run in each form that a trainer reads, beside plain decompression of the same sections.

The run is made of a few hundred rollouts, each stored many times under other ids: 4 to 8 turns, about 2.9k tokens of
random ids and logprobs, which no compressor shrinks, with real text beside them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import zstandard

from bench.clock import cpu_of
from bench.corpus import Corpus
from bench.effort import Effort
from bench.rows import At, Of, Peer, Row, Target
from bench.synthetic import Maker
from rollbook.export import FORMS, export
from rollbook.store import RunReader, RunWriter
from rollbook.store.folder import segment_files
from rollbook.store.frame import SectionRow
from rollbook.store.scan import open_frames
from rollbook.store.segment import SegmentReader
from rollbook.trace import MessageGraph, Trace

__all__ = ["measure_exports"]

FLAT = ("arrow", "parquet")
"""Forms of flat arrays, which are wished to keep half the speed of decompression."""
TURNS = range(4, 9)
KINDS = 200
"""Different rollouts."""


def measure_exports(corpus: Corpus, folder: Path, effort: Effort) -> list[Row]:
    """Samples a second and bytes a token, one pair of rows a form."""
    run = folder / "exported"
    tokens = _store(corpus, run, effort.exported)
    sections = _sections(run)
    floor = effort.exported / min(cpu_of(lambda: _decompress(sections)) for _ in range(effort.export_repeats))
    rows: list[Row] = []
    for form in FORMS:
        out = folder / f"out.{form}"
        spent = min(
            cpu_of(lambda form=form, out=out: export(RunReader(run), form, out, overwrite=True))
            for _ in range(effort.export_repeats)
        )
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
        out.unlink()
    return rows


def _store(corpus: Corpus, run: Path, rollouts: int) -> int:
    """Fill a run; returns its tokens."""
    kinds = [_trace(corpus, number) for number in range(min(KINDS, rollouts))]
    tokens = 0
    with RunWriter.create(run) as writer:
        for number in range(rollouts):
            kind = kinds[number % len(kinds)]
            names = {"rollout": f"{number // 8:06d}-{number % 8}", "group": f"{number // 8:06d}", "member": number % 8}
            trace = replace(kind, head=msgspec.structs.replace(kind.head, **names))
            writer.seal(trace)
            tokens += len(trace.graph.tokens)
    return tokens


def _trace(corpus: Corpus, number: int) -> Trace:
    """A rollout of `Maker` with random ids and other lengths."""
    rng = np.random.default_rng(number)
    made = Maker(corpus, turns=int(rng.choice(TURNS))).trace(number)
    graph = MessageGraph()
    for node in made.graph:
        ids = rng.integers(0, 150_000, len(node.token_ids), dtype=np.int32)
        graph.add(
            node.message,
            parent=node.parent,
            origin=node.origin,
            token_ids=ids,
            runs=node.runs,
            logprobs=node.logprobs,
            versions=node.versions,
            segments=node.segments,
        )
    return replace(made, graph=graph)


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
    descriptors = {path: os.open(path, os.O_RDONLY) for path, _ in sections}
    for path, rows in sections:
        for offset, row in rows:
            decompress(os.pread(descriptors[path], row.stored, offset))
    for descriptor in descriptors.values():
        os.close(descriptor)
