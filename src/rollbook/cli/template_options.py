"""What may be set of a model on the command line: the tokenizer of one behind a URL, and of its chat template the text,
the day that it is told and its variables; and the key that opens an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import click

from rollbook.errors import ConfigError

__all__ = ["api_key", "read_pairs", "read_variables", "template_options"]


class _Day(click.ParamType[date]):
    """A day; shown as it was typed, so that a command line can be made of it again."""

    name = "YYYY-MM-DD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no day; write it as YYYY-MM-DD", param, ctx)


def template_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--tokenizer``, ``--template``, ``--date`` and ``--set``, as the parameters `tokenizer`, `template`, `date` and
    `variables`."""
    for option in (
        click.option(
            "--set",
            "variables",
            multiple=True,
            metavar="NAME=VALUE",
            help="A template variable; VALUE is JSON or text.",
        ),
        click.option("--date", type=_Day(), help="The day that a template may ask for."),
        click.option(
            "--template",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A chat template to use instead of the model's own.",
        ),
        click.option(
            "--tokenizer",
            metavar="PATH",
            help="Of an engine's model: a folder, a GGUF file or local:MODEL. [default: as the engine says]",
        ),
    ):
        command = option(command)
    return command


def api_key() -> str | None:
    """The key that is sent to an engine: `ROLLBOOK_API_KEY` of the environment; None: none is set."""
    return os.environ.get("ROLLBOOK_API_KEY") or None


def read_variables(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The template variables of ``--set``."""
    return read_pairs(pairs, "--set", "NAME=VALUE", "enable_thinking=false")


def read_pairs(pairs: tuple[str, ...], option: str, form: str, example: str) -> dict[str, Any]:
    """Names and values; a value is read as JSON where it is JSON, and as text otherwise. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"{option} {pair!r}: write {form}, e.g. {option} {example}")
        if key in found:
            raise ConfigError(f"{option} {key} is given twice")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
        except RecursionError as error:
            raise ConfigError(f"{option} {key}: its value is nested too deep") from error
    return found
