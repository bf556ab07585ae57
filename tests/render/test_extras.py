"""A renderer over a package that is missing says which extra brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import importlib, sys
module, missing = sys.argv[1:]
sys.modules[missing] = None
try:
    importlib.import_module(module)
except ModuleNotFoundError as error:
    print(error.name, error)
"""


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("rollbook.render.harmony", "openai_harmony", "harmony"),
        ("rollbook.render.renderers_package", "renderers", "renderers"),
        ("rollbook.render.renderers_package", "httpx", "renderers"),
    ],
)
def test_the_extra_is_named(module: str, missing: str, extra: str) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT, module, missing], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{missing} {module} needs the extra {extra} ({missing} is missing)")
    assert f"pip install '.[{extra}]'" in done.stdout


def test_what_is_missing_otherwise_is_told_as_it_is() -> None:
    argv = [sys.executable, "-c", _WITHOUT, "rollbook.render.harmony", "numpy"]
    assert "extra" not in subprocess.run(argv, capture_output=True, text=True, check=True).stdout
