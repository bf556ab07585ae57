"""The command `rollbook`: finds the commands and turns errors into exit codes.

Exit codes: 0 fine, 1 a check or gate failed, 2 it could not be done (one message on stderr says why and what to do),
130 stopped by the user, 141 nobody read the output to its end. Anything but a `UsageError` is a bug or damaged data and
keeps its traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Protocol, cast

import click

from rollbook.cli.screen import forgive_streams, visible
from rollbook.errors import UsageError, told

__all__ = ["Failed", "Stopped", "app", "main"]

COMMANDS = {
    "run": "rollbook.cli.run",
    "show": "rollbook.cli.show",
    "audit": "rollbook.cli.audit",
    "explain": "rollbook.cli.explain",
    "export": "rollbook.cli.export",
    "score": "rollbook.cli.score",
    "envs": "rollbook.cli.envs",
    "check": "rollbook.cli.check",
}
"""Each command's module, loaded when the command is used: it has a `command`."""


READER_GONE = 141
"""What shells have for a closed pipe."""


class Failed(click.ClickException):
    """It could not be done: one message on stderr."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class Stopped(Failed):
    """The user pressed Ctrl-C; the code is what shells have for it."""

    exit_code = 130


class _Module(Protocol):
    command: click.Command


class Commands(click.Group):
    """The commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return cast("_Module", importlib.import_module(COMMANDS[cmd_name])).command

    def invoke(self, ctx: click.Context) -> Any:
        forgive_streams()
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise Failed(told(error)) from error
        except KeyboardInterrupt as error:
            raise Stopped("stopped") from error
        except BrokenPipeError:
            # whoever read (`| head`) has had enough: what is still buffered goes nowhere, and nothing is said
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_GONE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="rollbook")
def app() -> None:
    """Rollouts for agentic RL: run them, look at them, audit them, hand them to a trainer."""


def main() -> None:
    """The entry point of the console script."""
    app()
