"""What every command keeps: help with examples, exit codes, one message for mistakes, tracebacks for bugs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rollbook.cli import app
from rollbook.cli.app import COMMANDS, Commands
from rollbook.errors import RecordError, UsageError
from rollbook.store import RunWriter
from tests.cli.cli_made import made_run, refused, rollbook


def raising(error: BaseException) -> Commands:
    """The group with a single command, which raises."""

    class One(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            def callback() -> None:
                raise error

            return click.Command(cmd_name, callback=callback)

    return One()


def test_help_names_every_command() -> None:
    result = rollbook("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name: str) -> None:
    result = rollbook(name, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n    rollbook {name}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_an_unknown_command_is_refused() -> None:
    assert "No such command 'walk'" in refused(rollbook("walk"))


def test_a_users_mistake_is_one_message_and_exit_code_2() -> None:
    result = CliRunner().invoke(raising(UsageError("do this \x1b[31minstead")), ["x"])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "Error: do this \\x1b[31minstead\n")


def test_ctrl_c_is_exit_code_130() -> None:
    result = CliRunner().invoke(raising(KeyboardInterrupt()), ["x"])
    assert (result.exit_code, result.stderr) == (130, "Error: stopped\n")


@pytest.mark.parametrize("error", [RecordError("damaged"), ValueError("a bug")])
def test_damaged_data_and_bugs_keep_their_traceback(error: Exception) -> None:
    assert CliRunner().invoke(raising(error), ["x"]).exception is error


COMMANDS_ON_RUNS = [("show",), ("audit", "--no-model"), ("export", "--to", "jsonl", "out.jsonl")]


@pytest.mark.parametrize("words", COMMANDS_ON_RUNS, ids=lambda words: words[0])
class TestBadRuns:
    def test_a_missing_run(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        assert "does not exist" in refused(rollbook(words[0], tmp_path / "missing", *words[1:]))

    def test_a_folder_of_another_tool(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        (tmp_path / "run.json").write_text('{"format": "wandb"}')
        assert "belongs to another tool" in refused(rollbook(words[0], tmp_path, *words[1:]))

    def test_a_folder_that_is_no_run(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        assert "is not a Rollbook run" in refused(rollbook(words[0], tmp_path, *words[1:]))

    def test_a_run_of_a_newer_version(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        RunWriter.create(tmp_path / "run").close()
        marker = tmp_path / "run" / "run.json"
        marker.write_text(marker.read_text().replace('"version": 2', '"version": 99'))
        assert "Upgrade Rollbook" in refused(rollbook(words[0], tmp_path / "run", *words[1:]))


def test_a_run_that_is_being_written_can_be_read(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    with RunWriter.open(folder):
        assert rollbook("show", folder).exit_code == 0


def test_a_terminal_that_cannot_spell_it_does_not_stop_a_command(tmp_path: Path) -> None:
    folder = made_run(tmp_path, said=("数学 8 \ud800 🙂 é",))
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-m", "rollbook.cli", "show", folder, "0001-1"],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\u6570\\u5b66 8" in done.stdout


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "rollbook.cli", "--help"], capture_output=True, text=True, check=True)
    assert "python -m rollbook.cli" in done.stdout
    assert app.name == "app"


@pytest.mark.parametrize("words", [[], ["0000-0", "--full"], ["--json"]])
def test_a_reader_that_has_had_enough_ends_it_without_a_word(tmp_path: Path, words: list[str]) -> None:
    folder = made_run(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.cli", "show", folder, *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
