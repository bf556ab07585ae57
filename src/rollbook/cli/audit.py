"""`rollbook audit`: the gate between a run and a trainer."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from rollbook.audit import CHECKS, DEFAULT_GATE, Gate, Reencoder, Report, Status, audit
from rollbook.cli.audit_view import show_audit
from rollbook.cli.progress import FetchBar
from rollbook.cli.run_place import RUN_PLACE
from rollbook.cli.screen import console, print_json, visible
from rollbook.cli.template_options import api_key
from rollbook.cli.unfinished import tell_unfinished
from rollbook.errors import ConfigError, UsageError
from rollbook.render import RendererInfo
from rollbook.run import load_renderer, open_run
from rollbook.run.templates import VariablesUnread
from rollbook.store import RunReader
from rollbook.trace import PolicyRecord, TraceHead

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook audit runs/demo
  rollbook audit runs/demo --gate gate.toml --json
  rollbook audit runs/demo --no-model

\b
A gate file is TOML or JSON:
  must_judge = ["alignment", "drift"]
  [limits]
  error_rate = 0.05
  truncated = "none"
"""


@click.command(epilog=EXAMPLES, short_help="Judge a run: 0 fine, 1 a limit broke, 2 cannot be judged.")
@click.argument("run", type=RUN_PLACE)
@click.option("--gate", type=click.Path(path_type=Path), help="A file with limits. [default: the checks' own]")
@click.option(
    "--tokenizer",
    metavar="PATH",
    help="The tokenizer of a run on an engine that no longer runs. [default: as recorded, or as the engine says]",
)
@click.option(
    "--template",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The run's chat template, where that is not where it was. [default: as recorded]",
)
@click.option(
    "--no-model", is_flag=True, help="Do not load the run's tokenizer; checks that need it are then not judged."
)
@click.option("--cache", type=click.Path(path_type=Path), envvar="ROLLBOOK_CACHE", show_envvar=True, help="For models.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    run: Path | str,
    gate: Path | None,
    tokenizer: str | None,
    template: Path | None,
    no_model: bool,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Audit RUN from its record alone. Exit code 0: fine; 1: a limit broke; 2: it cannot be judged."""
    limits = read_gate(gate) if gate is not None else DEFAULT_GATE
    source = open_run(run)
    tell_unfinished(source, run)
    renderer, why = (None, "--no-model was given") if no_model else _find_renderer(source, tokenizer, template, cache)
    found = audit(source, renderer=renderer, gate=limits)
    if why is not None:
        found = _say_why(found, why)
    if as_json:
        print_json(found.to_dict())
    else:
        show_audit(console(), found)
    if not source.report.clean:
        console(stderr=True).print(f"Not everything could be read:\n{visible(str(source.report))}")
    ctx.exit(found.exit_code)


def read_gate(path: Path) -> Gate:
    """The gate in a TOML or JSON file; raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8")
        plain: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"the gate {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"the gate {path} is not valid {kind}: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f"the gate {path} must hold a table at its top: [limits] and what to limit")
    return Gate.from_mapping(cast("dict[str, Any]", plain))


def _find_renderer(
    source: RunReader, tokenizer: str | None, template: Path | None, cache: Path | None
) -> tuple[Reencoder | None, str | None]:
    """The renderer of the policy that the run names, set as it was then, and why it cannot judge all: with another
    template it can judge tokens alone, with another tokenizer nothing, and then it is None."""
    first = next(source.traces(), None)
    if first is None or not first.head.policies:
        return None, "the run holds no rollout"
    record = first.head.policies[0]
    try:
        used = _used(record, first.head)
        with FetchBar(console(stderr=True)) as fetching:
            load = partial(
                load_renderer,
                record.name,
                tokenizer=tokenizer or used.tokenizer,
                api_key=api_key(),
                template=template or used.template,
                date=used.date,
                cache=cache,
                progress=fetching,
            )
            try:
                renderer = load(variables=used.variables)
            except VariablesUnread as other:  # another template than the run's: it can judge tokens alone
                renderer = load(variables={k: v for k, v in used.variables.items() if k not in other.names})
    except UsageError as error:
        return None, f"the tokenizer of '{record.name}' cannot be loaded ({error})"
    if renderer.info.tokenizer_hash != record.tokenizer_hash:
        return None, f"'{record.name}' has another tokenizer now than the run used"
    return renderer, _other_template(record, renderer.info)


@dataclass(frozen=True, slots=True)
class _Used:
    """What the run set of its policy's tokenizer and template."""

    tokenizer: str | None
    template: Path | None
    date: date | None
    variables: dict[str, Any]


class _Asked(msgspec.Struct, frozen=True):
    tokenizer: str | None = None
    template: str | None = None


class _Settings(msgspec.Struct, frozen=True):
    date: date | None = None
    variables: dict[str, Any] = {}


def _used(record: PolicyRecord, head: TraceHead) -> _Used:
    """What the record says of it; raises `ConfigError` where no run could have set that."""
    try:
        asked = msgspec.convert(head.config if head.run else {}, _Asked)
        settings = msgspec.convert(record.template_settings, _Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"its template cannot be set as it was: {error}") from error
    template = None if asked.template is None else Path(asked.template)
    return _Used(asked.tokenizer, template, settings.date, settings.variables)


def _other_template(record: PolicyRecord, found: RendererInfo) -> str | None:
    """Why this renderer writes other prompts than the run had; None where it does not, or where nobody knows."""
    if record.template_hash not in ("", found.template_hash):
        return f"'{record.name}' has another chat template now than the run used; give that one (--template)"
    if record.template_settings != found.settings:
        return f"the template of '{record.name}' was used with settings that cannot be given here"
    return None


def _say_why(found: Report, why: str) -> Report:
    unanswered = {row.name for row in CHECKS if row.needs_renderer}
    checks = tuple(
        msgspec.structs.replace(check, says=f"Not judged: {why}.")
        if check.name in unanswered and check.status is Status.NOT_JUDGED
        else check
        for check in found.checks
    )
    return msgspec.structs.replace(found, checks=checks)
