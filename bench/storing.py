"""Writing a run and reading it back, beside zstd and plain writes of the same bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import zstandard

from bench.clock import cpu_of, least
from bench.effort import Effort
from bench.rows import Peer, Row, Target
from bench.synthetic import TURNS, Maker
from rollbook.store import RunReader, RunWriter, StoreOptions
from rollbook.store.folder import journal_files, segment_files
from rollbook.store.frame import SectionId, SectionRow
from rollbook.store.scan import open_frames
from rollbook.store.segment import SegmentReader, find_footer
from rollbook.trace import Trace, samples
from rollbook.trace.wire import encode_head, encode_part, encode_tail

__all__ = ["measure_store"]

_LEVEL = StoreOptions().level


def measure_store(maker: Maker, folder: Path, effort: Effort) -> list[Row]:
    """All rows of the store."""
    run = folder / "sealed"
    rows = _sealed(maker, run, effort)
    rows += _turns(maker, folder / "journalled", effort)
    rows += _one(run, effort)
    return [*rows, _rewards(run, effort)]


def _sections(trace: Trace) -> list[bytes]:
    """What a sealed trace is, before it is compressed."""
    return [encode_head(trace), *encode_part(trace).values(), encode_tail(trace)]


def _sealed(maker: Maker, run: Path, effort: Effort) -> list[Row]:
    """CPU and size of whole rollouts, one at a time."""
    tries: list[float] = []
    floors: list[float] = []
    floor_bytes = 0
    with RunWriter.create(run) as writer:
        for first in range(0, effort.stored, effort.batch):
            traces = [maker.trace(number) for number in range(first, first + effort.batch)]
            sections = [_sections(trace) for trace in traces]
            compress = zstandard.ZstdCompressor(level=_LEVEL).compress
            tries.append(cpu_of(lambda traces=traces: [writer.seal(trace) for trace in traces]) / effort.batch)
            floors.append(
                cpu_of(lambda sections=sections, compress=compress: [list(map(compress, each)) for each in sections])
                / effort.batch
            )
            floor_bytes += sum(len(compress(b"".join(each))) for each in sections)
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    how = f"median of {len(tries)} batches of {effort.batch} rollouts"
    return [
        Row(
            name="write one rollout, sealed",
            value=1e3 * median(tries),
            unit="ms",
            how=how,
            target=Target(limit=0.6),
            peer=Peer(f"zstd-{_LEVEL} of its sections", 1e3 * median(floors)),
        ),
        Row(
            name="size of one rollout",
            value=size / effort.stored / 1e3,
            unit="kB",
            how=f"the run's folder over its {effort.stored} rollouts",
            target=Target(limit=40.0),
            peer=Peer(f"one zstd-{_LEVEL} frame of it all", floor_bytes / effort.stored / 1e3),
        ),
    ]


def _turns(maker: Maker, run: Path, effort: Effort) -> list[Row]:
    """CPU of making each finished turn durable, which comes on top of the sealed write."""
    tries: list[float] = []
    with RunWriter.create(run, options=StoreOptions(journal_bytes=1 << 40)) as writer:
        for number in range(effort.journalled):
            trace = maker.started(number)
            spent = cpu_of(lambda trace=trace: writer.begin(trace))
            for _ in maker.grow(trace, number):
                spent += cpu_of(lambda trace=trace: writer.turn(trace))
            tries.append(spent / TURNS)
        size = sum(path.stat().st_size for path in journal_files(run)) // (effort.journalled * TURNS)
    return [
        Row(
            name="durable turn, on top of it",
            value=1e3 * median(tries),
            unit="ms",
            how=f"median of {effort.journalled} rollouts of {TURNS} turns, their start included",
            target=Target(limit=0.15),
            peer=Peer(f"one write of {size / 1e3:.1f} kB", 1e3 * _bare_write(run / "bare", size, effort)),
        )
    ]


def _bare_write(path: Path, size: int, effort: Effort) -> float:
    data, count = os.urandom(size), effort.journalled * TURNS
    with path.open("ab", buffering=0) as file:
        return cpu_of(lambda: [file.write(data) for _ in range(count)]) / count


def _one(run: Path, effort: Effort) -> list[Row]:
    """Reading single traces in random order, and their samples, with the index known."""
    reader = RunReader(run)
    chosen = np.random.default_rng(0).permutation(reader.rollouts())[: effort.reads].tolist()
    places = _places(run, chosen)
    reads: list[float] = []
    sampled: list[float] = []
    plain: list[float] = []
    for rollout in chosen:
        reads.append(1e3 * cpu_of(lambda rollout=rollout: reader.get(rollout)))
        sampled.append(1e3 * cpu_of(lambda rollout=rollout: samples(reader.get(rollout))))
        path, rows = places[rollout]
        plain.append(1e3 * cpu_of(lambda path=path, rows=rows: _decompress(path, rows)))
    how = f"median of {len(chosen)} traces in random order"
    peer = Peer("plain decompression of its sections", median(plain))
    return [
        Row(name="read one rollout", value=median(reads), unit="ms", how=how, target=Target(limit=0.6), peer=peer),
        Row(name="samples of one rollout, from the store", value=median(sampled), unit="ms", how=how, peer=peer),
    ]


def _places(run: Path, rollouts: Sequence[str]) -> dict[str, tuple[Path, list[tuple[int, SectionRow]]]]:
    """Rollout -> its file, and offset and row of each of its sections."""
    found: dict[str, tuple[Path, list[tuple[int, SectionRow]]]] = {}
    wanted = set(rollouts)
    for path in segment_files(run):
        with open_frames(path) as file:
            for entry in SegmentReader(path).entries():
                if entry.rollout in wanted:
                    frame = file.frame_at(entry.offset)
                    found[entry.rollout] = path, [(entry.offset + row.offset, row) for row in frame.sections.values()]
    return found


def _decompress(path: Path, rows: Sequence[tuple[int, SectionRow]]) -> list[bytes]:
    decompress = zstandard.ZstdDecompressor().decompress
    with path.open("rb", buffering=0) as file:
        return [decompress(os.pread(file.fileno(), row.stored, offset)) for offset, row in rows]


def _rewards(run: Path, effort: Effort) -> Row:
    """All rewards of a run that was just opened, from the summaries alone."""
    ours, floor = least(
        effort.repeats,
        lambda: [row.reward for row in RunReader(run).summaries()],
        lambda: _decode_footers(run),
    )
    return Row(
        name=f"all rewards of {effort.stored:,} rollouts",
        value=1e3 * ours,
        unit="ms",
        how=f"minimum of {effort.repeats}, the run opened anew each time",
        peer=Peer("untyped msgpack of the same rows", 1e3 * floor),
    )


def _decode_footers(run: Path) -> list[object]:
    found: list[object] = []
    for path in segment_files(run):
        with open_frames(path) as file:
            footer = find_footer(file)
            assert footer is not None
            rows: list[bytes] = msgspec.msgpack.decode(file.section(footer, SectionId.SUMMARIES))
            found += map(msgspec.msgpack.decode, rows)
    return found
