"""Random conversations of each family, rendered step by step, are what `transformers` renders at each turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.render.differential import FAMILIES, SKIPPED, Tally, compare, conversations
from tests.render.simulate import Conversation
from tests.render.stock import NAMES


def test_every_family_is_compared_or_has_a_reason() -> None:
    assert sorted([*FAMILIES, *SKIPPED]) == sorted(NAMES)


@pytest.mark.parametrize("name", FAMILIES)
def test_step_by_step_is_what_transformers_renders(name: str) -> None:
    tally = Tally()

    @settings(max_examples=100, deadline=None, database=None)
    @given(talk=conversations(name))
    def run(talk: Conversation) -> None:
        compare(name, talk, tally)

    run()
    assert tally.conversations >= 100
    assert tally.by_ids
    assert tally.by_text
    assert {finding for finding, count in tally.findings.items() if count} == FAMILIES[name].findings
