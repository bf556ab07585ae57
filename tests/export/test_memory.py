"""Freed memory is kept."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from rollbook.export.memory import keep_freed

faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
if sys.argv[1] == "kept":
    keep_freed()
    keep_freed()
held = [np.ones(3 << 20, np.uint8) for _ in range(4)]
del held  # more at once than the first threshold keeps
before = faults()
for _ in range(20):
    held = [np.ones(3 << 20, np.uint8) for _ in range(4)]
    del held
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back like this")
def test_what_was_freed_is_taken_again_without_page_faults() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("kept", "given back")
    )
    assert kept < given_back / 10
