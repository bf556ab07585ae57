"""The samples of a recorded batch are those that an export writes."""

from __future__ import annotations

import json
from pathlib import Path

from rollbook.export import export, open_door, recorded_samples
from rollbook.trace import Annotation, Disposition, Fate
from tests.export.build import batch, end, sound, start, turn


def test_the_samples_are_those_of_an_export(tmp_path: Path) -> None:
    source = batch([sound("r0"), sound("r1", reward=None), sound("r2", ids=(7, 8, 9)), end(turn(start("r3", tokens=False)))][:3])
    source.annotate([Annotation(rollout="r2", name="disposition", producer="me", step=0, value={"fate": "dropped", "rule": "mine"})])
    export(source, "jsonl", tmp_path / "out", advantages={"r0": 0.5})
    (row,) = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    (sample,) = recorded_samples(source)
    assert (sample.rollout, sample.token_ids.tolist()) == (row["rollout"], row["token_ids"]) == ("r0", [0, 1, 2, 99, 10, 11])
    assert Disposition(Fate.DROPPED, "mine").votes is False


def test_a_snapshot_takes_the_place_of_what_is_there_now() -> None:
    source = batch([sound("r0")])
    source.annotate([Annotation(rollout="r0", name="disposition", producer="me", step=0, value={"fate": "masked", "rule": "mine"})])
    assert list(recorded_samples(source)) == []
    assert len(list(recorded_samples(source, annotations=[]))) == 1
    assert list(recorded_samples(source, annotations=[], max_tokens=3)) == []


def test_a_rollout_without_token_ids_gives_none() -> None:
    source = batch([sound("r0")])
    text = start("r1", tokens=True)
    source.seal(end(turn(text)))
    assert [sample.rollout for sample in recorded_samples(source)] == ["r0", "r1"]
    (first, second) = open_door("slime").records(list(recorded_samples(source)))
    assert (first["rollout_id"], second["rollout_id"]) == (0, 1)
