"""`rollbook check exporter`: whether a trainer would read in our records what was sampled."""

from __future__ import annotations

import click
import msgspec

from rollbook.cli.screen import console, print_json, show_table, visible
from rollbook.export import DOORS, ExporterReport, check_exporter

__all__ = ["exporter"]

EXAMPLES = """\b
Examples:
  rollbook check exporter slime
  rollbook check exporter verl --json
"""


@click.command(epilog=EXAMPLES, short_help="Whether a trainer reads in its records what was sampled.")
@click.argument("name", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def exporter(ctx: click.Context, name: str, as_json: bool) -> None:
    """Make the records of the door NAME from made-up rollouts, read them as its trainer would, and say of each of ten
    checks whether it holds; no trainer is needed. Exit code 0: every check holds, or the record has no place for what
    it asks, or the door refuses such samples; 1: training on the records would be wrong."""
    report = check_exporter(name)
    if as_json:
        print_json(msgspec.to_builtins(report) | {"fit": report.fit})
    else:
        _show(report)
    ctx.exit(0 if report.fit else 1)


def _show(report: ExporterReport) -> None:
    out = console()
    rows = [(each.verdict.value, each.about.value, each.detail) for each in report.findings]
    show_table(out, f"Door {report.name}", ("", "check", "what was seen"), rows, form="kkl")
    out.print(visible(DOORS[report.name].about))
    if report.broken:
        broken = ", ".join(each.about.value for each in report.broken)
        out.print(visible(f"Training on such records would be wrong: {broken}."))
    else:
        out.print("Training on such records is sound.")
