"""Every format has a form; reasoning markers of all families are known."""

from __future__ import annotations

import pytest

from rollbook.render.formats import CallFormat, call_id, opens_reasoning
from rollbook.render.formats.families import FORMS, REASONING


def test_every_format_has_a_form_and_its_reasoning_is_known() -> None:
    assert set(FORMS) == set(CallFormat)
    for form in FORMS.values():
        assert set(form.reasoning) <= set(REASONING)


@pytest.mark.parametrize(("opens", "closes"), REASONING)
def test_the_last_marker_tells_whether_reasoning_is_open(opens: str, closes: str) -> None:
    told = {"": False, f"{opens}\n": True, f"{opens}\n\n{closes}\n": False, f"{closes}{opens}": True, closes: False}
    assert {text: opens_reasoning(text) for text in told} == told


def test_ids_of_calls_carry_the_prefix_and_the_number() -> None:
    made = {kind: [call_id(kind, "t1.", n) for n in range(3)] for kind in CallFormat}
    assert all(len(set(ids)) == 3 for ids in made.values())
    assert made[CallFormat.KIMI] == ["t1.0", "t1.1", "t1.2"]
