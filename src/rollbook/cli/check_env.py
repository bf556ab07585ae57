"""`rollbook check env`: whether an environment keeps what rollouts take for granted, and its scorer what it is for."""

from __future__ import annotations

import asyncio
import functools
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click
import msgspec

from rollbook.cli.screen import console, counted, print_json, show_table, visible
from rollbook.cli.template_options import read_pairs
from rollbook.rollout import EnvCheck, EnvReport, env_report
from rollbook.worlds import make

__all__ = ["env"]

EXAMPLES = """\b
Examples:
  rollbook check env calculator
  rollbook check env calculator --option difficulty=3 --tasks 32
  rollbook check env my_package.worlds:MyWorld --json
"""


@click.command(epilog=EXAMPLES, short_help="Whether an environment conforms, and gold scores 1 and a no-op 0.")
@click.argument("env", metavar="ENV")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="For the environment; JSON or text.")
@click.option("--tasks", type=click.IntRange(1), default=8, show_default=True, help="How many tasks are tried.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the tasks.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def env(ctx: click.Context, env: str, options: tuple[str, ...], tasks: int, seed: int, as_json: bool) -> None:
    """Check ENV (a name from `rollbook envs`, or package.module:Class): its tasks, its tools, set-up, scorer and
    clean-up; and replay the solutions that it knows, without a model: gold must score 1, a no-op 0. Exit code 0: it
    conforms; 1: it does not; 2: it cannot be checked."""
    given = read_pairs(options, "--option", "KEY=VALUE", "difficulty=2")
    if ":" in env:
        sys.path.insert(0, str(Path.cwd()))
    with redirect_stdout(sys.stderr):  # what an environment prints is no part of the answer
        make(env, **given)  # a wrong name or option is no finding: nothing could be checked
        report = asyncio.run(env_report(functools.partial(make, env, **given), tasks, seed))
    if as_json:
        print_json({"env": env, "conforms": not report.findings} | msgspec.to_builtins(report))
    else:
        _show(env, report)
    ctx.exit(1 if report.findings else 0)


def _show(env: str, report: EnvReport) -> None:
    out = console()
    if report.findings:
        rows = [(each.check.value, each.problem) for each in report.findings]
        show_table(out, f"Environment {env}", ("check", "problem"), rows, form="kl")
        out.print(visible(f"{env} does not conform: {counted(len(report.findings), 'finding')}."))
        return
    out.print(visible(f"{env} conforms: {len(EnvCheck)} checks over {counted(report.tasks, 'task')}."))
    if report.solved:
        out.print(f"Replayed solutions of {counted(report.solved, 'task')}: gold scored 1 each time, a no-op 0.")
    else:
        out.print("It knows no solutions, so its scorer was held to nothing: define `solutions`.")
