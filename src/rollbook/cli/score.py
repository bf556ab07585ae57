"""`rollbook score`: a run scored again from its record, or judged by other rules."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rollbook.cli.run_place import RUN_PLACE
from rollbook.cli.screen import MISSING, console, counted, counts, print_json, share, show_table
from rollbook.cli.template_options import read_pairs
from rollbook.cli.unfinished import tell_unfinished
from rollbook.errors import UsageError
from rollbook.rewards import ESTIMATORS
from rollbook.run import (
    Access,
    Change,
    Effect,
    Rescored,
    judging_of,
    keep,
    open_run,
    read_rules,
    rescore,
    scored_by,
    what_if,
)
from rollbook.run.policies import judge_loader
from rollbook.store import RunReader
from rollbook.trace import ScoringStatus
from rollbook.worlds import make

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook score runs/demo                              score again, with the environment of now
  rollbook score runs/demo --estimator grpo             what if: another estimator
  rollbook score runs/demo --rules rules.json           what if: other ending rules
  rollbook score runs/demo --rules rules.json --keep    and keep what comes of it

\b
A rules file is JSON, by reason or kind of ending:
  {"max_turns": "drop", "truncated": {"penalize": -0.5}, "error": {"reward": 0.0}}
"""


@click.command(epilog=EXAMPLES, short_help="Score a run again, or ask what other rules would make of it.")
@click.argument("run", type=RUN_PLACE)
@click.option("--rules", type=click.Path(path_type=Path), metavar="FILE", help="What if: other ending rules.")
@click.option("--estimator", type=click.Choice(list(ESTIMATORS)), metavar="NAME", help="What if: another estimator.")
@click.option("--outcome-part", metavar="PART", help="What if: only groups that differ in this reward part teach.")
@click.option("--keep", "write", is_flag=True, help="Write what comes of it, as a further step of annotations.")
@click.option("--env", metavar="ENV", help="Score with this environment. [default: the run's own]")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="For the environment of --env.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(
    run: Path | str,
    rules: Path | None,
    estimator: str | None,
    outcome_part: str | None,
    write: bool,
    env: str | None,
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score the rollouts of RUN again from their stored final state, and close its groups again.

    With --rules, --estimator or --outcome-part nothing is scored: it says what they would do to the advantages, and
    writes nothing without --keep. What was recorded before stays; what is written is a further step, which counts
    from then on.
    """
    asks = rules is not None or estimator is not None or outcome_part is not None
    if asks and (env is not None or options):
        raise UsageError("--rules, --estimator and --outcome-part score nothing: leave --env and --option out")
    if not asks or write:
        _writable(run)
    source = open_run(run)
    tell_unfinished(source, run)
    document: dict[str, Any] = {"run": str(run)}
    again = None if asks else _rescore(source, env, options, forced=write)
    given = read_rules(rules) if rules is not None else None
    found = what_if(
        source,
        rules=given,
        estimator=estimator,
        outcome_part=outcome_part,
        rewards=None if again is None else again.rewards,
    )
    step = None
    if write or again is not None:
        step = keep(source, found.verdict, {**({} if again is None else again.rewards), **found.rewards})
    if as_json:
        scored = None if again is None else _counts(again)
        print_json({**document, "scored": scored, "effect": found.effect.to_dict(), "step": step})
        return
    out = console()
    if again is not None:
        show_table(out, "Scored again", ("", ""), [(name, str(count)) for name, count in _counts(again).items()])
    show_effect(out, found.effect)
    _tell_step(out, run, step)


def _writable(run: Path | str) -> None:
    if not isinstance(run, Path):
        raise UsageError(f"{run} is a copy in an object store, which nothing is written to: score the run's own folder")


def _rescore(source: RunReader, env: str | None, options: tuple[str, ...], *, forced: bool) -> Rescored:
    known = scored_by(source)
    name = env or (None if known is None else known.environment)
    if name is None:
        raise UsageError("the record does not say which environment scores this run: name it with --env ENV")
    given = read_pairs(options, "--option", "KEY=VALUE", "difficulty=2")
    chosen = known.options if known is not None and env is None else {}
    if ":" in name:
        sys.path.insert(0, str(Path.cwd()))
    with redirect_stdout(sys.stderr):  # what an environment prints is no part of the answer
        found = rescore(
            source,
            functools.partial(make, name, **{**chosen, **given}),
            judging_of(source).rules,
            seconds=None if known is None else known.limits.score_timeout,
            load_judge=judge_loader(Access()),
        )
    if found.lost and found.failed and not forced:
        why = next(each.reason for each in found.rewards.values() if each.status is ScoringStatus.FAILED)
        raise UsageError(
            f"{counted(found.lost, 'rollout')} that had a reward could not be scored again ({why}), so nothing was "
            "written. A scorer must find all that it needs in the trace and its final state; --keep writes all the same"
        )
    return found


def _counts(again: Rescored) -> dict[str, int]:
    return {
        "same reward": again.same,
        "another reward": again.changed,
        "a reward for the first time": again.gained,
        "no reward any more": again.lost,
        "scorer failed": again.failed,
        "not scored": again.not_scored,
    }


def show_effect(out: Console, effect: Effect) -> None:
    """What it does to the advantages, and by which rule."""
    rows = [(SAYS[change], str(effect.changes[change]), share(effect.share(change))) for change in Change]
    show_table(out, "Advantages", ("", "rollouts", "share"), rows, form="lrr")
    reasons = [
        (
            str(row.reason),
            str(row.attempts),
            _rules(row.reason, row.before),
            _rules(row.reason, row.after) if row.after != row.before else "as before",
            counts({change: n for change, n in row.changes.items() if change is not Change.SAME}, MISSING),
        )
        for row in effect.reasons
    ]
    show_table(out, "Rules", ("ending", "attempts", "before", "after", "advantages"), reasons, form="lrlll")
    out.print(f"Groups without a signal: {effect.flat_before} before, {effect.flat_after} after.")


def _rules(reason: str, rows: Mapping[str, int]) -> str:
    return counts({rule.removeprefix(f"{reason}: "): count for rule, count in rows.items()})


SAYS = {
    Change.FLIPPED: "flip their sign",
    Change.VANISHED: "vanish, or become 0",
    Change.APPEARED: "appear, where there was none or 0",
    Change.RESIZED: "keep their sign at another size",
    Change.SAME: "stay",
}


def _tell_step(out: Console, run: Path | str, step: int | None) -> None:
    if step is None:
        out.print("Nothing was written; --keep does.")
    else:
        place = shlex.quote(str(run))
        out.print(f"Written as step {step}; what was recorded before stays. `rollbook show {place}` has it now.")
