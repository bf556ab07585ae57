"""Rates that all processes of a machine keep together: a provider counts the calls of an account, not of a process.

The last grants stand in one small file under a lock. A grant is given to who is there to use it at once, never for
later, so the times in the file are those at which the calls went out. Rules: never more than `per_second` grants,
rounded up to a whole number, in any second; never more than `burst` in the time that so many take; none before a
pause ends. Asking never waits, not even for the lock. Times are of the machine's monotonic clock, which begins anew
when the machine does: what lies in the future is no grant, and a pause is at most an hour.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import re
import struct
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rollbook.errors import StoreError

__all__ = ["SharedRate", "rates_folder"]

MARGIN = 1.01
"""Every window is so much longer than it need be: between the grant and the call something may hold a process up."""
BUSY = 0.001
"""Seconds to wait where another process has the lock, more or less."""
KEPT = 256
"""Grants that stand in the file, at least: another process may count over more of them."""
MAX_PAUSE = 3600.0


def rates_folder() -> Path:
    """Where a user's rates stand on this machine, for every run alike."""
    return Path(tempfile.gettempdir()) / f"rollbook-rates-{os.getuid()}"


class SharedRate:
    """One rate: a `Rate` of limiters in any number of processes, by the file that they share."""

    def __init__(self, path: Path, per_second: float, burst: int = 1) -> None:
        """Raises `StoreError` where the file cannot be made."""
        self._path = path
        self._windows = ((math.ceil(per_second), 1.0 * MARGIN), (burst, burst / per_second * MARGIN))
        """So many grants in so many seconds."""
        self._kept = max(KEPT, math.ceil(per_second), burst)
        with self._failures():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.parent.stat().st_uid != os.getuid():
                raise StoreError(f"{path.parent} belongs to another user; remove it, or set TMPDIR to a place of yours")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    @classmethod
    def of(cls, name: str, per_second: float, burst: int, folder: Path | None = None) -> SharedRate:
        """The rate of the resource `name` in `folder`; None: in that of this machine."""
        file = re.sub(r"[^A-Za-z0-9_.-]", lambda found: f"%{ord(found[0]):x}", name)
        return cls((rates_folder() if folder is None else folder) / f"{file}.rate", per_second, burst)

    def take(self) -> float:
        """Take a grant and return 0, or return the seconds after which to ask again. Raises `StoreError`."""
        with self._locked() as mine:
            if not mine:
                return BUSY * random.uniform(0.5, 2.0)  # noqa: S311 (spreads waits, guards nothing)
            now = monotonic()
            opens, grants = self._read(now)
            for count, seconds in self._windows:
                if len(grants) >= count:
                    opens = max(opens, grants[-count] + seconds)
            if opens > now:
                return opens - now
            self._write(opens, [*grants, now])
            return 0.0

    def pause(self, seconds: float) -> bool:
        """No grant to anybody for so long, at most an hour; a longer pause that is on stays. False where another
        process has the lock: it must be asked for again. Raises `StoreError`."""
        with self._locked() as mine:
            if mine:
                now = monotonic()
                opens, grants = self._read(now)
                self._write(max(opens, now + min(seconds, MAX_PAUSE)), grants)
            return mine

    def close(self) -> None:
        """Free the file."""
        os.close(self._file)

    @contextmanager
    def _locked(self) -> Generator[bool]:
        with self._failures():
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read(self, now: float) -> tuple[float, list[float]]:
        """When the pause ends, and the grants, the oldest first."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        if len(data) % 8:
            raise StoreError(f"{self._path} is no list of grants; delete it where no run is going")
        opens, *grants = struct.unpack(f"<{len(data) // 8}d", data) or (0.0,)
        known = [grant for grant in grants if grant <= now]
        return (opens if opens <= now + MAX_PAUSE else 0.0), known

    def _write(self, opens: float, grants: list[float]) -> None:
        """One write over what stands there: a process that is killed leaves the old or the new."""
        kept = grants[-self._kept :]
        data = struct.pack(f"<{1 + len(kept)}d", opens, *kept)
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"the rate in {self._path} cannot be kept: {error}") from error
