"""`rollbook check`: prove a part before a run stands on it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from rollbook.cli.screen import console, print_json, show_table, visible
from rollbook.errors import UsageError
from rollbook.render.findings import TemplateReport, Verdict
from rollbook.run import check_template

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook check template ./Qwen3-8B
  rollbook check template model.gguf --json
  rollbook check template ./Llama-3.2-3B --date 2026-01-31
  rollbook check template chat_template.jinja --stop '<|im_end|>'
  rollbook check template ./Qwen3-8B --template mine.jinja --set enable_thinking=false
"""


@click.group(epilog=EXAMPLES, short_help="Prove a part before a run stands on it: a chat template.")
def command() -> None:
    """Check a part before a run stands on it: 0 sound, 1 not, 2 cannot be checked."""


@command.command(epilog=EXAMPLES, short_help="What a chat template does to training.")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--template", type=click.Path(path_type=Path), help="A template to use instead of the model's own.")
@click.option("--stop", multiple=True, metavar="TOKEN", help="Ends an assistant's turn. [default: as the model says]")
@click.option("--date", type=click.DateTime(["%Y-%m-%d"]), help="The day that a template may ask for.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A template variable; VALUE is JSON or text.")
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def template(
    ctx: click.Context,
    path: Path,
    template: Path | None,
    stop: tuple[str, ...],
    date: datetime | None,
    given: tuple[str, ...],
    cache: Path | None,
    as_json: bool,
) -> None:
    """Try the chat template at PATH (a tokenizer folder, a GGUF file or a template) and say, property by property,
    what a trainer would see. Exit code 0: sound; 1: training on it would be unsound; 2: it cannot be checked."""
    report = check_template(
        path,
        template=template,
        stops=stop,
        date=None if date is None else date.date(),
        variables=dict(map(_variable, given)),
        cache=cache,
    )
    if as_json:
        print_json(
            {
                "name": report.name,
                "template_hash": report.template_hash,
                "sound": report.sound,
                "findings": [msgspec.to_builtins(finding) for finding in report.findings],
            }
        )
    else:
        _show(report)
    ctx.exit(0 if report.sound else 1)


def _variable(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
    except RecursionError as error:
        raise UsageError(f"--set {name}: its JSON nests too deeply") from error


def _show(report: TemplateReport) -> None:
    out = console()
    rows = [
        (finding.verdict.value, finding.about.value, finding.value, _words(finding.meaning, finding.example))
        for finding in report.findings
    ]
    show_table(out, f"Template of {report.name}", ("", "property", "value", "what a trainer sees"), rows, form="lkll")
    unsound = [finding.about.value for finding in report.findings if finding.verdict is Verdict.UNSOUND]
    if unsound:
        out.print(visible(f"Training on it would be unsound: {', '.join(unsound)}."))
    else:
        out.print("Training on it is sound.")


def _words(meaning: str, example: str) -> str:
    shown = example if example.isprintable() else repr(example)
    return f"{meaning}\n{shown[:160]}" if example else meaning
