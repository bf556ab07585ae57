"""What a run would have taught under other ending rules or another estimator, from its record alone.

A rules file is JSON: a reason of endings, or a kind for all of its reasons, and what becomes of it: ``"score"``,
``"drop"``, ``"mask"``, ``{"retry": 2}``, ``{"penalize": -1.0}``, as `EndingRules` has it, or ``{"reward": 0.0}``, which
counts an ending as that much and which no run does. The file overrides the rules that the run had. Nothing is written
unless it is asked for; what is written is a further step of annotations, and those that were there stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from rollbook.errors import ConfigError
from rollbook.rewards import DEFAULT_ESTIMATOR, Advantages, GroupAdvantages, annotate, find_estimator
from rollbook.run.closing_again import Judging, Verdict, close_again
from rollbook.run.effect import Effect, effect
from rollbook.run.planning import JUDGED_AGAIN
from rollbook.store import AnnotationWriter, RunReader
from rollbook.trace import Annotation, EndingKind, EndingRules, Reason, Rule, Score, Trace, facts
from rollbook.trace.ending import is_reward

__all__ = ["WhatIf", "judging_of", "keep", "next_step", "read_rules", "what_if"]

MOST_BYTES = 1 << 20
"""Of a rules file."""

Rules = Mapping[Reason, Rule | float]
"""A rule for each reason that is overridden; a number: what the ending counts as."""


class _Groups(msgspec.Struct, frozen=True):
    min_used: int = 1


class _Asked(msgspec.Struct, frozen=True):
    """What of a stored configuration says how the run was judged."""

    rules: EndingRules = EndingRules()
    groups: _Groups = _Groups()
    estimator: str | None = None
    spread: bool = False
    outcome_part: str | None = None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What would be."""

    verdict: Verdict
    rewards: dict[str, facts.Reward]
    """Of the rollouts whose ending counts as a reward, and of those whose ending did and now does not: what was
    scored."""
    effect: Effect


def read_rules(path: Path) -> Rules:
    """The rules in a file; raises `ConfigError`."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ConfigError(f"the rules {path} are longer than {MOST_BYTES} bytes: they are one line a reason")
        plain: Any = json.loads(text.decode("utf-8"), object_pairs_hook=_unambiguous)
    except OSError as error:
        raise ConfigError(f"the rules {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the rules {path} are no valid JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f'the rules {path} must be one table, e.g. {{"max_turns": "drop"}}')
    return rules_from(cast("dict[str, Any]", plain))


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table; raises `ValueError` where a name stands twice, for nobody knows which is meant."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice[:80]!a} stands there twice")
    return table


def rules_from(plain: Mapping[str, Any]) -> Rules:
    """Rules from plain data; a reason goes before its kind. Raises `ConfigError`."""
    kinds, reasons = frozenset(EndingKind), frozenset(Reason)
    unknown = [name for name in plain if name not in kinds and name not in reasons]
    if unknown:
        raise ConfigError(f"there is no ending '{unknown[0]}': name a reason ({', '.join(Reason)}) or a kind")
    read = {name: _rule(name, value) for name, value in plain.items()}
    by_kind = {reason: read[reason.kind] for reason in Reason if reason.kind in read}
    return {**by_kind, **{reason: read[reason] for reason in Reason if reason in read}}


def _rule(name: str, value: Any) -> Rule | float:
    match value:
        case str():
            plain: Any = {"type": value}
        case {"reward": int() | float() as reward} if (
            len(value) == 1 and not isinstance(reward, bool) and is_reward(reward)
        ):
            return float(reward)
        case {"retry": object() as times} if len(value) == 1:
            plain = {"type": "retry", "times": times}
        case {"penalize": object() as amount} if len(value) == 1:
            plain = {"type": "penalize", "amount": amount}
        case _:
            plain = value
    try:
        return msgspec.convert(plain, Rule)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(
            f'the rule for \'{name}\' is none ({error}): write "score", "drop", "mask", {{"retry": 2}}, '
            '{"penalize": -1.0} or {"reward": 0.0}'
        ) from error


def judging_of(source: RunReader) -> Judging:
    """By what the run was judged; the defaults where its record does not say. Raises `ConfigError` where it says what
    nobody understands."""
    asked: Any = source.manifest.config.get("asked", {})
    try:
        found = msgspec.convert(asked, _Asked)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{source.folder} was judged by rules that cannot be read ({error})") from error
    return Judging(
        rules=found.rules,
        estimator=found.estimator or ("grpo" if found.spread else DEFAULT_ESTIMATOR),
        outcome_part=found.outcome_part,
        min_used=found.groups.min_used,
    )


def what_if(
    source: RunReader,
    *,
    rules: Rules | None = None,
    estimator: str | None = None,
    outcome_part: str | None = None,
    rewards: Mapping[str, facts.Reward] | None = None,
) -> WhatIf:
    """What the run would have come to. What is None is as it was; `rewards`: in the place of those that count now.

    Compared is with the advantages that count now, and where there are none with those that the run's own rules give.
    Raises `ConfigError` for a run whose rules, or an estimator that, nobody knows.
    """
    was = judging_of(source)
    given = rules or {}
    rows: dict[Reason, Rule] = {
        reason: Score() if isinstance(rule, float | int) else rule for reason, rule in given.items()
    }
    table = was.rules.override(rows)
    judging = Judging(
        rules=table,
        counted={reason: rule for reason, rule in given.items() if isinstance(rule, float | int)},
        estimator=find_estimator(was.estimator if estimator is None else estimator),
        outcome_part=was.outcome_part if outcome_part is None else outcome_part,
        min_used=was.min_used,
    )
    notes = source.annotations()
    known, anew = facts.scored_rewards(notes), rewards or {}
    verdict = close_again(source, judging, {**known, **anew})
    recorded = facts.advantages(notes)
    if recorded:
        values = {rollout: each.advantage for rollout, each in recorded.items()}
        before, was_groups = (facts.dispositions(notes), values), facts.closed_groups(recorded).values()
    else:
        plain = close_again(source, was, known)
        before, was_groups = (plain.dispositions, plain.values), plain.groups
    return WhatIf(
        verdict=verdict,
        rewards={
            **{rollout: known.get(rollout) or _own(source.get(rollout)) for rollout in _counted(notes) - anew.keys()},
            **{
                rollout: facts.Reward(total=each.vote, counted=True)
                for rollout, each in verdict.outcomes.items()
                if each.reason in judging.counted and each.vote is not None
            },
        },
        effect=effect(
            verdict.outcomes.values(),
            before,
            verdict.values,
            flat=(len(facts.flat_groups(was_groups)), len(facts.flat_groups(verdict.groups))),
            turned=_turned(was_groups, verdict.groups),
        ),
    )


def _counted(notes: Iterable[Annotation]) -> set[str]:
    """The rollouts whose ending counts as a reward now."""
    return {rollout for rollout, each in facts.rewards(notes).items() if each.counted}


def _own(trace: Trace) -> facts.Reward:
    """What the trace itself says of its reward."""
    tail = trace.tail
    return facts.Reward(
        total=tail.reward,
        parts=tail.reward_parts,
        turn_rewards=tail.turn_rewards,
        status=tail.scoring.status,
        reason=tail.scoring.reason,
    )


def _turned(before: Iterable[GroupAdvantages], after: Iterable[GroupAdvantages]) -> set[str]:
    """The rollouts whose turns have other advantages, as far as they have their own."""
    old, new = _by_turn(before), _by_turn(after)
    return {rollout for rollout in old.keys() | new.keys() if old.get(rollout) != new.get(rollout)}


def _by_turn(groups: Iterable[GroupAdvantages]) -> dict[str, tuple[tuple[int, float], ...]]:
    return {rollout: rows for group in groups for rollout, rows in group.turns.items()}


def next_step(source: RunReader) -> int:
    """Behind every step of what is known of the run's rewards, dispositions and advantages."""
    names = (facts.REWARD, facts.DISPOSITION, facts.ADVANTAGE)
    return 1 + max((note.step for note in source.annotations() if note.name in names), default=0)


def keep(source: RunReader, verdict: Verdict, rewards: Mapping[str, facts.Reward] | None = None) -> int:
    """Write dispositions and advantages, and rewards where they are given, as one further step; returns it. All of them
    are kept or none. Raises `StoreError`."""
    step = next_step(source)
    notes = [
        *(
            Annotation(
                producer=JUDGED_AGAIN, name=facts.REWARD, rollout=rollout, step=step, value=msgspec.to_builtins(reward)
            )
            for rollout, reward in (rewards or {}).items()
        ),
        *annotate(verdict.dispositions, step, JUDGED_AGAIN),
        *Advantages(verdict.groups).annotations(step, JUDGED_AGAIN),
    ]
    with AnnotationWriter(source.folder, JUDGED_AGAIN) as writer:
        writer.write(notes)
    return step
