"""`rollbook check policy`: the table, the document, the exit codes. (`fit`, exit 0, stands in docs/howto/engine.md.)"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan, Latency
from tests.cli.cli_made import document, refused, rollbook
from tests.run.run_made import model_folder, renderer, script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


@pytest.fixture
def engine(folder: Path) -> Generator[FakeEngine]:
    """It ends turns by itself, and drops grammars in silence."""
    made = renderer(folder)
    shape = EngineShape(
        stop_ids=tuple(made.info.stop_ids),
        vocabulary=made.info.vocab_size,
        seed=35,
        decode=lambda ids: made.decode(np.array(ids, np.int32)),
    )
    with FakeEngine(Dialect.VLLM, shape=shape, latency=Latency(per_token=0.0005)) as fake:
        yield fake


def test_a_broken_promise_is_shown_and_exits_1(engine: FakeEngine, folder: Path) -> None:
    done = rollbook("check", "policy", f"vllm:{engine.url}", "--tokenizer", folder)
    assert done.exit_code == 1
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "prompt_ids" in done.stdout
    assert done.stdout.rstrip().endswith("Training on its tokens would be wrong: sampling.")


def test_a_program_reads_one_document(engine: FakeEngine, folder: Path) -> None:
    done = rollbook("check", "policy", f"vllm:{engine.url}", "--tokenizer", folder, "--json")
    found = document(done)
    assert done.stderr == ""
    assert (done.exit_code, found["fit"], found["context_length"]) == (1, False, 4096)
    verdicts = {each["check"]: each["verdict"] for each in found["findings"]}
    assert (verdicts["prompt_ids"], verdicts["stop_token"], verdicts["sampling"]) == ("fine", "fine", "broken")
    assert len(verdicts) == 16


def test_what_cannot_be_checked_exits_2(folder: Path) -> None:
    away = "vllm:http://127.0.0.1:9"
    assert "cannot be reached" in refused(rollbook("check", "policy", away, "--tokenizer", folder))
    assert "name it local" in refused(rollbook("check", "policy", "vlm"))
    assert "text-only endpoint" in refused(rollbook("check", "policy", "text:http://127.0.0.1:9#m"))
    assert "no engine to check" in refused(rollbook("check", "policy", script(folder / "said", "Hi.")))
    assert "did you mean 'vllm'?" in refused(rollbook("check", "policy", "vlm:http://h"))


def test_what_tells_too_little_exits_2_with_its_table(folder: Path) -> None:
    plan = FaultPlan(sessions={f"check-{number}": [Fault.SERVER_ERROR] for number in range(1, 80)})
    shape = EngineShape(stop_ids=tuple(renderer(folder).info.stop_ids))
    with FakeEngine(Dialect.LLAMACPP, shape=shape, faults=plan) as fake:
        done = rollbook("check", "policy", f"llamacpp:{fake.url}", "--tokenizer", folder)
    assert done.exit_code == 2
    assert "unknown   prompt_ids" in done.stdout
    assert "it cannot be judged: prompt_ids, max_tokens, stop_token, logprob_kind, logprobs" in done.stderr


def test_its_help_shows_how(folder: Path) -> None:
    text = rollbook("check", "policy", "--help").stdout
    assert "rollbook check policy vllm:http://127.0.0.1:8000" in text
    assert "--tokenizer PATH" in text
