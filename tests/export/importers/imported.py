"""Foreign files for the tests, and what is read of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollbook.export.importers import Book, find_importer, guess_form, read_into
from rollbook.trace import MemorySink, Trace

DATA = Path(__file__).parent / "data"
"""Real files, made by the scripts in ``make``."""

FORMS = {
    "atif.json": "atif",
    "atif_ids.json": "atif",
    "inspect.eval": "inspect",
    "prime_rl.jsonl": "prime_rl",
    "slime.pt": "slime",
    "verifiers.jsonl": "verifiers",
    "verifiers_legacy.jsonl": "verifiers",
    "verl.jsonl": "verl",
}
"""Each file's form."""


def read(path: Path, form: str | None = None, **options: Any) -> list[Trace]:
    """The traces of a file."""
    sink = MemorySink()
    importer = find_importer(form or guess_form(path))
    read_into(sink, importer, path, Book(importer.name, path.name, "run"), **options)
    return list(sink.traces())


def data(name: str) -> list[Trace]:
    return read(DATA / name)


def lines(path: Path, *rows: Any) -> Path:
    """A JSON Lines file; a text is a line as it is."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def first_row(name: str) -> Any:
    return json.loads((DATA / name).read_text().partition("\n")[0])


def endings(traces: list[Trace]) -> list[str]:
    return [str(trace.ending) for trace in traces]


def said(trace: Trace) -> list[tuple[str, str, str]]:
    """Role, origin and text of each node."""
    return [(str(node.message.role), str(node.origin), node.message.content) for node in trace.graph]
