"""The comparison of two sides, with ours as both: its figures are no test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.effort import QUICK
from bench.peers.compare import Pair, check_same, measure_peers

ITSELF = Pair(name="rollbook", side="ours_side.py", dialect="sglang", times=2.0)


def test_both_sides_of_a_pair_do_the_same_work() -> None:
    rows, said = measure_peers({"rollbook": Path(sys.executable)}, QUICK, [ITSELF])
    assert [row.name for row in rows] == ["CPU per turn beside rollbook, 3 turns, 2 in flight"]
    assert rows[0].peer is not None
    (sides,) = said.values()
    for side in (sides["ours"], sides["theirs"]):
        assert side["batch"]["turns"] == side["batch"]["tool_calls"] == 6
        assert side["batch"]["prompts"] > side["batch"]["sampled"] > 0
        assert side["versions"]["rollbook"]
        assert len(side["cpu_seconds"]) == QUICK.peers_repeats * QUICK.peers_processes


@pytest.mark.parametrize(("what", "other"), [("turns", 5), ("tool_calls", 0), ("sampled", 900), ("prompts", 10_000)])
def test_other_work_is_an_error(what: str, other: int) -> None:
    batch = {"turns": 6, "tool_calls": 6, "sampled": 1000, "prompts": 9000}
    check_same(ITSELF, {"batch": batch}, {"batch": {**batch, "sampled": 1040}})
    with pytest.raises(RuntimeError, match="rollbook"):
        check_same(ITSELF, {"batch": batch}, {"batch": {**batch, what: other}})
