"""The main job on the real model, through the command line: run, audit, show, export, and what the record holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.models import ModelFiles
from rollbook.store import RunReader
from rollbook.trace import Origin, samples
from tests.conftest import CACHE

SECONDS = 300


def rollbook(*words: str, codes: tuple[int, ...] = (0,)) -> Any:
    """One command with ``--json``; its document."""
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.cli", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode in codes, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2: ModelFiles) -> Path:
    """A small run with tools: two tasks, two rollouts each. Whether its rates pass the gate is the model's affair."""
    assert smollm2.weights is not None
    out = tmp_path_factory.mktemp("real") / "run"
    sizes = ("--tasks", "2", "--group", "2", "--max-turns", "3", "--max-generation", "48")
    words = ("run", "calculator", "--policy", "local", "--cache", str(CACHE), "--out", str(out))
    rollbook(*words, *sizes, codes=(0, 1))
    return out


def test_every_member_is_there_once_with_one_outcome(folder: Path) -> None:
    rows = list(RunReader(folder).summaries())
    assert sorted((row.group[-4:], row.member, row.attempt) for row in rows) == [
        (group, member, 0) for group in ("0000", "0001") for member in (0, 1)
    ]
    assert {row.kind for row in rows} <= {"submitted", "truncated", "length_cut"}
    assert all(row.reward in (0.0, 1.0) for row in rows)


def test_prompts_are_the_stored_ids_and_every_sampled_token_trains(folder: Path, smollm2: ModelFiles) -> None:
    for trace in RunReader(folder).traces():
        for call in trace.calls:
            assert call.node is not None
            turn = trace.graph[call.node]
            scaffold = len(turn.token_ids) - len(turn.sampled_ids)
            assert call.prompt_tokens == len(trace.graph.path_ids(call.after)) + scaffold
            assert turn.logprobs is not None
            assert len(turn.logprobs) == len(turn.sampled_ids) == call.completion_tokens
        found = samples(trace)
        assert found.ledger.captured == found.ledger.trained == trace.graph.sampled_count > 0
        assert all(sample.logprobs_fit for sample in found)
        assert trace.head.tools_rendered is True
        assert trace.head.policies[0].weights_hash == smollm2.weights_hash
        assert {node.origin for node in trace.graph} >= {Origin.SYNTHETIC, Origin.USER, Origin.POLICY}


def test_seeds_differ_within_a_group(folder: Path) -> None:
    seeds = [call.sampling.seed for trace in RunReader(folder).traces() for call in trace.calls]
    assert len(set(seeds)) == len(seeds)


def test_the_audit_judges_drift_with_the_models_own_tokenizer(folder: Path) -> None:
    report = rollbook("audit", str(folder), "--cache", str(CACHE), codes=(0, 1))
    checks = {check["name"]: check for check in report["checks"]}
    for name in ("alignment", "executed_after_fault", "baseline_errors", "prompt_tokens", "tools_unrendered"):
        assert (checks[name]["status"], checks[name]["value"]) == ("ok", 0), name
    assert checks["drift"]["n"] == sum(row.turns for row in RunReader(folder).summaries())


def test_the_export_is_the_record(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    rollbook("export", str(folder), "--to", "jsonl", str(out))
    rows = {row["rollout"]: row for row in map(json.loads, out.read_text().splitlines())}
    for trace in RunReader(folder).traces():
        (sample,) = samples(trace)
        row = rows[trace.id]
        assert row["token_ids"] == sample.token_ids.tolist()
        kept = np.array([np.nan if each is None else each for each in row["logprobs"]], np.float32)
        assert kept.tobytes() == sample.logprobs.tobytes()
