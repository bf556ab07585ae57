"""Scoring a stored run again: what is scored, by whom, and that nothing else changes."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from rollbook.audit import audit
from rollbook.export import export
from rollbook.run import keep, report, rescore, scored_by, what_if
from rollbook.store import RunReader, RunWriter
from rollbook.trace import EndingRules, Reason, Score, ScoringStatus, facts
from tests.run.judged import WORKED_EXAMPLE, Attempt, Scores, judged


@pytest.fixture(autouse=True)
def scores(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the environment says now."""
    now: dict[str, float] = {}
    monkeypatch.setattr(Scores, "rewards", now)
    return now


PAIR = [Attempt(member=0, reward=1.0, turn=0.25), Attempt(member=1, reward=0.0)]


def test_a_changed_scorer_changes_rewards_and_with_them_the_advantages(
    tmp_path: Path, scores: dict[str, float]
) -> None:
    source = judged(tmp_path / "run", PAIR, group=2)
    scores |= {PAIR[0].rollout: 0.0, PAIR[1].rollout: 3.0}
    again = rescore(source, Scores, EndingRules())
    assert (again.same, again.changed, again.gained, again.lost, again.failed, again.not_scored) == (0, 2, 0, 0, 0, 0)
    assert again.rewards[PAIR[0].rollout].turn_rewards[0].value == 0.25, "what the environment gave in passing stays"
    before = [(trace.id, trace.reward) for trace in source.traces()]
    found = what_if(source, rewards=again.rewards)
    assert keep(source, found.verdict, again.rewards) == 1
    assert [(trace.id, trace.reward) for trace in source.traces()] == before, "a sealed trace never changes"

    notes = source.annotations()
    assert facts.advantages(notes)[PAIR[1].rollout].advantage == 1.5
    groups = report(source).groups
    assert (groups[0].mean, [row.reward for row in groups[0].members]) == (1.5, [0.0, 3.0])
    assert audit(source)["zero_variance"].value == 0.0
    export(source, "jsonl", tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    assert '"reward":3.0' in text.replace(" ", "")
    assert '"advantage":1.5' in text.replace(" ", "")


def test_only_what_the_rules_score_is_scored(tmp_path: Path, scores: dict[str, float]) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    scores |= {each.rollout: each.reward or 0.0 for each in WORKED_EXAMPLE}
    again = rescore(source, Scores, EndingRules())
    assert (again.same, again.not_scored) == (6, 2)
    assert WORKED_EXAMPLE[6].rollout not in again.rewards
    wider = rescore(source, Scores, EndingRules({Reason.SANDBOX_LOST: Score()}))
    assert (wider.same, wider.gained, wider.not_scored) == (6, 2, 0)


def test_a_scorer_that_fails_takes_the_reward_and_never_gives_zero(tmp_path: Path, scores: dict[str, float]) -> None:
    source = judged(tmp_path / "run", PAIR, group=2)
    scores |= {PAIR[0].rollout: 1.0}
    again = rescore(source, Scores, EndingRules())
    assert (again.same, again.lost, again.failed) == (1, 1, 1)
    failed = again.rewards[PAIR[1].rollout]
    assert (failed.total, failed.status) == (None, ScoringStatus.FAILED)
    assert PAIR[1].rollout in failed.reason
    found = what_if(source, rewards=again.rewards)
    keep(source, found.verdict, again.rewards)
    assert facts.dispositions(source.annotations())[PAIR[1].rollout].rule == "scoring failed"
    assert facts.advantages(source.annotations())[PAIR[1].rollout].advantage is None


def test_what_a_scorer_does_to_a_trace_is_lost(tmp_path: Path) -> None:
    class Rude(Scores):
        async def score(self, trace: object) -> float:
            trace.head.task.data["seen"] = True  # type: ignore[attr-defined]
            trace.calls.clear()  # type: ignore[attr-defined]
            return 1.0

    source = judged(tmp_path / "run", PAIR, group=2)
    again = rescore(source, Rude, EndingRules())
    assert (again.failed, again.same, again.changed) == (0, 1, 1)


def test_the_environment_and_its_options_are_the_runs_own(tmp_path: Path, scores: dict[str, float]) -> None:
    source = judged(tmp_path / "run", PAIR, group=2, options={"extra": 0.5})
    known = scored_by(source)
    assert known is not None
    assert (known.environment, known.options, known.limits.score_timeout) == ("test-scores", {"extra": 0.5}, 60.0)
    scores |= {each.rollout: 0.0 for each in PAIR}
    again = rescore(source, functools.partial(Scores, **known.options), EndingRules())
    assert {each.total for each in again.rewards.values()} == {0.5}
    with RunWriter.create(tmp_path / "imported", {}):
        pass
    assert scored_by(RunReader(tmp_path / "imported")) is None


def test_groups_that_are_open_are_left_to_the_run(tmp_path: Path, scores: dict[str, float]) -> None:
    source = judged(tmp_path / "run", PAIR, group=2, close=False)
    again = rescore(source, Scores, EndingRules())
    assert (again.rewards, again.not_scored) == ({}, 2)


def test_scoring_twice_counts_from_what_counts_now(tmp_path: Path, scores: dict[str, float]) -> None:
    source = judged(tmp_path / "run", PAIR, group=2)
    scores |= {PAIR[0].rollout: 5.0, PAIR[1].rollout: 0.0}
    first = rescore(source, Scores, EndingRules())
    keep(source, what_if(source, rewards=first.rewards).verdict, first.rewards)
    second = rescore(source, Scores, EndingRules())
    assert (second.same, second.changed) == (2, 0)
    assert keep(source, what_if(source, rewards=second.rewards).verdict, second.rewards) == 2
    assert facts.rewards(source.annotations())[PAIR[0].rollout].total == 5.0
