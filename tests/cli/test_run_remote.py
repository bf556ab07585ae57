"""`rollbook run` on an engine behind a URL, and its audit when the engine has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook import open_run
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine
from tests.cli.cli_made import document, rollbook
from tests.run.run_made import model_folder, renderer


@pytest.mark.parametrize("dialect", [Dialect.VLLM, Dialect.SGLANG, Dialect.LLAMACPP])
def test_a_run_on_an_engine_is_audited_after_the_engine_has_gone(dialect: Dialect, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    made = renderer(folder)
    said = made.encode("It is 8.").tolist()
    shape = EngineShape(stop_ids=tuple(made.info.stop_ids))
    sizes = ("--tasks", "2", "--group", "2", "--out", tmp_path / "run", "--json")
    with FakeEngine(dialect, shape=shape, script=lambda *_: said) as engine:
        name = f"{dialect}:{engine.url}"
        done = rollbook("run", "test-double", "--policy", name, "--tokenizer", folder, *sizes)
    assert {row["reason"] for row in document(done)["report"]["endings"]} == {"final_answer"}
    traces = list(open_run(tmp_path / "run").traces())
    assert {trace.head.policies[0].name for trace in traces} == {name}
    assert {trace.head.config["tokenizer"] for trace in traces} == {str(folder)}
    judged = {
        check["name"]: check["status"] for check in document(rollbook("audit", tmp_path / "run", "--json"))["checks"]
    }
    assert judged["drift"] != "not_judged"


def test_an_engine_that_says_where_its_model_lies_needs_no_tokenizer_until_it_has_gone(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    made = renderer(folder)
    said = made.encode("It is 8.").tolist()
    shape = EngineShape(stop_ids=tuple(made.info.stop_ids), model=str(folder))  # the fake's root is its model's name
    sizes = ("--tasks", "1", "--group", "2", "--out", tmp_path / "run", "--json")
    with FakeEngine(Dialect.VLLM, shape=shape, script=lambda *_: said) as engine:
        document(rollbook("run", "test-double", "--policy", f"vllm:{engine.url}", *sizes))
    gone = document(rollbook("audit", tmp_path / "run", "--json"))
    assert "cannot be reached" in next(check["says"] for check in gone["checks"] if check["name"] == "drift")
    again = document(rollbook("audit", tmp_path / "run", "--tokenizer", folder, "--json"))
    assert next(check["status"] for check in again["checks"] if check["name"] == "drift") != "not_judged"
