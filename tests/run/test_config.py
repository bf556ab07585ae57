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


@pytest.mark.parametrize("rules", [GroupRules(min_used=3), GroupRules(enough=3)])
def test_more_votes_than_a_group_can_have_are_refused(rules: GroupRules) -> None:
    with pytest.raises(ConfigError, match="is 3, and a group of 2 never has so many votes"):
        RunConfig(environment="x", group=2, groups=rules)
    assert RunConfig(environment="x", group=3, groups=rules).groups == rules


def test_a_group_that_closes_too_early_to_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"enough .2. is below min_used .3."):
        GroupRules(enough=2, min_used=3)
    assert GroupRules(enough=3, min_used=3).enough == 3


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
