"""The table for people and the JSON for programs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.rows import Row

__all__ = ["machine", "marks", "replace_table", "table", "versions"]

PACKAGES = (
    "rollbook",
    "numpy",
    "msgspec",
    "zstandard",
    "tokenizers",
    "jinja2",
    "jsonschema",
    "aiohttp",
    "transformers",
    "renderers",
)
_HEAD = ("what", "value", "target", "met", "beside", "ratio", "how")
_VERDICTS = {True: "yes", False: "NO", None: "-"}


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, in even columns."""
    lines = [_HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        f"{_number(row.value)} {row.unit}",
        "-" if row.target is None else str(row.target),
        _VERDICTS[row.met],
        "-" if row.peer is None else f"{row.peer.name}: {_number(row.peer.value)} {row.unit}",
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        row.how,
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
    }


def _cpu_model() -> str:
    """The CPU's name as the system gives it."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in path.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else "unknown"


def versions() -> dict[str, str | None]:
    """Versions of what takes part; None where a package is not installed."""
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def marks(name: str) -> tuple[str, str]:
    """What stands before and behind a table in a document."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace_table(path: Path, text: str, name: str = "bench") -> None:
    """Put `text` between the `marks` of a document. Raises `ValueError` where it has none."""
    first, last = marks(name)
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path} has no markers {first} and {last}")
    path.write_text(f"{before}{first}\n{text}\n{last}{after}")
