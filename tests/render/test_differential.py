"""Random conversations of each family, rendered step by step, are what `transformers` renders at each turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.render.differential import FAMILIES, SKIPPED, Tally, compare, conversations
from tests.render.rewrites import LABELS, Finding
from tests.render.simulate import Conversation
from tests.render.stock import NAMES, stock


def test_every_family_is_compared_or_has_a_reason() -> None:
    assert sorted([*FAMILIES, *SKIPPED]) == sorted(NAMES)


@pytest.mark.parametrize("name", FAMILIES)
def test_step_by_step_is_what_transformers_renders(name: str) -> None:
    tally = Tally()

    @settings(max_examples=100, deadline=None, database=None)
    @given(talk=conversations(name))
    def run(talk: Conversation) -> None:
        compare(name, talk, tally)

    for _ in range(4):  # a finding that few conversations show may be missing among a hundred
        run()
        if {finding for finding, count in tally.findings.items() if count} == FAMILIES[name].findings:
            break
    assert tally.conversations >= 100
    assert tally.by_ids
    assert tally.by_text
    assert {finding for finding, count in tally.findings.items() if count} == FAMILIES[name].findings


@pytest.mark.parametrize("name", FAMILIES)
def test_what_differs_is_what_the_renderer_says_of_its_template(name: str) -> None:
    """A difference without a finding, or a finding without a difference, is a lie of the probe."""
    said = {label for label in stock(name).renderer.info.findings if label in LABELS.values()}
    seen = {LABELS[finding] for finding in FAMILIES[name].findings}
    if FAMILIES[name].rounds < 2:  # more than one round is not compared
        said.discard(LABELS[Finding.OPENS_RESULTS_ONCE])
    assert seen == said
