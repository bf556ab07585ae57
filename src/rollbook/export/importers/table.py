"""The importers by form, and how a file tells its own.

Rules: a form is guessed only where the file says it unmistakably: by fields that no other form has, in its first row
or its archive's members. What is not told is asked for. An importer is one module with `rows`, the rows of a file as
far as it can be read, and `traces`, the traces of one row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from rollbook.errors import UsageError
from rollbook.export.importers import atif, inspect_ai, prime_rl, slime, verifiers, verl
from rollbook.export.importers.archive import is_archive, opened_archive
from rollbook.export.importers.book import Book
from rollbook.export.importers.rows import Row, opened
from rollbook.trace.trace import Trace

__all__ = ["IMPORTERS", "Importer", "find_importer", "guess_form"]

_HEAD = 1 << 20
"""Bytes in which a file must tell its form."""


class _ImporterModule(Protocol):
    def rows(self, path: Path) -> Iterator[Row]: ...

    def traces(self, plain: Any, book: Book) -> Iterator[Trace]: ...


@dataclass(frozen=True, slots=True)
class Importer:
    """One form that can be read."""

    name: str
    about: str
    """One sentence."""
    module: _ImporterModule
    """Its `rows` and `traces`."""


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        importer.name: importer
        for importer in (
            Importer("slime", "Debug rollout files of slime and Miles (.pt), token-exact.", slime),
            Importer("verl", "Rollout dumps of verl (JSONL), text.", verl),
            Importer("prime_rl", "Token exports and episodes of prime-rl (JSONL), token-exact.", prime_rl),
            Importer("verifiers", "Episodes, traces and result rows of verifiers (JSONL).", verifiers),
            Importer("atif", "Trajectories of Harbor and Terminal-Bench (JSON), with ids where they hold some.", atif),
            Importer("inspect", "Logs of Inspect AI (.eval, .json), text.", inspect_ai),
        )
    }
)
"""All forms by name."""


def find_importer(name: str) -> Importer:
    """An importer by name; raises `UsageError` with the names there are."""
    found = IMPORTERS.get(name)
    if found is None:
        raise UsageError(f"no form {name!a} can be imported; forms: {', '.join(IMPORTERS)}")
    return found


def guess_form(path: Path) -> str:
    """The form that a file tells; raises `UsageError` where it tells none."""
    found = _archive_form(path) if is_archive(path) else _text_form(path)
    if found is None:
        raise UsageError(f"{path} does not tell what form it has; name it (--from {', '.join(IMPORTERS)})")
    return found


def _archive_form(path: Path) -> str | None:
    with opened_archive(path) as archive:
        names = archive.names
    if any(name.count("/") == 1 and name.endswith("/data.pkl") for name in names):
        return "slime"
    return "inspect" if "header.json" in names and any(name.startswith("samples/") for name in names) else None


def _text_form(path: Path) -> str | None:
    with opened(path) as file:
        head = file.read(_HEAD)
    try:
        first: Any = json.loads(head.partition(b"\n")[0] if b"\n" in head else head)
    except (ValueError, RecursionError):
        return _document_form(head)
    return _row_form(cast("dict[str, Any]", first)) if isinstance(first, dict) else None


def _document_form(head: bytes) -> str | None:
    """A document over several lines, or one too long to be read whole here: by the names it begins with."""
    if b'"schema_version"' in head and b'"ATIF-v' in head:
        return "atif"
    return "inspect" if b'"eval_id"' in head and b'"task_id"' in head else None


def _row_form(row: dict[str, Any]) -> str | None:
    names = row.keys()
    if str(row.get("schema_version")).startswith("ATIF-"):
        return "atif"
    if {"input", "output", "gts", "score", "step"} <= names:
        return "verl"
    if {"token_ids", "loss_mask", "inference_logprobs"} <= names:
        return "prime_rl"
    if {"traces", "task"} <= names or {"nodes", "task", "rewards"} <= names or {"example_id", "completion"} <= names:
        return "verifiers"
    return "inspect" if {"eval", "samples"} <= names else None
