"""A foreign file becomes a run.

Rules: the run is written beside its place and takes it when it is whole, so nothing half-written is left; its id
follows from the file's bytes, so the same file always becomes the same run; the manifest says what was imported, and
that nothing was planned, so the run can be read and not resumed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from rollbook.errors import StoreError, UsageError
from rollbook.export.importers import Book, ReadReport, file_hash, find_importer, guess_form, read_into
from rollbook.run.summary_table import write_summary_table
from rollbook.store import RunWriter, StoreOptions, Sync

__all__ = ["ImportReport", "import_traces"]


class ImportReport(ReadReport, frozen=True, kw_only=True):
    """What an import made."""

    form: str
    """By name."""
    guessed: bool
    """True where the file told its form."""
    run: str
    """The run's id."""
    out: str
    """The run's folder."""
    sha256: str
    """Of the file's bytes, in hex."""


def import_traces(
    path: str | os.PathLike[str],
    form: str | None = None,
    out: str | os.PathLike[str] = "",
    *,
    skip_bad: bool = False,
) -> ImportReport:
    """Make a run in the new folder `out` of the records in the file `path`.

    `form`: one of `rollbook.export.importers.IMPORTERS`; None: the one that the file tells. `skip_bad`: leave out rows
    that break their form, and count them. Raises `UsageError` where file, form or a row is unusable, `StoreError` where
    the folder cannot be written; nothing is left behind then.
    """
    file, folder = Path(path), Path(os.path.realpath(out)) if os.fspath(out) else None
    if folder is None:
        raise UsageError("an import needs a new folder for the run (out)")
    importer = find_importer(form if form is not None else guess_form(file))
    digest = file_hash(file)
    run = hashlib.sha256(f"{importer.name} {digest}".encode()).hexdigest()[:8]
    told = {"form": importer.name, "file": file.name, "sha256": digest}
    with _Place(folder) as place:
        with RunWriter.create(place, {"imported": told}, options=StoreOptions(sync=Sync.NONE)) as writer:
            found = read_into(writer, importer, file, Book(importer.name, file.name, run), skip_bad=skip_bad)
        write_summary_table(place)
    fields = msgspec.structs.asdict(found)
    return ImportReport(**fields, form=importer.name, guessed=form is None, run=run, out=os.fspath(out), sha256=digest)


class _Place:
    """A folder beside the one that is asked for, which it becomes when all went well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        folder = self._folder
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StoreError(f"{folder} is there already and not empty; choose a new folder for the run")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}.", suffix=".part"))
        except OSError as error:
            raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
        return self._made

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._made.chmod(0o777 & ~_umask())
                self._made.rename(self._folder)
        except OSError as error:
            raise StoreError(f"{self._folder} cannot be made: {error.strerror}") from error
        finally:
            shutil.rmtree(self._made, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
