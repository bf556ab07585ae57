"""What other rules would make of a run, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.errors import ConfigError
from rollbook.rewards import Advantages, GroupAdvantages
from rollbook.rollout import GroupRules
from rollbook.run import Change, keep, read_rules, standing, what_if
from rollbook.run.closing_again import Judging, close_again
from rollbook.run.what_if import next_step, rules_from
from rollbook.store import RunReader, RunWriter
from rollbook.trace import (
    Annotation,
    Disposition,
    Drop,
    EndingKind,
    EndingRules,
    Fate,
    Mask,
    Penalize,
    Reason,
    Retry,
    Rule,
    Score,
    facts,
)
from tests.run.judged import WORKED_EXAMPLE, Attempt, judged


def test_errors_as_zero_on_the_worked_example(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    before = list(source.annotations())
    found = what_if(source, rules=rules_from({"error": {"reward": 0.0}}))
    values = found.verdict.values
    assert [values[each.rollout] for each in WORKED_EXAMPLE] == [0.625] * 3 + [-0.375] * 5
    assert (found.effect.rollouts, found.effect.changes) == (
        8,
        {Change.FLIPPED: 0, Change.VANISHED: 0, Change.APPEARED: 2, Change.RESIZED: 6, Change.SAME: 0},
    )
    assert found.effect.share(Change.APPEARED) == 0.25
    (lost,) = [row for row in found.effect.reasons if row.reason is Reason.SANDBOX_LOST]
    assert (lost.attempts, lost.before, lost.after, lost.changes) == (
        2,
        {"sandbox_lost: retry(2), no attempt left": 2},
        {"sandbox_lost: reward(0)": 2},
        {Change.APPEARED: 2},
    )
    assert source.annotations() == before, "nothing was written"


def test_a_sign_flips_where_errors_pull_the_mean_down(tmp_path: Path) -> None:
    attempts = [
        Attempt(member=0, reward=1.0),
        Attempt(member=1, reward=0.4),
        *(Attempt(member=place, reward=None, reason=Reason.SANDBOX_LOST) for place in (2, 3)),
    ]
    found = what_if(judged(tmp_path / "run", attempts, group=4), rules=rules_from({"error": {"reward": 0.0}}))
    assert found.verdict.values[attempts[1].rollout] == pytest.approx(0.05)
    assert (found.effect.changes[Change.FLIPPED], found.effect.share(Change.FLIPPED)) == (1, 0.25)


def test_dropping_lets_advantages_vanish(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    found = what_if(source, rules={Reason.MAX_TURNS: Drop()})
    assert found.verdict.values[WORKED_EXAMPLE[5].rollout] is None
    assert found.effect.changes == {
        Change.FLIPPED: 0,
        Change.VANISHED: 1,
        Change.APPEARED: 0,
        Change.RESIZED: 5,
        Change.SAME: 0,
    }
    same = what_if(source, rules={})
    assert same.effect.changes[Change.SAME] == same.effect.rollouts == 6
    assert same.verdict.dispositions == facts.dispositions(source.annotations())


def test_another_estimator(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    found = what_if(source, estimator="rloo")
    assert [found.verdict.values[each.rollout] for each in WORKED_EXAMPLE[:6]] == pytest.approx([0.6] * 3 + [-0.6] * 3)
    assert found.effect.changes[Change.RESIZED] == 6
    whole = what_if(source, estimator="reinforce_pp")
    assert {each.estimator for each in whole.verdict.groups} == {"reinforce_pp"}
    assert whole.effect.rollouts == 6


def test_an_outcome_part_takes_the_signal_of_shaping_away(tmp_path: Path) -> None:
    attempts = [
        Attempt(member=place, reward=-0.1 * place, parts={"right": 0.0, "length": -0.1 * place}) for place in range(3)
    ]
    source = judged(tmp_path / "run", attempts, group=3)
    found = what_if(source, outcome_part="right")
    assert set(found.verdict.values.values()) == {0.0}
    assert (found.effect.flat_before, found.effect.flat_after) == (0, 1)
    assert found.effect.changes[Change.VANISHED] == 2
    with pytest.raises(ConfigError, match="nobody in group g-0000 has it"):
        what_if(source, outcome_part="rihgt")


def test_of_a_members_attempts_the_first_that_stands_counts(tmp_path: Path) -> None:
    attempts = [
        Attempt(member=0, reward=None, reason=Reason.ENGINE_TIMEOUT),
        Attempt(member=0, reward=1.0, attempt=1),
        Attempt(member=1, reward=0.0),
    ]
    source = judged(tmp_path / "run", attempts, group=2)
    (was,) = facts.closed_groups(facts.advantages(source.annotations())).values()
    assert was.values == {attempts[1].rollout: 0.5, attempts[2].rollout: -0.5}
    found = what_if(source, rules=rules_from({"engine_timeout": {"reward": -1.0}}))
    fates = found.verdict.dispositions
    assert fates[attempts[0].rollout].fate is Fate.USED
    assert (fates[attempts[1].rollout].fate, fates[attempts[1].rollout].rule) == (
        Fate.DROPPED,
        "an earlier attempt stands under these rules",
    )
    assert found.verdict.values == {attempts[0].rollout: -0.5, attempts[1].rollout: None, attempts[2].rollout: 0.5}
    assert found.effect.changes[Change.FLIPPED] == 1
    none = what_if(source, rules={Reason.ENGINE_TIMEOUT: Drop()})
    assert none.verdict.values == {attempts[0].rollout: None, attempts[1].rollout: None, attempts[2].rollout: 0.0}
    more = what_if(source, rules={Reason.FINAL_ANSWER: Retry(3)})
    assert {each.fate for each in more.verdict.dispositions.values()} == {Fate.RETRIED, Fate.DROPPED}


def test_what_came_late_stays_late(tmp_path: Path) -> None:
    attempts = [Attempt(member=0, reward=1.0), Attempt(member=1, reward=0.0), Attempt(member=2, reward=1.0, late=True)]
    source = judged(tmp_path / "run", attempts, group=3)
    found = what_if(source, rules={Reason.FINAL_ANSWER: Penalize(-1.0)})
    assert found.verdict.values == {attempts[0].rollout: 0.5, attempts[1].rollout: -0.5}


def test_a_group_that_keeps_too_few_is_dropped_as_a_whole(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8, groups=GroupRules(min_used=6))
    found = what_if(source, rules={Reason.MAX_TURNS: Mask()})
    assert set(found.verdict.values.values()) == {None}
    assert found.verdict.dispositions[WORKED_EXAMPLE[0].rollout].rule == "group: 5 of 8 used, fewer than 6"


def test_open_groups_take_no_part(tmp_path: Path) -> None:
    found = what_if(judged(tmp_path / "run", WORKED_EXAMPLE, group=8, close=False), estimator="grpo")
    assert (found.verdict.outcomes, found.verdict.groups, found.effect.rollouts) == ({}, (), 0)
    assert found.effect.share(Change.FLIPPED) is None


def test_what_no_run_made_is_taken_whole(tmp_path: Path) -> None:
    traces = [each.trace() for each in WORKED_EXAMPLE]
    with RunWriter.create(tmp_path / "run", {}) as writer:
        for trace in traces:
            writer.begin(trace)
            writer.seal(trace)

    source = RunReader(tmp_path / "run")
    found = what_if(source, estimator="rloo")
    assert found.effect.changes[Change.RESIZED] == 6, "beside what the default rules give"
    assert keep(source, found.verdict) == 1
    assert facts.advantages(source.annotations())[WORKED_EXAMPLE[0].rollout].advantage == pytest.approx(0.6)


def test_what_is_kept_is_a_further_step_and_the_delivered_one_stays(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    before, stood = source.annotations(), standing(source)
    found = what_if(source, rules=rules_from({"error": {"reward": 0.0}}))
    assert keep(source, found.verdict, found.rewards) == 1
    after = source.annotations()
    assert [note for note in after if note.step == 0] == before
    assert {note.producer for note in after if note.step} == {"score"}
    newest = facts.advantages(after)
    assert newest[WORKED_EXAMPLE[6].rollout].advantage == -0.375
    assert facts.rewards(after).keys() == {WORKED_EXAMPLE[6].rollout, WORKED_EXAMPLE[7].rollout}
    assert (newest[WORKED_EXAMPLE[0].rollout].scheduled, newest[WORKED_EXAMPLE[0].rollout].used) == (8, 8)
    assert standing(source) == stood, "how far the run has come is another question"
    again = what_if(source)
    assert again.verdict.values[WORKED_EXAMPLE[0].rollout] == 0.5, "the run's own rules"
    assert again.effect.changes[Change.VANISHED] == 2, "beside what counts now"
    assert next_step(source) == 2


@pytest.mark.parametrize(
    ("plain", "reason", "rule"),
    [
        ({"max_turns": "drop"}, Reason.MAX_TURNS, Drop()),
        ({"max_turns": "mask"}, Reason.MAX_TURNS, Mask()),
        ({"engine_timeout": "score"}, Reason.ENGINE_TIMEOUT, Score()),
        ({"engine_timeout": {"penalize": -1}}, Reason.ENGINE_TIMEOUT, Penalize(-1.0)),
        ({"engine_timeout": {"retry": 3}}, Reason.ENGINE_TIMEOUT, Retry(3)),
        ({"engine_timeout": {"type": "retry", "times": 3}}, Reason.ENGINE_TIMEOUT, Retry(3)),
        ({"engine_timeout": {"reward": -2}}, Reason.ENGINE_TIMEOUT, -2.0),
        ({"truncated": "mask"}, Reason.DEADLINE, Mask()),
        ({"deadline": "drop", "truncated": "mask"}, Reason.DEADLINE, Drop()),
        ({"truncated": "mask", "deadline": "drop"}, Reason.DEADLINE, Drop()),
    ],
)
def test_rules_are_read(tmp_path: Path, plain: dict[str, Any], reason: Reason, rule: object) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(plain))
    found = read_rules(tmp_path / "rules.json")
    assert found[reason] == rule
    kinds = {each for each in EndingKind if each in plain}
    assert set(found) == {each for each in Reason if each in plain or each.kind in kinds}


def test_the_stored_form_of_rules_is_read_too() -> None:
    rows: dict[Reason, Rule] = {reason: Mask() for reason in Reason}
    rules = EndingRules(rows).override({Reason.HARNESS: Penalize(-0.5)})
    assert rules_from(msgspec.to_builtins(rules)["rows"]) == rules.rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "must be one table"),
        ("{", "no valid JSON"),
        ('{"maxturns": "drop"}', "no ending 'maxturns'"),
        ('{"max_turns": "forget"}', "the rule for 'max_turns' is none"),
        ('{"max_turns": {"penalize": "a lot"}}', "the rule for 'max_turns' is none"),
        ('{"max_turns": {"penalize": -1, "retry": 2}}', "the rule for 'max_turns' is none"),
        ('{"max_turns": {"reward": true}}', "the rule for 'max_turns' is none"),
        ('{"max_turns": {"reward": 1e39}}', "the rule for 'max_turns' is none"),
        ('{"max_turns": NaN}', "the rule for 'max_turns' is none"),
        ('{"max_turns": {"retry": -1}}', "times must be >= 0"),
        ('{"max_turns": {}}', "the rule for 'max_turns' is none"),
        ('{"max_turns": "drop", "max_turns": "mask"}', "'max_turns' stands there twice"),
        (" " * (1 << 21), "longer than"),
    ],
)
def test_a_rules_file_that_is_none(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_rules(tmp_path / "rules.json")


def test_a_rules_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_rules(tmp_path / "rules.json")


def test_a_run_whose_rules_nobody_can_read(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"run": "g", "asked": {"rules": 7}}):
        pass

    with pytest.raises(ConfigError, match="rules that cannot be read"):
        what_if(RunReader(tmp_path / "run"))


def test_annotations_of_others_do_not_count_as_a_step(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    note = Annotation(producer="trainer", name="loss", rollout=WORKED_EXAMPLE[0].rollout, value=1.0, step=40)
    with RunWriter.open(tmp_path / "run") as writer:
        writer.annotate([note])
    assert next_step(source) == 1


def test_the_groups_of_a_members_annotations_are_whole_again() -> None:
    whole = GroupAdvantages(
        group="g",
        seat="s",
        values={"a": 1.0, "b": -1.0},
        members=("a", "b"),
        baseline=0.0,
        scheduled=2,
        used=2,
        estimator="turn_level",
        rules="",
        turns={"a": ((0, 1.0), (1, 0.5)), "b": ((0, -1.0),)},
    )

    notes = Advantages((whole,)).annotations()
    assert [note.value["turns"] for note in notes] == [{"a": [[0, 1.0], [1, 0.5]]}, {"b": [[0, -1.0]]}]
    read = facts.advantages(notes)
    assert read["a"].turn_advantages == {0: 1.0, 1: 0.5}
    assert facts.closed_groups(read) == {whole.key: whole}


def test_turns_that_lose_their_own_advantage_are_told(tmp_path: Path) -> None:
    attempts = [Attempt(member=0, reward=1.0, turn=0.75), Attempt(member=1, reward=0.0, turn=0.5)]
    source = judged(tmp_path / "run", attempts, group=2, estimator="turn_level")
    assert facts.advantages(source.annotations())[attempts[0].rollout].turn_advantages == {0: 0.5}
    assert what_if(source).effect.changes[Change.SAME] == 2
    assert what_if(source, estimator="dr_grpo").effect.changes[Change.RESIZED] == 2


def test_what_would_never_have_run_counts_as_nothing(tmp_path: Path) -> None:
    attempts = [
        Attempt(member=0, reward=None, reason=Reason.ENGINE_TIMEOUT),
        Attempt(member=0, reward=None, reason=Reason.ENGINE_TIMEOUT, attempt=1),
        Attempt(member=1, reward=1.0),
    ]
    source = judged(tmp_path / "run", attempts, group=2)
    found = what_if(source, rules=rules_from({"engine_timeout": {"reward": 0.0}}))
    assert list(found.verdict.values.values()) == [-0.5, None, 0.5]


def test_what_is_judged_again_opens_and_closes_nothing(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8, close=False)
    stood = standing(source)
    assert stood is not None
    assert stood.closed == 0
    keep(source, close_again(judged(tmp_path / "other", WORKED_EXAMPLE, group=8), Judging(rules=EndingRules()), {}))
    assert standing(source) == stood


def test_what_was_too_stale_stays_dropped(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    lost = WORKED_EXAMPLE[0].rollout
    stale = msgspec.to_builtins(facts.Staleness(finished=3, taken=9, dropped=True))
    decided = msgspec.to_builtins(Disposition(Fate.DROPPED, "staleness: oldest at most 2"))
    with RunWriter.open(tmp_path / "run") as writer:
        writer.annotate(
            Annotation(producer="stream", name=name, rollout=lost, value=value)
            for name, value in ((facts.STALENESS, stale), (facts.DISPOSITION, decided))
        )
    found = what_if(source, rules=rules_from({"submitted": {"reward": 1.0}}))
    assert found.verdict.values[lost] is None
    assert found.verdict.dispositions[lost].rule == "staleness: oldest at most 2"
    assert found.verdict.values[WORKED_EXAMPLE[1].rollout] == pytest.approx(0.2), "four of five others count as 1"


def test_what_an_ending_counted_as_is_no_reward_once_it_counts_no_more(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    lost, cut = WORKED_EXAMPLE[6].rollout, WORKED_EXAMPLE[5].rollout
    counts = what_if(source, rules=rules_from({"error": {"reward": -1.0}, "max_turns": {"reward": -1.0}}))
    keep(source, counts.verdict, counts.rewards)
    assert facts.rewards(source.annotations())[lost].total == -1.0
    scored = what_if(source, rules=rules_from({"error": "score", "max_turns": "score"}))
    assert scored.verdict.values[lost] is None, "nobody gave it a reward"
    assert scored.verdict.outcomes[cut].vote == 0.0, "and this one had another"
    keep(source, scored.verdict, scored.rewards)
    now = facts.rewards(source.annotations())
    assert (now[lost].total, now[cut].total) == (None, 0.0)


def test_what_was_scored_again_counts_once_an_ending_counts_no_more(tmp_path: Path) -> None:
    source = judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    cut = WORKED_EXAMPLE[5].rollout
    plain = what_if(source)
    keep(source, plain.verdict, {cut: facts.Reward(total=0.5)})
    counts = what_if(source, rules=rules_from({"max_turns": {"reward": -1.0}}))
    keep(source, counts.verdict, counts.rewards)
    again = what_if(source)
    assert again.rewards[cut].total == again.verdict.outcomes[cut].reward == 0.5
    anew = what_if(source, rewards={cut: facts.Reward(total=0.75)})
    assert (anew.rewards, anew.verdict.outcomes[cut].reward) == ({}, 0.75)
