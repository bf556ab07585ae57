"""Explanations of a stored run: what its export would do, and with whom a rollout was compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.rewards import advantages, annotate, dispositions
from rollbook.run import open_run
from rollbook.run.explain import explain, sharing
from rollbook.store import RunWriter
from rollbook.trace import Reason, Trace
from tests.export.build import end, sound, start, turn


def stored(folder: Path, *traces: Trace, judged: bool = True) -> Path:
    with RunWriter.create(folder) as writer:
        for trace in traces:
            writer.seal(trace)
        if judged:
            writer.annotate(annotate(dispositions(traces)))
            writer.annotate(advantages(traces).annotations())
    return folder


def forked(rollout: str) -> Trace:
    """Two branches that share a turn."""
    return end(turn(turn(turn(start(rollout), (10, 11)), (12,)), (13,), parent=1))


def test_an_advantage_is_told_with_its_members(tmp_path: Path) -> None:
    lost = end(turn(start("lost")), Reason.HARNESS, reward=None)
    told = explain(open_run(stored(tmp_path / "run", sound("a"), sound("b", reward=0.0), lost)), "a")
    assert told.advantage is not None
    assert (told.advantage.advantage, told.advantage.baseline) == (0.5, 0.5)
    assert (told.advantage.scheduled, told.advantage.used) == (3, 2)
    rows = {each.rollout: (each.reward, each.advantage) for each in told.advantage.members}
    assert rows == {"a": (1.0, 0.5), "b": (0.0, -0.5), "lost": (None, None)}
    fates = {each.rollout: each.disposition for each in told.advantage.members}
    assert fates["lost"] is not None
    assert fates["lost"].startswith("dropped by 'harness")
    assert told.decided == "recorded"
    assert told.lost == {}


def test_what_has_no_vote_is_told_token_by_token(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run", end(turn(start("lost")), Reason.HARNESS, reward=None), judged=False)
    told = explain(open_run(folder), "lost")
    (branch,) = told.branches
    assert [span.reason for span in branch.spans] == ["content", "scaffold", "no_vote"]
    assert (branch.loss, branch.trained, branch.weight) == ("no_vote", 0, None)
    assert (told.decided, told.advantage, told.lost) == ("rules", None, {"no_vote": 2})
    assert set(told.reasons) == {"content", "scaffold", "no_vote"}


def test_one_branch_alone_and_weights(tmp_path: Path) -> None:
    source = open_run(stored(tmp_path / "run", forked("a")))
    told = explain(source, "a")
    assert [branch.weight for branch in told.branches] == [3 / 4, 1 / 4]
    (branch,) = explain(source, "a", 1).branches
    assert branch == told.branches[1]
    assert [span.owner for span in branch.spans if span.reason == "other_branch"] == [0]
    assert explain(source, "a", max_tokens=3).lost == {"over_length": 4}
    with pytest.raises(UsageError, match="no branch 2; it has 2"):
        explain(source, "a", 2)
    with pytest.raises(KeyError):
        explain(source, "b")


def test_a_trace_without_ids_is_refused(tmp_path: Path) -> None:
    trace = end(start("t", tokens=True))
    bare = Trace(start("t", tokens=False).head)
    bare.end(trace.tail.ending)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no token ids"):
        explain(open_run(stored(tmp_path / "run", bare, judged=False)), "t")


def test_sharing_within_rollouts_and_groups(tmp_path: Path) -> None:
    source = open_run(stored(tmp_path / "run", forked("a"), sound("b", ids=(10, 20)), sound("c", ids=(7,))))
    found = sharing(source)
    lengths = (8, 8, 6, 5)
    assert (found.within_rollouts.sequences, found.within_rollouts.flat_tokens) == (4, sum(lengths))
    assert found.within_rollouts.tree_tokens == sum(lengths) - 7
    assert found.within_groups.tree_tokens == sum(lengths) - 7 - 5 - 4
    assert found.to_dict()["within_groups"]["saved"] == pytest.approx(16 / 27)
    assert np.isfinite(found.within_rollouts.saved)  # type: ignore[arg-type]
