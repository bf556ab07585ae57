"""The command line in this process, and the runs that its tests look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from rollbook.cli import app
from tests.render.families import template
from tests.run.run_made import CALL, script

SAID = (CALL, "It is 8.")


def rollbook(*words: str | Path) -> Result:
    """Run one command; a bug's traceback is raised here."""
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="rollbook")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(result: Result) -> str:
    """The one message of a command that could not do it."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    return result.stderr


def document(result: Result) -> Any:
    """The one JSON document on stdout."""
    return json.loads(result.stdout)


def dated_template(folder: Path, name: str = "dated.jinja") -> Path:
    """A template that asks for the day and tells a variable."""
    path = folder / name
    path.write_text("{{ strftime_now('%d %b %Y') }}{{ place }}" + template("smollm2"))
    return path


def dated_words(path: Path) -> tuple[str, ...]:
    """What such a template is given."""
    return ("--template", str(path), "--date", "2026-01-31", "--set", "place=Rome")


def made_run(tmp_path: Path, *words: str, said: tuple[str, ...] = SAID, name: str = "run") -> Path:
    """A finished run of two groups of two."""
    policy = script(tmp_path / f"model-{name}", *said)
    sizes = ("--tasks", "2", "--group", "2")
    result = rollbook("run", "test-double", "--policy", policy, *sizes, "--out", tmp_path / name, *words)
    assert result.exit_code == 0, result.output
    return tmp_path / name
