"""Every report is a test: a case that was dropped, or whose test vanished, turns this red."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cases.case import REPORTS

ASKED = [
    "A01",
    "A02",
    "A03",
    "A04",
    "A05",
    "A06",
    "A07",
    "A09",
    "A10",
    "A11",
    "A12",
    "A14",
    "A17",
    "B01",
    "B02",
    "B03",
    "B04",
    "B05",
    "B06",
    "B07",
    "B08",
    "B09",
    "B10",
    "B11",
    "B13",
    "B14",
    "B18",
    "B19",
    "C01",
    "C02",
    "C03",
    "C04",
    "C05",
    "C06",
    "C08",
    "C09",
    "C10",
    "C11",
    "C13",
    "C14",
    "C15",
    "C17",
    "C19",
    "D01",
    "D02",
    "D03",
    "D04",
    "D07",
    "D08",
    "D09",
    "D11",
    "D12",
    "D13",
    "E01",
    "E02",
    "E03",
    "E04",
    "E05",
    "E06",
    "E07",
    "E09",
    "E12",
    "E15",
    "F02",
    "F03",
    "F07",
    "F12",
    "G01",
    "G02",
    "G06",
    "G08",
    "G09",
    "G10",
    "G11",
    "G12",
    "G13",
    "G14",
    "G16",
    "G17",
    "G18",
    "G19",
    "H11",
    "H12",
    "I01",
    "I02",
    "I04",
    "I05",
    "I06",
    "I07",
    "I08",
    "I13",
    "I14",
    "J01",
    "J02",
    "J04",
    "J06",
    "J07",
    "J08",
    "J09",
    "J10",
    "J11",
    "J12",
    "J13",
    "J14",
    "J15",
    "J16",
]


def test_each_report_is_collected_under_its_id() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", Path(__file__).parent]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]).stdout
    collected = set(re.findall(r"\[(?:.*-)?([A-Z]\d\d)(?:-.*)?\]$", listed, re.MULTILINE))
    assert sorted(collected) == list(REPORTS) == ASKED


def test_each_report_says_what_is_right() -> None:
    for name, report in REPORTS.items():
        assert report["id"] == name
        assert report["kind"] == name[0]
        assert report["link"].startswith("https://")
        assert report["input"]
        assert report["expected"]
