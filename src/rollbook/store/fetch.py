"""A mirrored run, fetched from an object store into a folder, where `RunReader` reads it like any other.

Rules: each piece is held against its CRC and its place before it is kept; what was fetched before is not fetched again,
and a file that a killed fetch left torn is cut to its last whole piece; two fetches into one folder take turns. The
folder is a copy for reading: what is written into it goes nowhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from rollbook.errors import StoreError
from rollbook.store.append import replace_file
from rollbook.store.objects import Objects
from rollbook.store.pieces import MANIFEST, Pieces, piece_key, sort_pieces, unpack_piece
from rollbook.store.plain_file import open_plain, refuse_links

__all__ = ["fetch_parts", "fetch_run", "holds_run"]


def fetch_run(url: str, cache: Path) -> Path:
    """The folder below `cache` that holds the run at `url` as it is now. Raises `StoreError`.

    A URL under which another run was mirrored since gets another folder.
    """
    objects = Objects(url, make=False)
    files = sort_pieces(objects.list())
    manifest = files.pop(MANIFEST, None)
    if manifest is None:
        raise StoreError(f"{url} holds no run ({MANIFEST} is missing); give the URL that a run was mirrored to")
    first = _piece(objects, MANIFEST, 1, 0)  # never changes
    folder = cache / hashlib.sha256(f"{url.rstrip('/')}\n".encode() + first).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_plain(folder / "fetch.lock", os.O_WRONLY | os.O_CREAT), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            replace_file(folder / MANIFEST, _piece(objects, MANIFEST, len(manifest.ends), 0))
            for name, pieces in files.items():
                _fetch_file(objects, refuse_links(folder, folder / name), name, pieces)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}; give another folder for copies") from error
    return folder


def fetch_parts(url: str, folder: Path, wanted: Callable[[str], bool]) -> list[str]:
    """Fetch what workers on other machines mirrored to `url` into the run's own `folder`, each into its part; returns
    the names of those that are there and `wanted`. A file that is longer here than there was closed here, and stays as
    it is. Nobody may write into these parts meanwhile. Raises `StoreError`."""
    objects, names = Objects(url), set[str]()
    try:
        for file, pieces in sort_pieces(objects.list("writers")).items():
            name = file.split("/")[1]
            if not wanted(name):
                continue
            path = refuse_links(folder, folder / file)
            names.add(name)
            if not path.exists() or path.stat().st_size < pieces.size:
                _fetch_file(objects, path, file, pieces)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
    return sorted(names)


def holds_run(url: str) -> bool:
    """True where a run was mirrored to `url`. Raises `StoreError`."""
    return MANIFEST in sort_pieces(Objects(url).list(MANIFEST))


def _fetch_file(objects: Objects, path: Path, name: str, pieces: Pieces) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "r+b") as file:
        size = os.fstat(descriptor).st_size
        held = pieces.whole(size)
        start = pieces.ends[held - 1] if held else 0
        if size > start:
            file.truncate(start)
        file.seek(start)
        for number in range(held + 1, len(pieces.ends) + 1):
            file.write(_piece(objects, name, number, start))
            start = pieces.ends[number - 1]


def _piece(objects: Objects, name: str, number: int, start: int) -> bytes:
    key = piece_key(name, number)
    return unpack_piece(key, objects.get(key), start)
