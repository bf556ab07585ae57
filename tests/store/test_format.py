"""The stand-alone reader in docs, which imports nothing of ours, gives the same samples bit for bit."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
import pytest

from rollbook.store import RunReader, RunWriter
from rollbook.store.folder import Manifest
from rollbook.store.scan import FileHeader
from rollbook.trace import (
    Agent,
    Annotation,
    Call,
    Edge,
    Ending,
    ErrorNote,
    FinalState,
    Fork,
    Mark,
    Message,
    NodeRef,
    PolicyRecord,
    Sampling,
    Scoring,
    Summary,
    Task,
    TimeSplit,
    ToolCall,
    ToolSpec,
    Trace,
    TraceHead,
    TraceTail,
    TurnReward,
)
from rollbook.trace.node import NodeText
from tests.store.made import TEXTS, add_turn, finish, new_trace, sample_bits, whole_trace

SCRIPT = Path(__file__).parents[2] / "docs" / "read_segment.py"
ARRAYS = ("token_ids", "sampled", "loss_mask", "logprobs", "policy_version", "turn_id")


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_segment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def various_traces() -> list[Trace]:
    traces = [whole_trace(f"r{seed}", seed, turns=4) for seed in range(7)]
    demoted = new_trace("demoted", 1)
    add_turn(demoted, 1)
    demoted.graph.mark(1, Mark.DEMOTED)
    add_turn(demoted, 1)
    judge = new_trace("judge", 2, agent=Agent(name="j", trainable=False))
    add_turn(judge, 2)
    frozen = new_trace("frozen", 2, policies=(PolicyRecord(name="f", trainable=False),))
    add_turn(frozen, 2)
    return [*traces, *map(finish, (demoted, judge, frozen)), whole_trace("lone \ud800", 2)]


def test_same_samples(tmp_path: Path) -> None:
    script = load_script()
    traces = various_traces()
    with RunWriter.create(tmp_path / "run") as writer:
        for trace in traces:
            writer.seal(trace)
    (segment,) = (tmp_path / "run" / "segments").iterdir()
    rows: list[dict[str, Any]] = list(script.read_segment(str(segment)))
    reader = RunReader(tmp_path / "run")
    assert [row["summary"]["rollout"] for row in rows] == [trace.id for trace in traces]
    for trace, row in zip(traces, rows, strict=True):
        found = [tuple(sample[name].tobytes() for name in ARRAYS) for sample in script.samples(row)]
        assert found == sample_bits(reader.get(trace.id)) == sample_bits(trace)
    assert any(not sample_bits(trace) for trace in traces)


def test_same_text(tmp_path: Path) -> None:
    script = load_script()
    trace = whole_trace("r", 2, turns=8)
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(trace)
    (segment,) = (tmp_path / "run" / "segments").iterdir()
    (row,) = script.read_segment(str(segment))
    texts = [node["message"].get("content", "") for node in row["text"]["nodes"]]
    assert texts == [message.content for message in trace.graph.messages]
    assert TEXTS[2] in texts
    assert row["head"]["task"]["data"] == msgspec.to_builtins(trace.head.task.data)


def test_damage_stops_it(tmp_path: Path) -> None:
    script = load_script()
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(whole_trace("r"))
    (segment,) = (tmp_path / "run" / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)
    with pytest.raises(SystemExit, match="damaged"):
        list(script.read_segment(str(segment)))


def test_its_command_line_reads_several_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They may come in any order, as a shell sorts them; the higher number counts where a rollout is in both."""
    script = load_script()
    for index, rollouts in enumerate((("g-0", "g-1"), ("g-1", "g-2"))):
        with RunWriter.create(tmp_path / f"run-{index}") as writer:
            for rollout in rollouts:
                writer.seal(whole_trace(rollout, 7, turns=2 + index))
        (segment,) = (tmp_path / f"run-{index}" / "segments").iterdir()
        segment.rename(tmp_path / f"w-{9 + index}.seg")
    late, early = str(tmp_path / "w-10.seg"), str(tmp_path / "w-9.seg")
    script.main([late, early])
    together = capsys.readouterr().out
    assert [line.split()[0] for line in together.splitlines() if line[0] != " "] == ["g-0", "g-1", "g-2"]
    script.main([late, early, "g-1"])
    one = capsys.readouterr().out
    script.main([late, "1"])
    assert one == capsys.readouterr().out
    script.main([early, "1"])
    assert one != capsys.readouterr().out
    assert one in together


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "RUN|FILE.seg..."),
        (["x.seg", "a", "b"], "FILE.seg..."),
        (["x.seg"], "x.seg: No such file"),
        (["w-0.seg", "9"], "no rollout with '9' in its id"),
    ],
)
def test_its_command_line_says_what_is_wrong(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RunWriter.create("run") as writer:
        writer.seal(whole_trace("r"))
    (segment,) = Path("run/segments").iterdir()
    segment.rename("w-0.seg")
    with pytest.raises(SystemExit, match=re.escape(says)):
        load_script().main(words)


def test_it_stands_alone() -> None:
    source = SCRIPT.read_text()
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for name in node.names
    } | {str(node.module).split(".")[0] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    theirs = {"msgspec", "numpy", "zstandard"}
    assert imported <= {"json", "struct", "sys", "zlib", "collections", "pathlib", "typing"} | theirs
    assert len(source.splitlines()) <= 200


STORED = (
    *(
        Agent,
        Annotation,
        Call,
        Edge,
        Ending,
        ErrorNote,
        FileHeader,
        FinalState,
        Fork,
        Manifest,
        Message,
        NodeRef,
        NodeText,
    ),
    *(PolicyRecord, Sampling, Scoring, Summary, Task, TimeSplit, ToolCall, ToolSpec, TraceHead, TraceTail, TurnReward),
)


@pytest.mark.parametrize("kind", STORED)
def test_the_specification_names_every_field(kind: type[msgspec.Struct]) -> None:
    text = SCRIPT.with_name("trace-format.md").read_text()
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in text] == []


def test_everything_that_is_stored_is_held_to_that() -> None:
    def reached(kind: Any) -> set[type[msgspec.Struct]]:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            below = [field.type for field in msgspec.structs.fields(kind)]
            return {kind}.union(*map(reached, below))
        return set().union(*map(reached, get_args(kind)))

    roots = (TraceHead, TraceTail, NodeText, Call, Edge, Summary, Annotation, FileHeader, Manifest)
    assert set().union(*map(reached, roots)) == set(STORED)
