"""The samples of a recorded batch are those that an export writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rollbook.export import export, open_door, recorded_samples
from rollbook.trace import Annotation, MessageGraph
from tests.export.build import batch, end, sound, start


def decided(rollout: str, fate: str) -> Annotation:
    return Annotation(rollout=rollout, name="disposition", producer="me", value={"fate": fate, "rule": "mine"})


def test_the_samples_are_those_of_an_export(tmp_path: Path) -> None:
    text = end(replace(start("r3", tokens=False), graph=MessageGraph()))
    source = batch([sound("r0"), sound("r1", reward=None), sound("r2", ids=(7, 8, 9)), text])
    source.annotate([decided("r2", "dropped")])
    export(source, "jsonl", tmp_path / "out")
    (row,) = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    (sample,) = recorded_samples(source)
    assert (sample.rollout, sample.reward) == (row["rollout"], row["reward"]) == ("r0", 1.0)
    assert sample.token_ids.tolist() == row["token_ids"]
    (record,) = open_door("slime").records(list(recorded_samples(source)))
    assert record["tokens"] == row["token_ids"]


def test_a_snapshot_takes_the_place_of_what_is_there_now() -> None:
    source = batch([sound("r0")])
    source.annotate([decided("r0", "masked")])
    assert list(recorded_samples(source)) == []
    assert len(list(recorded_samples(source, annotations=[]))) == 1
    assert list(recorded_samples(source, annotations=[], max_tokens=3)) == []
