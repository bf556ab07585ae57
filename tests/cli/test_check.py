"""`rollbook check template`: the table, the document, the exit codes."""

from __future__ import annotations

from pathlib import Path

from tests.cli.cli_made import document, refused, rollbook
from tests.render.families import template


def written(folder: Path, name: str) -> str:
    path = folder / f"{name}.jinja"
    path.write_text(template(name))
    return str(path)


def test_a_sound_template_is_shown_with_its_examples(tmp_path: Path) -> None:
    done = rollbook("check", "template", written(tmp_path, "qwen3"), "--stop", "<|im_end|>")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "reasoning" in done.stdout
    assert done.stdout.rstrip().endswith("Training on it is sound.")


def test_an_unsound_template_exits_1_and_says_why(tmp_path: Path) -> None:
    path = written(tmp_path, "smollm2")
    done = rollbook("check", "template", path, "--stop", "<|im_end|>")
    assert done.exit_code == 1
    assert "Training on it would be unsound: tools." in done.stdout
    found = document(rollbook("check", "template", path, "--stop", "<|im_end|>", "--json"))
    assert not found["sound"]
    assert {each["property"]: each["verdict"] for each in found["findings"]}["tools"] == "unsound"
    assert all(each["meaning"] for each in found["findings"])


def test_variables_are_json_or_text(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen3")
    options = ["check", "template", path, "--stop", "<|im_end|>", "--json"]
    found = document(rollbook(*options, "--set", "enable_thinking=false"))
    prompt = next(each for each in found["findings"] if each["property"] == "prompt")
    assert prompt["example"].endswith("</think>\n\n")
    assert "never reads note" in refused(rollbook(*options, "--set", "note=words"))
    assert "write NAME=VALUE" in refused(rollbook(*options, "--set", "alone"))
    assert "nested too deep" in refused(rollbook(*options, "--set", f"deep={'[' * 50_000}"))


def test_what_cannot_be_checked_exits_2(tmp_path: Path) -> None:
    assert "--stop" in refused(rollbook("check", "template", written(tmp_path, "qwen3")))
    assert "No such file" in refused(rollbook("check", "template", tmp_path / "none", "--stop", "x"))
    assert "name it local" in refused(rollbook("check", "template", "locl:smollm2"))
    help_text = rollbook("check", "template", "--help").stdout
    assert "rollbook check template model.gguf --json" in help_text
