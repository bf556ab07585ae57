"""Copying a run to an object store while it is written: ``run.json``, segments and annotations, in pieces.

Rules: only whole frames go, so that a tail which a later repair cuts was never sent; nothing is ever overwritten, and
a number is taken by whoever writes it first, so several mirrors of one file agree or the later one is refused; what
was sent last is held against the local file before more is sent. A mirror that died is made anew and goes on behind
what is there. The journal is not sent: what is in flight lives and dies with its machine.

Workers on several machines write into spool folders (`create_spool`) and mirror their own part into the URL that the
run's owner mirrors the rest into.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import msgspec

from rollbook.errors import StoreError
from rollbook.store.folder import annotation_files, part_folder, read_manifest, segment_files
from rollbook.store.frame import Frame
from rollbook.store.objects import Objects
from rollbook.store.pieces import (
    HEADER,
    MANIFEST,
    PIECE_BYTES,
    Pieces,
    fits,
    pack_piece,
    piece_crc,
    piece_key,
    sort_pieces,
    unpack_piece,
)
from rollbook.store.plain_file import open_plain, read_plain
from rollbook.store.scan import open_frames

__all__ = ["MirrorReport", "ObjectMirror"]


class MirrorReport(msgspec.Struct, kw_only=True):
    """What a mirror has sent so far."""

    objects: int = 0
    bytes: int = 0
    """Of the files; headers of pieces apart."""
    conditional: bool = True
    """False: the store offers no conditional writes; then one mirror a part is the caller's business."""


@dataclass(slots=True)
class _Sent:
    """What is there of one file."""

    pieces: Pieces
    crc: int = 0
    """Of the last piece."""
    start: int = 0
    """Where it begins."""
    walked: int = 0
    """Behind the last frame that was looked at."""
    checked: bool = False
    """True: what was sent last was held against the local file since it was sent."""


class ObjectMirror:
    """Copies a run, or one part of it, to an object store. Safe to use from several threads; all calls block."""

    __slots__ = ("_files", "_folder", "_guard", "_objects", "_part", "_parts", "piece_bytes", "report")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        url: str | Objects,
        *,
        part: str | None = None,
        parts: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """`part`: mirror the part of this writer alone, without ``run.json`` and annotations; None: all that the folder
        holds. `parts`: False leaves out the parts of writers who mirror them themselves. Raises `StoreError` where the
        URL holds another run."""
        self._folder, self._part = Path(folder).absolute(), part
        self._parts = parts
        if part is not None:
            part_folder(self._folder, part)  # a name that cannot be is refused here
        self._objects = Objects(url) if isinstance(url, str) else url
        self._guard = Lock()
        self.piece_bytes = piece_bytes
        self.report = MirrorReport()
        listing = sort_pieces(self._objects.list())
        self._files = {name: self._known(name, pieces) for name, pieces in listing.items() if self._is_mine(name)}
        self._refuse_another(listing.get(MANIFEST))

    def sync(self) -> MirrorReport:
        """Send what is new; returns what was sent since the mirror was made.

        Raises `StoreError`; a later call goes on where this one stopped.
        """
        with self._guard:
            if self._part is None:
                self._send_manifest()
            for path in self._paths():
                self._send_file(path)
            self.report.conditional = self._objects.conditional
            return msgspec.structs.replace(self.report)

    def _is_mine(self, name: str) -> bool:
        return self._part is None or name.startswith(f"writers/{self._part}/")

    def _paths(self) -> list[Path]:
        if self._part is not None:
            return segment_files(part_folder(self._folder, self._part))
        own = [path for path in segment_files(self._folder) if self._parts or path.parent.parent == self._folder]
        return own + annotation_files(self._folder)

    def _known(self, name: str, pieces: Pieces) -> _Sent:
        key = piece_key(name, len(pieces.ends))
        crc, start = piece_crc(key, self._objects.get(key, HEADER))
        if start != (0 if name == MANIFEST else pieces.last_start):
            raise StoreError(f"the object {key} is not what was written; restore it")
        return _Sent(pieces, crc, start)

    def _refuse_another(self, pieces: Pieces | None) -> None:
        ours = read_manifest(self._folder)
        if pieces is None:
            return
        key = piece_key(MANIFEST, len(pieces.ends))
        try:
            theirs = msgspec.json.decode(unpack_piece(key, self._objects.get(key), 0), type=_Born)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self._objects.url}: the object {key} is no run's {MANIFEST} ({error})") from error
        if theirs.created != ours.created:
            raise StoreError(f"{self._objects.url} holds another run; mirror into a URL of its own")

    def _send_manifest(self) -> None:
        try:
            data = read_plain(self._folder / MANIFEST)
        except OSError as error:
            raise StoreError(f"{self._folder / MANIFEST} cannot be read: {error.strerror}") from error
        sent = self._files.setdefault(MANIFEST, _Sent(Pieces()))
        if sent.pieces.ends and fits(sent.crc, 0, data):
            return
        if self._send_piece(MANIFEST, sent, 0, data) != data:
            raise StoreError(f"{self._objects.url}: somebody else mirrors {MANIFEST}; a run has one owner")

    def _send_file(self, path: Path) -> None:
        name = path.relative_to(self._folder).as_posix()
        sent = self._files.setdefault(name, _Sent(Pieces()))
        try:
            descriptor = open_plain(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # a segment without a whole frame goes when it is repaired
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        try:
            if sent.checked and os.fstat(descriptor).st_size == sent.pieces.size:
                return
            self._check_last(name, sent, descriptor)
            sent.walked = max(_whole_end(path, sent.walked), sent.walked)
            while (start := sent.pieces.size) < sent.walked:
                data = os.pread(descriptor, min(sent.walked - start, self.piece_bytes), start)
                self._send_piece(name, sent, start, data)
                self._check_last(name, sent, descriptor)
        finally:
            os.close(descriptor)

    def _check_last(self, name: str, sent: _Sent, descriptor: int) -> None:
        sent.checked = True
        if not sent.pieces.ends:
            return
        last = os.pread(descriptor, sent.pieces.size - sent.start, sent.start)
        if not fits(sent.crc, sent.start, last):
            raise StoreError(
                f"{name} is not what was mirrored to {self._objects.url} (it was redacted, or another writer has its "
                "name); mirror into a new URL, and remove the old objects"
            )

    def _send_piece(self, name: str, sent: _Sent, start: int, data: bytes) -> bytes:
        """Send the next piece; returns what it holds now, which the caller checks: where another mirror was faster, or
        the answer to an earlier attempt was lost, it is what was there."""
        key, piece = piece_key(name, len(sent.pieces.ends) + 1), pack_piece(start, data)
        if self._objects.put_new(key, piece):
            self.report.objects += 1
            self.report.bytes += len(data)
        else:
            piece = self._objects.get(key)
            data = unpack_piece(key, piece, start)
        sent.crc, sent.start = piece_crc(key, piece)
        sent.pieces.ends.append(start + len(data))
        return data


class _Born(msgspec.Struct):
    """What tells one run from another."""

    created: float


def _whole_end(path: Path, start: int) -> int:
    """Where the last whole frame behind `start` ends."""
    end = start
    with open_frames(path) as file:
        for found in file.walk(start):
            if isinstance(found, Frame):
                end = found.end
            elif found.reason.passed:
                end += found.bytes
            else:
                break
    return end
