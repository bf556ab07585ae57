"""Annotations: the newest of each key counts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rollbook.trace import Annotation, fold

ANNOTATIONS = st.builds(
    Annotation,
    producer=st.sampled_from(["trainer", "audit"]),
    name=st.sampled_from(["advantage", "label"]),
    rollout=st.sampled_from(["r0", "r1"]),
    value=st.integers(),
    step=st.integers(0, 1),
    node=st.none() | st.just(0),
)


def identity(annotation: Annotation) -> Any:
    return annotation.producer, annotation.name, annotation.rollout, annotation.step, annotation.node


@given(st.lists(ANNOTATIONS))
def test_the_newest_of_each_key_in_the_order_of_the_first(given_ones: list[Annotation]) -> None:
    folded = fold(given_ones)
    assert [identity(each) for each in folded] == list(dict.fromkeys(map(identity, given_ones)))
    for each in folded:
        assert each == [other for other in given_ones if identity(other) == identity(each)][-1]
    assert fold(folded) == folded


def test_a_rollout_and_its_first_node_are_two_things() -> None:
    whole = Annotation(producer="p", name="n", rollout="r", value=1)
    node = Annotation(producer="p", name="n", rollout="r", value=2, node=0)
    assert fold([whole, node]) == [whole, node]
