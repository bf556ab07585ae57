import msgspec
import pytest

from rollbook.errors import RecordError
from rollbook.trace import Annotation, Disposition, Fate
from rollbook.trace.facts import ADVANTAGE, DISPOSITION, Advantage, advantages, dispositions, plain

FACT = Advantage(value=0.5, members=("a", "b"), estimator="mean", rules="h", scheduled=8, used=2)


def note(
    value: object, *, name: str = ADVANTAGE, rollout: str = "a", step: int = 0, node: int | None = None
) -> Annotation:
    return Annotation(producer="p", name=name, rollout=rollout, value=value, step=step, node=node)


@pytest.mark.parametrize("value", [0.5, None])
def test_a_fact_comes_back_from_its_wire_form(value: float | None) -> None:
    fact = msgspec.structs.replace(FACT, value=value)
    wired = msgspec.msgpack.decode(msgspec.msgpack.encode(note(plain(fact))), type=Annotation)
    assert advantages([wired]) == {"a": fact}
    decided = Disposition(Fate.MASKED, "max_turns: mask")
    assert dispositions([note(plain(decided), name=DISPOSITION)]) == {"a": decided}


def test_the_newest_step_wins_then_the_last_one() -> None:
    fates = ((Fate.USED, 2), (Fate.DROPPED, 1), (Fate.MASKED, 2))
    notes = [note(plain(Disposition(fate, "x")), name=DISPOSITION, step=step) for fate, step in fates]
    assert dispositions(notes)["a"].fate is Fate.MASKED


def test_other_names_and_facts_about_nodes_are_left_alone() -> None:
    assert advantages([note(3.0, name="label"), note(plain(FACT), node=2)]) == {}


@pytest.mark.parametrize("value", [0.5, {"value": 0.5}, {**plain(FACT), "members": "ab"}, None])
def test_a_value_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match="is no Advantage"):
        advantages([note(value)])
