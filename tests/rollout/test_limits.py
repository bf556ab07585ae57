"""Limits and budget: counts decide, in one order, and a request never asks for more than there is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.rollout import Budget, Limits
from rollbook.rollout.limits import Allowance
from rollbook.trace import Ending, Reason

NONE = {"max_turns": None, "max_tokens": None, "max_generation": None, "deadline": None, "wall": None}


def limits(**given: float) -> Limits:
    return Limits(**{**NONE, **given})  # type: ignore[arg-type]


def why(found: Allowance | Ending) -> Reason:
    return found.reason


def ending(budget: Budget, prompt: int = 0, context: int = 100) -> Reason:
    found = budget.allowance(prompt, context)
    assert isinstance(found, Ending)
    return found.reason


def tokens(budget: Budget, prompt: int = 0, context: int = 100) -> tuple[int, Reason]:
    found = budget.allowance(prompt, context)
    assert isinstance(found, Allowance)
    return found.tokens, found.reason


@pytest.mark.parametrize("field", [*NONE, "max_tool_calls", "max_parallel_calls", "setup_timeout"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_is_above_zero(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        Limits(**{field: value})  # type: ignore[arg-type]


def test_each_limit_alone_at_its_exact_boundary() -> None:
    assert tokens(Budget(limits(max_turns=3), turns=2)) == (100, Reason.CONTEXT_OVERFLOW)
    assert ending(Budget(limits(max_turns=3), turns=3)) is Reason.MAX_TURNS
    assert tokens(Budget(limits(max_tokens=7), tokens=6)) == (1, Reason.MAX_TOKENS)
    assert ending(Budget(limits(max_tokens=7), tokens=7)) is Reason.MAX_TOKENS
    assert tokens(Budget(limits(max_generation=5))) == (5, Reason.GENERATION_LIMIT)
    assert tokens(Budget(limits()), prompt=99) == (1, Reason.CONTEXT_OVERFLOW)
    assert ending(Budget(limits()), prompt=100) is Reason.CONTEXT_OVERFLOW
    assert tokens(Budget(limits(deadline=2.0), seconds=1.999)) == (100, Reason.CONTEXT_OVERFLOW)
    assert ending(Budget(limits(deadline=2.0), seconds=2.0)) is Reason.DEADLINE


def test_a_context_that_is_not_known_cuts_nothing() -> None:
    found = Budget(limits(max_generation=5)).allowance(1 << 40, None)
    assert found == Allowance(5, Reason.GENERATION_LIMIT)
    with pytest.raises(ConfigError, match="max_generation or max_tokens"):
        Budget(limits(max_turns=3)).allowance(1, None)


def test_a_prompt_beyond_the_context_never_asks_for_a_negative_number() -> None:
    found = Budget(limits(max_generation=512)).allowance(273, 256)
    assert isinstance(found, Ending)
    assert found.reason is Reason.CONTEXT_OVERFLOW
    assert "273" in found.detail
    assert "256" in found.detail


def test_where_several_are_used_up_the_order_decides() -> None:
    all_up = {"turns": 1, "tokens": 1, "seconds": 1.0}
    order = [("max_turns", Reason.MAX_TURNS), ("deadline", Reason.DEADLINE), ("max_tokens", Reason.MAX_TOKENS)]
    for first in range(len(order)):
        asked = {name: 1 for name, _ in order[first:]}
        assert ending(Budget(limits(**asked), **all_up), prompt=100) is order[first][1]  # type: ignore[arg-type]
    assert ending(Budget(limits(), **all_up), prompt=100) is Reason.CONTEXT_OVERFLOW  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("room", "left", "generation", "reason"),
    [
        (5, 5, 5, Reason.GENERATION_LIMIT),
        (5, 5, None, Reason.MAX_TOKENS),
        (5, None, 5, Reason.GENERATION_LIMIT),
        (5, 5, 6, Reason.MAX_TOKENS),
        (5, 6, 6, Reason.CONTEXT_OVERFLOW),
        (6, 5, 5, Reason.GENERATION_LIMIT),
        (6, 4, 5, Reason.MAX_TOKENS),
        (4, 5, 5, Reason.CONTEXT_OVERFLOW),
    ],
)
def test_on_a_tie_the_limit_that_was_asked_for_explains_the_cut(
    room: int, left: int | None, generation: int | None, reason: Reason
) -> None:
    asked = {} if left is None else {"max_tokens": left + 3}
    asked |= {} if generation is None else {"max_generation": generation}
    smallest = min(each for each in (room, left, generation) if each is not None)
    assert tokens(Budget(limits(**asked), tokens=3), prompt=100 - room) == (smallest, reason)


maybe = st.none() | st.integers(1, 40)


@given(
    asked=st.fixed_dictionaries({"max_turns": maybe, "max_tokens": maybe, "max_generation": maybe, "deadline": maybe}),
    used=st.fixed_dictionaries(
        {"turns": st.integers(0, 40), "tokens": st.integers(0, 60), "seconds": st.floats(0, 60)}
    ),
    prompt=st.integers(0, 60),
    context=st.integers(1, 50),
)
def test_an_allowance_fits_every_limit_and_an_ending_names_one_that_is_used_up(
    asked: dict[str, int | None], used: dict[str, float], prompt: int, context: int
) -> None:
    budget = Budget(Limits(**{**asked, "wall": None}), **used)  # type: ignore[arg-type]
    found = budget.allowance(prompt, context)
    turns, left = asked["max_turns"], asked["max_tokens"]
    rooms = {
        Reason.MAX_TURNS: math.inf if turns is None else turns - used["turns"],
        Reason.DEADLINE: math.inf if asked["deadline"] is None else asked["deadline"] - used["seconds"],
        Reason.MAX_TOKENS: math.inf if left is None else left - used["tokens"],
        Reason.CONTEXT_OVERFLOW: context - prompt,
    }
    if isinstance(found, Ending):
        assert rooms[found.reason] <= 0
    else:
        assert all(room > 0 for room in rooms.values())
        generation = math.inf if asked["max_generation"] is None else asked["max_generation"]
        rooms[Reason.GENERATION_LIMIT] = generation
        binding = (Reason.CONTEXT_OVERFLOW, Reason.MAX_TOKENS, Reason.GENERATION_LIMIT)
        assert found.tokens == min(rooms[reason] for reason in binding) == rooms[found.reason]
        assert prompt + found.tokens <= context


@given(limit=st.integers(1, 9), counts=st.lists(st.integers(0, 5), max_size=9))
def test_tool_calls_are_entered_all_or_none(limit: int, counts: list[int]) -> None:
    budget = Budget(limits(max_tool_calls=limit))
    for count in counts:
        before = budget.tool_calls
        over = budget.spend_calls(count)
        assert (over is not None) == (before + count > limit)
        assert budget.tool_calls == (before if over else before + count) <= limit
        assert over is None or over.reason is Reason.MAX_TOOL_CALLS


def test_the_used_up_deadline_tells_what_was_measured_beside_the_limit() -> None:
    assert Budget(limits(deadline=14400), seconds=303.5).out_of_time().detail == "303.500 s of own time, limit 14400 s"
