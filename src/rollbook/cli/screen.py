"""What reaches the terminal: text that cannot steer it, tables of at most 100 columns, one JSON document.

Rules: text from traces, files and errors is untrusted; its control characters are shown, not sent (`visible`), and it
is never read as markup. Results go to stdout, everything else to stderr. A stream that cannot spell a character gets
its escape.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "MISSING",
    "console",
    "counted",
    "counts",
    "fold",
    "forgive_streams",
    "number",
    "print_json",
    "share",
    "show_table",
    "visible",
]

WIDTH = 100
"""The most columns that tables take."""
LEAST = 40
"""The fewest; narrower screens wrap."""
MISSING = "-"
"""How absent values are shown: absent is not zero."""

_SHOWN_KINDS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_HARMLESS = frozenset("\n\t\u200c\u200d")


def forgive_streams() -> None:
    """Let stdout and stderr write an escape for what their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command line ends as for any other output (`rollbook.cli.app`)


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is."""
    made = _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    told = made.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    made.width = max(LEAST, min(WIDTH, made.width)) if told else WIDTH
    return made


def visible(text: str) -> str:
    """`text` with everything that could move a cursor, colour, reorder or hide text spelled as an escape."""
    if text.isprintable():
        return text
    return "".join(_spell(char) for char in text)


def _spell(char: str) -> str:
    if char in _HARMLESS or unicodedata.category(char) not in _SHOWN_KINDS:
        return char
    code = ord(char)
    if char == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fold(text: str, most: int, *, full: bool) -> str:
    """At most about `most` characters of `text`: its head and its tail, and between them what is left out."""
    if full or len(text) <= most:
        return text
    head, tail = most * 3 // 4, most // 4
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out; --full shows them ...]\n{text[-tail:]}"


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; what is absent is shown as missing."""
    if value is None:
        return MISSING
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return MISSING if value is None else f"{100 * value:.1f} %"


def counted(number: int, thing: str) -> str:
    """``1 rollout``, ``2 rollouts``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def counts(things: Mapping[Any, int], nothing: str = "none") -> str:
    """How many of each, in their order; `nothing` where there are none."""
    return ", ".join(f"{count} {thing}" for thing, count in things.items()) or nothing


def show_table(
    out: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, form: str = ""
) -> None:
    """Print a table. `form`: one letter a column, ``r``: to the right, ``k``: kept on one line; ``l`` otherwise."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, show_header=any(heads)
    )
    for place, head in enumerate(heads):
        letter = form[place : place + 1]
        longest = max((len(line) for row in rows for line in row[place].split("\n")), default=0)
        table.add_column(
            head,
            justify="right" if letter == "r" else "left",
            overflow="fold",
            no_wrap=letter == "k",
            min_width=max(min(longest, 12), *map(len, head.split(" "))),
        )
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    _print_trimmed(out, table)


def _print_trimmed(out: Console, table: Table) -> None:
    """A table without the spaces behind its lines, which a file or a pipe would keep."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()), soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout; a number that JSON lacks is written as text."""
    sys.stdout.write(f"{json.dumps(_finite(document), indent=1, allow_nan=False)}\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _finite(item) for key, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_finite(item) for item in cast("list[Any]", value)]
        case _:
            return value
