"""`rollbook audit`: the exit code is the gate's, and what was not judged says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.cli.audit import read_gate
from rollbook.errors import ConfigError
from rollbook.run import open_run
from rollbook.store import RunWriter
from tests.cli.cli_made import dated_template, dated_words, document, made_run, refused, rollbook
from tests.run.run_made import BAD_CALL, CALL, model_folder

TEMPLATE = "template_drift"
"""A check that needs the run's own template."""


def gate(tmp_path: Path, text: str, name: str = "gate.toml") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def drift(found: dict[str, object]) -> dict[str, object]:
    checks = found["checks"]
    assert isinstance(checks, list)
    return next(check for check in checks if check["name"] == "drift")


def test_a_run_within_its_limits_passes(tmp_path: Path) -> None:
    result = rollbook("audit", made_run(tmp_path))
    assert result.exit_code == 0
    assert "The audit passed." in result.stdout
    assert max(map(len, result.stdout.partition("prompt_tokens: ")[0].splitlines())) <= 100


def test_a_broken_limit_is_exit_code_1_with_its_places(tmp_path: Path) -> None:
    folder = made_run(tmp_path, said=(BAD_CALL, CALL, "It is 8."))
    result = rollbook("audit", folder, "--gate", gate(tmp_path, "[limits]\nmalformed = 0.1\n"))
    assert result.exit_code == 1
    assert "malformed: Too many" in result.stdout
    assert "-0000-0, node 2" in result.stdout


def test_what_must_be_judged_and_is_not_is_exit_code_2(tmp_path: Path) -> None:
    must = gate(tmp_path, '{"must_judge": ["drift"]}', "gate.json")
    folder = made_run(tmp_path)
    assert rollbook("audit", folder, "--gate", must).exit_code == 0
    result = rollbook("audit", folder, "--gate", must, "--no-model")
    assert result.exit_code == 2
    assert "drift: Not judged: --no-model was given." in result.stdout


def test_an_empty_run_cannot_be_judged(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    result = rollbook("audit", tmp_path / "run", "--json")
    assert (result.exit_code, document(result)["exit_code"]) == (2, 2)
    assert drift(document(result))["says"] == "Not judged: the run holds no rollout."


def test_json_is_the_whole_report(tmp_path: Path) -> None:
    result = rollbook("audit", made_run(tmp_path), "--json")
    assert (document(result)["rollouts"], drift(document(result))["n"]) == (4, 8)


def test_what_cannot_be_read_is_told_on_stderr(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    (segment,) = folder.glob("segments/*.seg")
    segment.write_bytes(segment.read_bytes()[:-200])
    result = rollbook("audit", folder, "--json")
    assert document(result)["rollouts"] <= 4
    assert "Not everything could be read" in result.stderr


def test_another_tokenizer_than_the_runs_is_not_used(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    tokenizer = model_folder(tmp_path / "model-run") / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    says = drift(document(rollbook("audit", folder, "--json")))["says"]
    assert "has another tokenizer now than the run used" in str(says)


def test_a_model_that_is_gone_leaves_drift_unjudged(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    for path in (tmp_path / "model-run").iterdir():
        path.unlink()
    (tmp_path / "model-run" / "tokenizer.json").write_text("{")
    found = document(rollbook("audit", folder, "--json"))
    assert drift(found)["status"] == "not_judged"
    assert "cannot be loaded" in str(drift(found)["says"])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("g.toml", "limits = [", "is not valid TOML"),
        ("g.json", "{", "is not valid JSON"),
        ("g.json", "[1]", "must hold a table"),
        ("g.toml", "[limits]\nnothing = 1\n", "not a check"),
        ("g.toml", "[limits]\nerror_rate = -1\n", "want a finite number"),
        ("g.toml", "colour = 1\n", "unknown key"),
    ],
)
def test_a_bad_gate_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    assert says in refused(rollbook("audit", made_run(tmp_path), "--gate", gate(tmp_path, text, name)))


def test_a_gate_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_gate(tmp_path / "g.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_gate(tmp_path / "missing.toml")


def test_a_gate_file_sets_limits_and_takes_them_away(tmp_path: Path) -> None:
    found = read_gate(gate(tmp_path, 'must_judge = ["drift"]\n[limits]\nerror_rate = "none"\ntruncated = 0.5\n'))
    assert (found.limits, found.must_judge) == ({"error_rate": None, "truncated": 0.5}, ("drift",))


def test_a_gate_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    path = gate(tmp_path, "[" * 100_000, "gate.json")
    assert "is not valid JSON" in refused(rollbook("audit", made_run(tmp_path), "--gate", path))


def judged(found: dict[str, object], name: str) -> dict[str, object]:
    checks = found["checks"]
    assert isinstance(checks, list)
    return next(check for check in checks if check["name"] == name)


def test_a_run_of_a_template_that_was_set_is_audited_with_the_same(tmp_path: Path) -> None:
    path = dated_template(tmp_path)
    folder = made_run(tmp_path, *dated_words(path))
    found = document(rollbook("audit", folder, "--json"))
    assert (judged(found, TEMPLATE)["status"], judged(found, TEMPLATE)["value"]) == ("info", 0.0)
    moved = path.rename(tmp_path / "moved.jinja")
    found = document(rollbook("audit", folder, "--json"))
    assert "cannot be loaded (cannot read" in str(judged(found, TEMPLATE)["says"])
    found = document(rollbook("audit", folder, "--template", moved, "--json"))
    assert judged(found, TEMPLATE)["status"] == "info"


def test_another_template_than_the_runs_judges_tokens_alone(tmp_path: Path) -> None:
    path = dated_template(tmp_path)
    folder = made_run(tmp_path, *dated_words(path))
    text = path.read_text()
    for other in (text + " ", text.replace("{{ place }}", "")):  # the second one never reads what the run set
        path.write_text(other)
        found = document(rollbook("audit", folder, "--json"))
        assert judged(found, TEMPLATE)["status"] == "not_judged"
        assert "another chat template now than the run used; give that one (--template)" in str(
            judged(found, TEMPLATE)["says"]
        )
        assert drift(found)["status"] == "info"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"call_format": "hermes"}, "was used with settings that cannot be given here"),
        ({"date": "2026-01-31T09:00:00"}, "its template cannot be set as it was"),
        ({"variables": []}, "its template cannot be set as it was"),
    ],
)
def test_settings_that_cannot_be_given_again_are_told(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    folder = made_run(tmp_path)
    trace = next(open_run(folder).traces())
    policy = msgspec.structs.replace(trace.head.policies[0], template_settings=settings)
    trace.head = msgspec.structs.replace(trace.head, policies=(policy,))
    with RunWriter.create(tmp_path / "other") as writer:
        writer.seal(trace)
    found = document(rollbook("audit", tmp_path / "other", "--json"))
    assert judged(found, TEMPLATE)["status"] == "not_judged"
    assert says in str(judged(found, TEMPLATE)["says"])


def test_what_a_rollout_outside_of_a_run_calls_a_template_is_its_own(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    trace = next(open_run(folder).traces())
    trace.head = msgspec.structs.replace(trace.head, run="", config={"template": ["mine"]})
    with RunWriter.create(tmp_path / "other") as writer:
        writer.seal(trace)
    found = document(rollbook("audit", tmp_path / "other", "--json"))
    assert judged(found, TEMPLATE)["status"] == "info"
