"""`rollbook import`: what others recorded, as a run."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from rollbook.cli.screen import console, print_json, show_table, visible
from rollbook.export.importers import IMPORTERS
from rollbook.run import ImportReport, import_traces

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook import rollout_0.pt --out runs/theirs
  rollbook import dumps/12.jsonl --from verl --out runs/theirs --skip-bad
  rollbook audit runs/theirs --no-model
"""


@click.command(name="import", epilog=EXAMPLES, short_help="Make a run of what another tool recorded.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "form", metavar="FORM", help=f"{', '.join(IMPORTERS)}. [default: as the file tells]")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A new folder for the run.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows that break their form, and count them.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(file: Path, form: str | None, out: Path, skip_bad: bool, as_json: bool) -> None:
    """Make a run in a new folder of the records in FILE, which `show`, `audit` and `export` then read."""
    done = import_traces(file, form, out, skip_bad=skip_bad)
    if as_json:
        print_json(msgspec.to_builtins(done))
        return
    show_table(console(), f"{out}", ("", ""), _rows(done))
    for line in done.first_skipped:
        console(stderr=True).print(visible(f"Skipped {line}"))


def _rows(done: ImportReport) -> list[tuple[str, str]]:
    return [
        ("form", f"{done.form}, as the file tells" if done.guessed else done.form),
        ("rows read", str(done.rows)),
        ("rows skipped", str(done.skipped)),
        ("rollouts", str(done.rollouts)),
        ("without token ids", str(done.text_only)),
        ("without a reward", str(done.without_reward)),
        ("sampled tokens", str(done.sampled)),
    ]
