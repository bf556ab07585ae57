"""Configurations: what is refused, what comes back from a file, and how two of them differ."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.rollout import GroupRules, Limits
from rollbook.run import RunConfig, differences
from rollbook.trace import EndingRules, Mask, Reason, Retry, Sampling

CONFIG = RunConfig(
    environment="x",
    options={"a": 1, "words": [1, "two"]},
    limits=Limits(deadline=None, max_turns=3),
    sampling=Sampling(stop=("a", "b"), temperature=0.5),
    template="mine.jinja",
    template_date=date(2026, 1, 31),
    template_variables={"enable_thinking": False},
    rules=EndingRules({Reason.MAX_TURNS: Mask(), Reason.HARNESS: Retry(1)}),
)


@pytest.mark.parametrize("name", ["tasks", "group"])
def test_a_run_needs_at_least_one_of_each(name: str) -> None:
    with pytest.raises(ConfigError, match=f"at least one of '{name}'"):
        msgspec.structs.replace(RunConfig(environment="x"), **{name: 0})


def test_groups_that_could_only_be_dropped_are_refused() -> None:
    RunConfig(environment="e", group=4, groups=GroupRules(min_used=4))
    with pytest.raises(ConfigError, match="groups of 4 never have 5 votes"):
        RunConfig(environment="e", group=4, groups=GroupRules(min_used=5))


def test_a_configuration_comes_back_from_json_equal() -> None:
    stored = json.loads(json.dumps(CONFIG.plain()))
    assert differences(stored, CONFIG.plain()) == []
    assert msgspec.convert(stored, RunConfig) == CONFIG


@pytest.mark.parametrize("value", [Path("x"), object()])
def test_options_are_plain_data(value: object) -> None:
    with pytest.raises(ConfigError, match="plain JSON data"):
        RunConfig(environment="x", options={"a": value}).plain()
    with pytest.raises(ConfigError, match="template variables must be plain JSON data"):
        RunConfig(environment="x", template_variables={"a": value}).plain()


def test_differences_name_the_place_and_both_values() -> None:
    other = msgspec.structs.replace(CONFIG, limits=Limits(deadline=None, max_turns=4), policy="local:x", options={})
    assert differences(CONFIG.plain(), other.plain()) == [
        "limits.max_turns: 3 -> 4",
        "options.a: 1 -> None",
        "options.words: [1, 'two'] -> None",
        "policy: 'local' -> 'local:x'",
    ]


PLAIN = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(0, 2)),
    max_leaves=8,
)


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_there_is_no_difference_exactly_where_two_are_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert differences(one, one) == []
    assert bool(differences(one, other)) == (one != other)
