"""Make the environments of the trainers whose real classes `make test-trainers` builds: one for each set of versions
that go together, in a folder of its own.

    python tools/trainers_env.py FOLDER [ENVIRONMENT...]

Does nothing where the folder holds these versions already. Trainers that no package carries are taken from their
public repositories at a pinned commit: the variable ROLLBOOK_TRAINER_SOURCES names a folder that holds clones of them
(bare or not) as OWNER/NAME, NAME or OWNER+NAME/repo. Where it is unset they are left out, and their tests stand on the
list of skips. Nothing is ever checked out in those clones: `git archive` copies what is needed.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "trainers.txt"
VARIABLE = "ROLLBOOK_TRAINER_SOURCES"
OURS = f"{ROOT}"
TORCH = "torch==2.13.0"
PYTEST = "pytest==9.2.0"
GIT = ("git", "-c", "safe.directory=*")
"""Clones may be somebody else's; nothing of them is run by git."""


@dataclass(frozen=True)
class Source:
    """One trainer's repository at one commit."""

    name: str
    """The folder that it is copied to."""
    repository: str
    """OWNER/NAME on GitHub."""
    commit: str
    """Full hash."""
    paths: tuple[str, ...]
    """What is copied, as git names it."""


@dataclass(frozen=True)
class Environment:
    """What is installed together."""

    wanted: tuple[str, ...]
    """For pip."""
    files: tuple[str, ...]
    """The test files that run in it."""
    reported: tuple[str, ...]
    """Packages whose versions stand in the report."""
    sources: tuple[Source, ...] = ()
    alone: tuple[str, ...] = ()
    """For pip, without what they ask for: pins that clash, and more than their records need."""
    any_python: bool = False
    """Those are taken also where their package asks for a newer Python: what is used of them runs on this one."""


SLIME = Source("slime", "THUDM/slime", "624b824a898ab0ec1fcb4d373004c7f3852bf515", ("slime",))
MILES = Source("miles", "radixark/miles", "31f1ca961a94cb860cec3b2dea34ec332bfa8f76", ("miles",))
PRIME_RL = Source(
    "prime_rl", "PrimeIntellect-ai/prime-rl", "559b44772e471d1538537b8805cc77f3824a5e64", ("src/prime_rl",)
)
NEMO_RL = Source("nemo_rl", "NVIDIA-NeMo/RL", "7ea279abfbeb698b092856d0dab61e7cf39bc909", ("nemo_rl",))

ENVIRONMENTS: Mapping[str, Environment] = {
    "verl": Environment(
        # tensordict 0.11 and transformers 5.11 are too new for verl 0.9.1; it imports those behind and does not say so
        wanted=(
            TORCH,
            "verl==0.9.1",
            "tensordict==0.10.0",
            "transformers==5.10.4",
            "orjson==3.13.0",
            "cachetools==8.0.2",
            "fastapi==0.165.0",
            "uvicorn==0.54.0",
            "TransferQueue==0.1.11",
        ),
        files=("live_verl.py", "live_slime.py", "live_miles.py"),
        reported=("verl", "torch", "tensordict", "transformers", "ray"),
        sources=(SLIME, MILES),
    ),
    "trl": Environment(
        wanted=(
            TORCH,
            "trl==1.16.0",
            "transformers==5.24.0",
            "tinker==0.38.0",
            "chz==0.4.0",
            "pillow==13.0.0",
            "blobfile==3.3.0",
            "termcolor==3.3.0",
            "cloudpickle==3.1.3",
            "tiktoken==0.14.0",
            "jaxtyping==0.3.11",
            "beartype==0.23.1",
            "ray==2.60.0",
        ),
        alone=("tinker-cookbook==0.6.1",),
        files=("live_trl.py", "live_tinker.py", "live_prime_rl.py"),
        reported=("trl", "torch", "transformers", "tinker", "tinker-cookbook"),
        sources=(PRIME_RL,),
    ),
    "areal": Environment(
        # NeMo-RL wants transformers below 5.12; AReaL pins an older torch than its records need
        wanted=(
            TORCH,
            "transformers==5.10.4",
            "datasets==5.2.0",
            "ray==2.60.0",
            "hydra-core==1.3.8",
            "omegaconf==2.3.1",
            "pillow==13.0.0",
            "requests==2.34.2",
            "tensordict==0.10.0",
            "aiohttp==3.14.5",
            "colorlog==6.12.0",
            "tenacity==9.2.1",
            "flask==3.1.3",
            "lark==1.3.1",
            "uvloop==0.23.0",
            "numba==0.68.1",
            "einops==0.8.2",
            "aiofiles==25.1.0",
            "openai==3.57.0",
            "pybase64==1.5.1",
        ),
        alone=("areal==1.0.4",),
        files=("live_areal.py", "live_nemo_rl.py"),
        reported=("areal", "torch", "transformers", "ray"),
        sources=(NEMO_RL,),
    ),
    "skyrl": Environment(
        wanted=(
            TORCH,
            "transformers==5.16.1",
            "ray==2.60.0",
            "tensordict==0.15.3",
            "torchdata==0.11.0",
            "datasets==5.2.0",
            "hydra-core==1.3.8",
            "omegaconf==2.3.1",
            "jaxtyping==0.3.11",
            "loguru==0.7.3",
            "cloudpathlib==0.26.0",
            "xxhash==4.1.0",
            "aiohttp==3.14.5",
            "fastapi==0.165.0",
            "httpx==0.28.1",
            "uvicorn==0.54.0",
            "pandas==3.1.1",
            "peft==0.21.2",
            "orjson==3.13.0",
            "pybase64==1.5.1",
            "pillow==13.0.0",
        ),
        alone=("skyrl==0.4.0", "skyrl-gym==0.4.0"),
        any_python=True,
        files=("live_skyrl.py",),
        reported=("skyrl", "skyrl-gym", "torch", "transformers", "ray"),
    ),
}


def main(folder: Path, names: list[str]) -> None:
    """Make them, or leave them."""
    for name in names or ENVIRONMENTS:
        environment = ENVIRONMENTS[name]
        _install(folder / name, environment)
        for source in environment.sources:
            copy_source(folder / "sources", source)


def _install(folder: Path, environment: Environment) -> None:
    mark = folder / MARK
    wanted = (*environment.wanted, *environment.alone, PYTEST)
    if mark.is_file() and mark.read_text().split() == list(wanted):
        return
    # what the commands say goes to stderr: a report may be read from stdout
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, stdout=sys.stderr)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # most of what is installed is never imported
    install = [*pip, "install", "--no-compile"]
    together = [*environment.wanted, PYTEST, "--editable", OURS]
    subprocess.run([*install, *together], check=True, stdout=sys.stderr, cwd=ROOT)
    if environment.alone:
        options = ["--no-deps", *(["--ignore-requires-python"] if environment.any_python else [])]
        subprocess.run([*install, *options, *environment.alone], check=True, stdout=sys.stderr)
    mark.write_text("\n".join(wanted))


def copy_source(folder: Path, source: Source) -> None:
    """Copy the pinned files out of a clone, unless they are there already; leave them where no clone is named."""
    place = folder / source.name
    mark = place / MARK
    if mark.is_file() and mark.read_text() == source.commit:
        return
    clones = os.environ.get(VARIABLE)
    if not clones:
        print(f"{VARIABLE} is not set: {source.repository} is left out", file=sys.stderr)
        return
    archive = ["archive", "--format=tar", source.commit, *source.paths]
    done = subprocess.run([*_git(Path(clones), source), *archive], check=True, capture_output=True)
    shutil.rmtree(place, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(place, filter="data")
    mark.write_text(source.commit)


def _git(clones: Path, source: Source) -> list[str]:
    owner, name = source.repository.split("/")
    for place in (clones / owner / name, clones / name, clones / f"{owner}+{name}" / "repo"):
        if (place / ".git").exists():
            return [*GIT, "-C", str(place)]
        if (place / "HEAD").is_file():
            return [*GIT, "--git-dir", str(place)]
    sys.exit(
        f"no clone of {source.repository} in {clones}: run git clone https://github.com/{source.repository} "
        f"{clones / owner / name}, or unset {VARIABLE}"
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(ENVIRONMENTS):
        sys.exit(f"usage: python tools/trainers_env.py FOLDER [{'|'.join(ENVIRONMENTS)}...]")
    main(Path(sys.argv[1]), sys.argv[2:])
