"""Every example of README and docs runs, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollbook.cli import app
from tests.docs.blocks import PAGES, ROOT, Block, agrees, blocks, commands

MARKS = {"python": ("continued", "model"), "console": ("not-run",), "text": ("output",)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, folder: Path) -> None:
    found = blocks(page)
    namespace: dict[str, object] = {}
    for block, after in zip(found, [*found[1:], None], strict=False):
        shown = after.text if after is not None and after.words == ("output",) else None
        assert set(block.words[:1]) <= {*MARKS.get(block.language, ())}, block
        if block.language == "python" and block.words != ("model",):
            namespace = namespace if block.words == ("continued",) else {"__name__": "__main__"}
            _check(page, block, shown, _run_python(page, block, namespace))
        elif block.language == "console" and block.words[:1] != ("not-run",):
            _run_console(page, block)


def test_a_block_that_is_not_run_says_why() -> None:
    reasons = [block.words[1:] for page in PAGES for block in blocks(page) if block.words[:1] == ("not-run",)]
    assert all(reasons)


def test_each_page_has_run_folders_of_its_own() -> None:
    """So pages can be followed one after the other, in any order. What they write lies in `runs/`."""
    folders = {page: _folders(page) for page in PAGES}
    named = [folder for each in folders.values() for folder in each]
    assert len(named) > 5
    assert len(named) == len(set(named)), folders
    assert all(folder.startswith("runs/") for folder in named)


def _folders(page: Path) -> set[str]:
    text = "\n".join(block.text for block in blocks(page) if block.language in ("console", "python"))
    commands_write = r"--out (\S+)|--to \w+ (\S+)|scripted_replies.py (\S+)"
    written = commands_write + r"|RunWriter\.create\(\"(\S+)\"|Path\(\"(\S+)\"\)\.write_text"
    found = {name for groups in re.findall(written, text) for name in groups if name}
    return found - {"runs/scripts"}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_scripts(example: Path, folder: Path) -> None:
    assert _script(example, []) != ""


def _run_python(page: Path, block: Block, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.program, str(page), "exec"), namespace)
    return printed.getvalue()


def _run_console(page: Path, block: Block) -> None:
    """Run the commands. One that is not followed by ``echo $?`` must succeed."""
    code, asked = 0, commands(block)
    following = [command for command, _ in asked[1:]] + [""]
    for (command, shown), after in zip(asked, following, strict=True):
        if command == "echo $?":
            printed = str(code)
        else:
            printed, code = _command(command)
            assert after == "echo $?" or code == 0, f"{page.name}: {command}: exit code {code}\n{printed}"
        _check(page, block, shown or None, printed)


def _command(command: str) -> tuple[str, int]:
    match shlex.split(command):
        case ["rollbook", *words]:
            result = CliRunner().invoke(app, words, prog_name="rollbook")
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return result.output if result.exit_code == 2 else result.stdout, result.exit_code
        case ["python", script, *words] if script.startswith("examples/"):
            return _script(ROOT / script, words), 0
        case ["cat", file]:
            return Path(file).read_text(), 0
        case _:
            raise AssertionError(f"no way to run {command!r} here; mark its block not-run, with the reason")


def _script(path: Path, words: list[str]) -> str:
    printed, arguments = io.StringIO(), sys.argv
    sys.argv = [str(path), *words]
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = arguments
    return printed.getvalue()


def _check(page: Path, block: Block, shown: str | None, printed: str) -> None:
    if shown is not None:
        assert agrees(shown, printed), f"{page.name}:{block.line} shows\n{shown}\nand it printed\n{printed}"
