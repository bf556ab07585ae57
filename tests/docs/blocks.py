"""Fenced blocks of the documentation.

Words behind the language say how a block is run (GitHub shows only the language):

- ``python``: in a namespace of its own. ``python continued``: in that of the block before. ``python model``: as a
  program of its own, for it needs the real model.
- ``console``: lines that begin with ``$`` are run, and what stands below them is compared. ``console not-run WHY``:
  they are not run.
- ``text output``: what the block before prints.

Whitespace and rulers are not compared; ``...`` stands for anything, on a line of its own for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^```(\w*)([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int
    """Of its first line of text, from 1."""

    @property
    def program(self) -> str:
        """The text, on the lines on which it stands in the page."""
        return "\n" * (self.line - 1) + self.text


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], tuple(found[2].split()), found[3], text.count("\n", 0, found.start(3)) + 1)
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with what stands below it."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, shown = found[-1]
            found[-1] = (command, f"{shown}{line}\n")
    return found


def plain(text: str) -> str:
    """Lines without rulers, empty lines and repeated blanks."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line.strip("─"))


def agrees(shown: str, printed: str) -> bool:
    """True where what a page shows is what was printed."""
    lines = ["(?:.*\n)*?" if line == "..." else _line(line) for line in plain(shown).splitlines()]
    return re.fullmatch("".join(lines), f"{plain(printed)}\n") is not None


def _line(line: str) -> str:
    return ".*".join(re.escape(part.strip()).replace(r"\ ", " ") for part in line.split("...")) + "\n"
