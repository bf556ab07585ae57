"""The options that set a chat template: what they read, and what each refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.cli.template_options import read_variables
from rollbook.errors import ConfigError
from tests.cli.cli_made import refused, rollbook


def test_a_value_is_json_or_text() -> None:
    pairs = ("a=false", "b=words", 'c={"d": [1]}', "e=", "f=x=y")
    assert read_variables(pairs) == {"a": False, "b": "words", "c": {"d": [1]}, "e": "", "f": "x=y"}


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (("alone",), "--set 'alone': write NAME=VALUE, e.g. --set enable_thinking=false"),
        (("no name=1",), "write NAME=VALUE"),
        (("a=1", "a=2"), "--set a is given twice"),
        (("a=" + "[" * 100_000,), "--set a: its value is nested too deep"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_variables(pairs)


@pytest.mark.parametrize("command", [("run", "test-double"), ("check", "template", ".")])
def test_a_day_is_a_day(command: tuple[str, ...], tmp_path: Path) -> None:
    assert "'tomorrow' is no day; write it as YYYY-MM-DD" in refused(rollbook(*command, "--date", "tomorrow"))
    assert "--date YYYY-MM-DD" in rollbook(*command, "--help").stdout
