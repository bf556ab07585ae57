"""The benchmark runs and writes what it says. Its figures are no test."""

from __future__ import annotations

import json

import pytest
from bench.__main__ import main
from bench.report import marks, replace_table, table
from bench.rows import At, Of, Peer, Row, Target

from tests.conftest import CACHE

BEGIN, END = marks("bench")
ROWS = {
    "import rollbook",
    "CPU per turn, turn 4",
    "CPU per turn over HTTP, 1 in flight",
    "CPU per turn over HTTP, 8 in flight",
    "the bare client, 8 in flight",
    "CPU per turn, turn 400 beside turn 4",
    "rollouts with 5 ms CPU per turn, two workers",
    "64 rollouts in flight, at once",
    "64 rollouts in flight, lag of the loop",
    "a tool chat of 20 turns, rendered and read",
    "a tool chat of 20 turns, rendered and read, beside bridges",
    "reading a reply of 500 tokens, half of it calls",
    "memory per token, by the graph",
    "samples from memory",
    "write one rollout, sealed",
    "durable turn, on top of it",
    "read one rollout",
}


def test_a_quick_run_writes_the_table_and_well_formed_json(tmp_path, capsys, smollm2):
    document, out = tmp_path / "page.md", tmp_path / "new" / "bench.json"
    document.write_text(f"above\n{BEGIN}\nthe table before\n{END}\nbelow\n")
    assert main(["--quick", "--json", str(out), "--docs", str(document), "--cache", str(CACHE)]) == 0
    result = json.loads(out.read_text())
    assert {row["name"] for row in result["rows"]} >= ROWS
    for row in result["rows"]:
        assert row["value"] > 0
        assert row["how"]
        assert (row["met"] is None) == (row["target"] is None)
        assert (row["ratio"] is None) == (row["peer"] is None)
    assert result["quick"] is True
    assert result["machine"]["cpu"]
    assert result["versions"]["numpy"]
    page = document.read_text()
    assert page.startswith("above\n")
    assert page.endswith("\nbelow\n")
    assert "the table before" not in page
    assert "| samples from memory " in page
    assert "| samples from memory " in capsys.readouterr().out


def test_one_part_has_a_table_of_its_own(tmp_path, smollm2):
    document, out = tmp_path / "page.md", tmp_path / "part.json"
    first, last = marks("exports")
    document.write_text(f"{BEGIN}\nall\n{END}\n{first}\n{last}\n")
    words = ["--quick", "--part", "exports", "--json", str(out), "--docs", str(document), "--cache", str(CACHE)]
    assert main(words) == 0
    assert {row["name"].split()[0] for row in json.loads(out.read_text())["rows"]} == {"export", "size", "pyarrow"}
    page = document.read_text()
    assert page.startswith(f"{BEGIN}\nall\n{END}\n{first}\n")
    assert "| export to arrow " in page


def made(value: float, **fields: object) -> Row:
    return Row(name="a row", value=value, unit="ms", how="once", **fields)


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (made(1.0), None),
        (made(1.0, target=Target(limit=1.0)), True),
        (made(1.1, target=Target(limit=1.0)), False),
        (made(1.1, target=Target(limit=1.0, at=At.LEAST)), True),
        (made(3.0, target=Target(limit=1.3, of=Of.RATIO), peer=Peer("a peer", 2.0)), False),
        (made(3.0, target=Target(limit=1.3, of=Of.RATIO), peer=Peer("a peer", 3.0)), True),
    ],
)
def test_a_target_is_met_or_missed_or_not_set(row, met):
    assert row.met is met
    assert ("NO" in table([row])) == (met is False)


def test_a_ratio_needs_a_peer():
    with pytest.raises(ValueError, match="needs a peer"):
        _ = made(1.0, target=Target(limit=1.0, of=Of.RATIO)).met


def test_a_document_without_markers_is_refused(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("no place\n")
    with pytest.raises(ValueError, match="no markers"):
        replace_table(path, "table")
    assert path.read_text() == "no place\n"
