"""The run folder: its marker, its layout, and who may write into it.

A folder is a run if it holds `run.json` of this format; that file is written first, atomically. A folder that exists
and is something else is never written into. Each writer has its own segments and journal, and holds a lock on its own
file `lock`, which the system frees when the process dies, so a stale lock cannot be: the run's owner in the run folder
itself, each worker that joined in its part ``writers/<name>``.

Files have one order over the whole run: the parts by name, the owner's last; within each by number. Where a rollout
stands in two files, the last one counts: the owner's, which it recovered, before the damaged one of a part.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec

from rollbook.errors import NewerFormat, RunLocked, StoreError
from rollbook.store.append import replace_file
from rollbook.store.plain_file import open_plain, read_plain, refuse_links

__all__ = [
    "FOLDER_VERSION",
    "FORMAT_NAME",
    "Manifest",
    "RunLock",
    "annotation_files",
    "annotation_path",
    "create_folder",
    "create_spool",
    "file_order",
    "journal_files",
    "make_subfolders",
    "next_number",
    "numbered_path",
    "part_folder",
    "part_folders",
    "read_manifest",
    "rollbook_version",
    "segment_files",
    "write_manifest",
]

FORMAT_NAME = "rollbook-run"
FOLDER_VERSION = 2
"""Version of the folder's layout: 2 has parts, which a reader of version 1 would pass over."""
_MANIFEST = "run.json"
_LOCK = "lock"
_WRITERS = "writers"
_OWN = ("segments", "journal")
_PART_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_NUMBERED = re.compile(r".+-(\d+)\.(?:seg|jnl)")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `run.json` holds."""

    format: str = FORMAT_NAME
    version: int = FOLDER_VERSION
    created: float
    """Unix seconds."""
    rollbook: str
    """Version of the package that created the run."""
    config: dict[str, Any] = {}
    """The run's configuration as plain JSON data."""


def rollbook_version() -> str:
    """The installed version of this package; ``unknown`` where it runs from a source tree."""
    try:
        return version("rollbook")
    except PackageNotFoundError:
        return "unknown"


def read_manifest(folder: Path) -> Manifest:
    """The marker of a run; raises `StoreError` saying what the folder is instead."""
    path = folder / _MANIFEST
    try:
        what = None if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    except (OSError, ValueError) as error:
        what = f"is no path that can be read ({error})"
    if what is not None:
        raise StoreError(f"{folder} {what}; give the folder of a run (it holds {_MANIFEST})")
    try:
        text = read_plain(path)
    except OSError as error:
        raise StoreError(
            f"{folder} is not a Rollbook run: {_MANIFEST} cannot be read ({error.strerror}). "
            "Give the folder that was named when the run was started."
        ) from error
    try:
        plain: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not valid JSON ({error}); restore it from a copy") from error
    _check_manifest(plain, path)
    try:
        return msgspec.convert(plain, Manifest)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} is damaged: {error}; restore it from a copy") from error


def _check_manifest(plain: Any, path: Path) -> None:
    fields = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}
    if fields.get("format") != FORMAT_NAME:
        raise StoreError(f"{path} belongs to another tool (format {fields.get('format')!r}), not to a Rollbook run")
    found = fields.get("version")
    if isinstance(found, int) and found > FOLDER_VERSION:
        raise NewerFormat(
            f"{path} has format version {found}; this Rollbook reads versions up to {FOLDER_VERSION}. Upgrade Rollbook."
        )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write or replace `run.json` atomically. JSON escapes keep any text, lone surrogates included."""
    plain = json.dumps(msgspec.to_builtins(manifest), indent=2)
    replace_file(folder / _MANIFEST, plain.encode("ascii") + b"\n")


def create_folder(folder: Path, config: Mapping[str, Any]) -> Manifest:
    """Make a new run folder; raises `StoreError` where something else is there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = [entry.name for entry in folder.iterdir() if entry.name != f".{_MANIFEST}.tmp"]
        if present:
            is_run = _MANIFEST in present
            remedy = "open it to continue it, or" if is_run else "It is not a Rollbook run and is left alone;"
            raise StoreError(f"{folder} is not empty ({present[0]} ...). {remedy} choose a new folder")
        manifest = Manifest(created=time.time(), rollbook=rollbook_version(), config=dict(config))
        write_manifest(folder, manifest)
        make_subfolders(folder, annotations=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
    return manifest


def create_spool(folder: Path, manifest: Manifest) -> None:
    """A folder on a machine of its own in which a worker can `join` the run of `manifest`, to mirror its part from
    there. One that is there already for the same run is kept; raises `StoreError` where something else is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _MANIFEST).exists():
            if read_manifest(folder).created != manifest.created:
                raise StoreError(f"{folder} belongs to another run; choose a new folder for the spool")
        elif any(folder.iterdir()):
            raise StoreError(f"{folder} is not empty and no spool; choose a new folder")
        else:
            write_manifest(folder, manifest)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}") from error


def make_subfolders(folder: Path, *, annotations: bool) -> None:
    """Make the subfolders of a run or of a part that are not there."""
    for name in (*_OWN, "annotations") if annotations else _OWN:
        refuse_links(folder, folder / name).mkdir(parents=True, exist_ok=True)


def part_folder(folder: Path, name: str) -> Path:
    """The part of the writer `name`; raises `StoreError` where that is no name for one."""
    if not _PART_NAME.fullmatch(name):
        raise StoreError(
            f"'{name[:40]}' cannot name a writer; use 1 to 100 letters, digits, '-', '_' and '.', not '.' first"
        )
    return refuse_links(folder, folder / _WRITERS / name)


def part_folders(folder: Path) -> list[Path]:
    """The parts that writers made, by name; a part has none itself. What no writer can be called is not ours."""
    named = (path for path in refuse_links(folder, folder / _WRITERS).glob("*") if _PART_NAME.fullmatch(path.name))
    return sorted(refuse_links(folder, path) for path in named if path.is_dir())


def segment_files(folder: Path) -> list[Path]:
    """All segments of a run with its parts, or of one part, in their order."""
    return _files(folder, "segments", "*.seg")


def journal_files(folder: Path) -> list[Path]:
    """All generations of the journals, likewise."""
    return _files(folder, "journal", "*.jnl")


def _files(folder: Path, under: str, pattern: str) -> list[Path]:
    places = [refuse_links(place, place / under) for place in (*part_folders(folder), folder)]
    return [path for place in places for path in sorted(place.glob(pattern), key=_number_order)]


def annotation_files(folder: Path) -> list[Path]:
    """All streams of annotations."""
    return sorted(refuse_links(folder, folder / "annotations").glob("*.ann"))


def file_order(folder: Path, path: Path) -> tuple[bool, str, int, str]:
    """The order of a run's segments, and of its journals: the sort key of one of them."""
    place = path.parent.parent
    return place == folder, place.name, *_number_order(path)


def _number_order(path: Path) -> tuple[int, str]:
    match = _NUMBERED.fullmatch(path.name)
    return (int(match[1]) if match else -1), path.name


def next_number(files: list[Path]) -> int:
    """The number of the next file: one more than the newest."""
    return 1 + max((_number_order(path)[0] for path in files), default=0)


def numbered_path(folder: Path, under: str, writer: str, number: int, suffix: str) -> Path:
    """`<under>/<writer>-<n>.<suffix>`."""
    return folder / under / f"{writer}-{number:06d}.{suffix}"


def annotation_path(folder: Path, producer: str) -> Path:
    """The stream of one producer; odd characters of its name are percent-encoded."""
    name = quote(producer, safe="", errors="surrogatepass").replace(".", "%2E")
    if not 1 <= len(name) <= 200:
        raise StoreError(f"'{producer[:40]}' cannot name a producer of annotations; use 1 to 200 plain characters")
    return refuse_links(folder, folder / "annotations") / f"{name}.ann"


class RunLock:
    """The right to write into a run or a part of it, held until `release` or the death of the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, folder: Path) -> None:
        path = folder / _LOCK
        try:
            self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 4096, 0).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise RunLocked(
                f"{folder} is being written by another process ({holder or 'which just started'}). Wait for it, stop "
                "it, or write into another folder; reading is possible meanwhile."
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise StoreError(f"{path} cannot be locked on this file system: {error.strerror}") from error
        holder = f"pid {os.getpid()} on {socket.gethostname()}"
        # one length for all holders: cutting a file to nothing and closing it makes some file systems flush it
        os.pwrite(self._descriptor, f"{holder:<127.127}\n".encode("utf-8", "replace"), 0)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the right back; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
