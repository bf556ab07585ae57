"""What an environment returns is held to its form where it enters, so that it cannot cost the record."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.envs import Environment
from rollbook.trace import Ending, FinalState, Reason
from tests.cases.case import Script, Talk, run_one, says


class Finishes(Environment):
    def __init__(self, state: Any) -> None:
        self.state = state

    async def final_state(self) -> Any:
        return self.state


@pytest.mark.parametrize("data", [object(), {1, 2}, {1: 2}, b"\xff", float("nan"), [[object()]], 1j])
def test_a_final_state_that_is_not_plain_data_is_noted_and_left_out(data: Any) -> None:
    for env in (Finishes(FinalState(data=data)), Finishes(data)):
        trace = run_one(lambda env=env: env, Script([says("a")]))
        assert (trace.ending, trace.sealed) == (Ending(Reason.FINAL_ANSWER), True)
        assert trace.tail.final_state is None
        assert [error.where for error in trace.tail.errors] == ["final_state"]


def test_a_final_state_is_kept_as_it_reads_back() -> None:
    state = FinalState(text="t", data={"a": (1, None), "b": [2**80, "\ud835"]}, files={"f": "sha256:0"})
    trace = run_one(lambda: Finishes(state), Script([says("a")]))
    assert trace.tail.final_state == FinalState(
        text="t", data={"a": [1, None], "b": [2**80, "\ud835"]}, files={"f": "sha256:0"}
    )


@pytest.mark.parametrize("value", [object(), {1}, float("nan")])
def test_a_step_whose_observation_has_no_text_is_a_fault_of_the_environment(value: Any) -> None:
    trace = run_one(lambda: Talk([value]), Script([says("a")]))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.TOOL_SERVER
    assert "no text" in trace.ending.detail


def test_an_observation_keeps_its_type_and_its_bytes() -> None:
    trace = run_one(lambda: Talk([b"\x00\xff", {"k": 1}, None, ""]), Script([says("a")]))
    found = [(node.content, node.value_type, node.raw) for node in trace.graph.messages[2::2]]
    assert found == [
        ("\0\\xff", "bytes", b"\x00\xff"),
        ('{"k": 1}', "dict", None),
        ("null", "NoneType", None),
        ("", "str", None),
    ]
