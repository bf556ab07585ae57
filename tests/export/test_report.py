from hypothesis import given
from hypothesis import strategies as st

from rollbook.export.report import snapshot
from rollbook.trace import Annotation

notes = st.lists(
    st.builds(
        Annotation,
        producer=st.sampled_from(["p", "q"]),
        name=st.sampled_from(["n", "m"]),
        rollout=st.text(max_size=2),
        value=st.integers(0, 3),
        step=st.integers(0, 3),
    ),
    max_size=5,
)


@given(notes, st.randoms())
def test_the_order_of_facts_does_not_matter(facts: list[Annotation], random: object) -> None:
    shuffled = list(facts)
    random.shuffle(shuffled)
    assert snapshot(shuffled) == snapshot(facts)


def test_another_value_is_another_snapshot() -> None:
    one, two = (Annotation(producer="p", name="n", rollout="r", value=value, step=2) for value in (1, 2))
    assert snapshot([one]).hash != snapshot([two]).hash
    assert snapshot([one]).hash != snapshot([one, one]).hash
    assert (snapshot([one]).count, snapshot([one]).steps) == (1, {"p/n": 2})
    assert snapshot([]).count == 0
