"""Whole runs of a tool-using environment on real engines, with the audit, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbook import open_run
from tests.render.families import CACHE
from tests.slow.engines.conftest import Engine

Record = Callable[[str, object], None]


def test_a_whole_run_with_its_audit(engine: Engine, tmp_path: Path, record_property: Record) -> None:
    if engine.kind == "vllm-completions":
        pytest.skip("the command line takes the better of vLLM's two routes")
    words = ["run", "calculator", "--policy", engine.name, "--tasks", "4", "--group", "4", "--max-turns", "4"]
    words += ["--max-generation", "96", "--concurrency", "8", "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ROLLBOOK_CACHE": str(CACHE)},
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    document = json.loads(done.stdout)
    report, audit = document["report"], document["audit"]
    record_property("endings", {row["reason"]: row["count"] for row in report["endings"]})
    record_property("turns", report["turns"])
    record_property("tokens", report["tokens"])
    assert {row["kind"] for row in report["endings"]} & {"error"} == set()
    assert not [check["name"] for check in audit["checks"] if check["status"] == "broke"]
    traces = list(open_run(tmp_path / "run").traces())
    assert len(traces) == 16
    for trace in traces:
        assert trace.head.policies[0].name == engine.name
        assert all(call.prompt_tokens is not None for call in trace.calls)
