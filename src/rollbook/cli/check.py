"""`rollbook check`: prove a part before a run stands on it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click
import msgspec

from rollbook.cli.check_env import env
from rollbook.cli.check_exporter import exporter
from rollbook.cli.check_policy import policy
from rollbook.cli.progress import FetchBar
from rollbook.cli.screen import console, print_json, show_table, visible
from rollbook.cli.template_options import api_key, read_variables, template_options
from rollbook.render.findings import TemplateReport, Verdict
from rollbook.run import check_template

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook check template ./Qwen3-8B
  rollbook check template model.gguf --json
  rollbook check template local:smollm2-135m
  rollbook check template ./Llama-3.2-3B --date 2026-01-31
  rollbook check template chat_template.jinja --stop '<|im_end|>'
  rollbook check template ./Qwen3-8B --template mine.jinja --set enable_thinking=false
  rollbook check policy vllm:http://127.0.0.1:8000
  rollbook check env calculator --option difficulty=3
  rollbook check exporter slime
"""


@click.group(epilog=EXAMPLES, short_help="Prove a part before a run stands on it: engine, template, environment, door.")
def command() -> None:
    """Check a part before a run stands on it: 0 sound, 1 not, 2 cannot be checked."""


@command.command(epilog=EXAMPLES, short_help="What a chat template does to training.")
@click.argument("path", metavar="PATH")
@click.option(
    "--stop",
    multiple=True,
    metavar="TOKEN",
    help="Ends an assistant's turn, besides the tokens that the model names; may be repeated.",
)
@template_options
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def template(
    ctx: click.Context,
    path: str,
    tokenizer: str | None,
    template: Path | None,
    stop: tuple[str, ...],
    date: date | None,
    variables: tuple[str, ...],
    cache: Path | None,
    as_json: bool,
) -> None:
    """Try the chat template at PATH (a tokenizer folder, a GGUF file, a template, or a policy such as local:MODEL)
    and say, property by property, what a trainer would see. Of a template alone, --set bos_token=.. and the like name
    its special tokens. Exit code 0: sound; 1: training on it would be unsound; 2: it cannot be checked."""
    given = read_variables(variables)
    with FetchBar(console(stderr=True)) as fetching:
        report = check_template(
            path,
            tokenizer=tokenizer,
            api_key=api_key(),
            template=template,
            stops=stop,
            date=date,
            variables=given,
            cache=cache,
            progress=fetching,
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


command.add_command(policy)
command.add_command(env)
command.add_command(exporter)
