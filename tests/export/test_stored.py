"""An export of a stored run is, byte for byte, that of the same traces in memory, in every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook.errors import UsageError
from rollbook.export import FORMS, columnar, export
from rollbook.export.fields import block_scalars, scalars
from rollbook.store import RunReader, RunWriter
from rollbook.store.scan import open_frames
from rollbook.store.segment import SegmentReader
from rollbook.trace import Mark, Reason, Trace, TurnReward
from rollbook.trace.sample_block import stored_samples
from rollbook.trace.stored import open_stored
from tests.export.build import batch, end, sound, start, turn


def mixed() -> list[Trace]:
    """Plain traces with others between them, and two that give nothing."""
    forked = end(turn(turn(turn(start("forked"), (10, 11)), (12,)), (13,), parent=1))
    marked = turn(turn(start("marked"), (5, 6)), (7,))
    marked.graph.mark(1, Mark.DEMOTED)
    rewarded = turn(start("rewarded"), (1, 2))
    rewarded.score(1.0, {"a": 1.0}, (TurnReward(1, 0.5),))
    lost = end(turn(start("lost")), Reason.HARNESS)
    text = Trace(start("text", tokens=False).head)
    plain = [sound(f"p{place}", ids=range(place, place + 5), reward=0.1 * place) for place in range(40)]
    others = [forked, end(marked), end(rewarded, reward=None), lost, end(text)]
    return [*plain[:3], forked, *plain[3:21], *others[1:], *plain[21:]]


def stored(folder: Path, traces: list[Trace]) -> RunReader:
    with RunWriter.create(folder) as writer:
        for trace in traces:
            writer.seal(trace)
    return RunReader(folder)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("max_tokens", [None, 8])
def test_the_store_gives_the_same_file(tmp_path: Path, form: str, max_tokens: int | None) -> None:
    assert form in FORMS
    made = mixed()
    advantages = {"p1": 0.5, "forked": -0.5}
    reports = [
        export(source, form, tmp_path / name, advantages=advantages, max_tokens=max_tokens)
        for name, source in (("a", batch(made)), ("b", stored(tmp_path / "run", made)))
    ]
    first, second = ({**report.to_dict(), "out": ""} for report in reports)
    assert first == second
    assert (first["refused"], first["captured"]) == (
        {"no_token_ids": 1},
        first["trained"] + sum(first["lost"].values()),
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def versioned(place: int) -> Trace:
    """A plain trace; every third one does not say its version."""
    trace = turn(start(f"p{place}"), range(place % 9 + 1), version=place % 3 or None)
    return end(trace, reward=0.25 * place)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(("rows", "tokens"), [(64, 2_000_000), (7, 2_000_000), (64, 40)])
def test_batches_end_at_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, rows: int, tokens: int
) -> None:
    """Also where blocks are cut by batches, and where single traces stand between them."""
    monkeypatch.setattr(columnar, "MAX_ROWS", rows)
    monkeypatch.setattr(columnar, "MAX_TOKENS", tokens)
    made = [versioned(place) for place in range(200)]
    for place in (3, 90, 91):
        made.insert(place, end(turn(turn(turn(start(f"forked{place}"), (10, 11)), (12,)), (13,), parent=1)))
    turned = {"p5": {0: 0.5}, "p130": {0: -0.5}}
    for name, source in (("a", batch(made)), ("b", stored(tmp_path / "run", made))):
        export(source, form, tmp_path / name, advantages={"p5": 1.0}, turn_advantages=turned)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_block_has_the_scalars_of_its_samples(tmp_path: Path) -> None:
    made = [versioned(place) for place in range(5)]
    opened = [open_stored(each) for each in stored(tmp_path / "run", made).stored()]
    block = stored_samples([each for each in opened if each is not None], [0.5, None, -1.0, 0.0, None])
    assert block is not None
    rows = [scalars(sample) for sample in block.samples()]
    assert {name: list(column) for name, column in block_scalars(block).items()} == {
        name: [row[name] for row in rows] for name in rows[0]
    }


def test_an_advantage_of_a_block_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [sound("a"), sound("b")])
    with pytest.raises(UsageError, match="the advantage is nan"):
        export(run, "arrow", tmp_path / "out", advantages={"b": float("nan")})


def test_a_damaged_text_is_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stored(folder, [sound(f"p{place}") for place in range(3)])
    (segment,) = (folder / "segments").glob("*.seg")
    data = bytearray(segment.read_bytes())
    entry = SegmentReader(segment).entries()[1]
    with open_frames(segment) as file:
        row = file.frame_at(entry.offset).sections[2]
    data[entry.offset + row.offset] ^= 1
    segment.write_bytes(data)
    source = RunReader(folder)
    export(source, "jsonl", tmp_path / "out")
    rollouts = [json.loads(line)["rollout"] for line in (tmp_path / "out").read_text().splitlines()]
    assert rollouts == ["p0", "p2"]
    assert not source.report.clean


def test_advantages_of_turns_go_with_their_rows(tmp_path: Path) -> None:
    made = [sound("a"), sound("b")]
    for name, source in (("memory", batch(made)), ("stored", stored(tmp_path / "run", made))):
        export(source, "jsonl", tmp_path / name, advantages={"a": 1.0}, turn_advantages={"b": {0: 0.5}})
        rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert rows[0]["advantages"] is None
        assert rows[1]["advantages"] == [None, None, None, None, 0.5, 0.5]
