"""`rollbook envs`: the environments that have a name."""

from __future__ import annotations

import inspect

import click

from rollbook.cli.screen import MISSING, console, print_json, show_table
from rollbook.envs import factory
from rollbook.errors import UsageError
from rollbook.worlds import names

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook envs
  rollbook envs --json
"""


@click.command(epilog=EXAMPLES, short_help="List the environments by name.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(as_json: bool) -> None:
    """List the environments that have a name, their options and what they are.

    Any other runs by its place: package.module:Class.
    """
    rows = [(name, *_about(name)) for name in names()]
    if as_json:
        print_json({"envs": [dict(zip(("name", "options", "about"), row, strict=True)) for row in rows]})
    else:
        show_table(console(), "Environments", ("name", "options", "what it is"), rows)


def _about(name: str) -> tuple[str, str]:
    """Its options as a signature, and the first line of its module's or its own words."""
    try:
        made = factory(name)
    except UsageError as error:
        return MISSING, f"cannot be used: {error}"
    options = ", ".join(str(each).replace("'", "") for each in inspect.signature(made).parameters.values())
    words = (inspect.getdoc(inspect.getmodule(made)) if inspect.isclass(made) else inspect.getdoc(made)) or ""
    return options, words.partition("\n")[0]
