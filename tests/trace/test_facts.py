import msgspec
import pytest

from rollbook.errors import UsageError
from rollbook.rewards import Advantages, annotate
from rollbook.trace import Annotation, Disposition, Fate
from rollbook.trace.facts import (
    ADVANTAGE,
    DISPOSITION,
    Advantage,
    GroupAdvantages,
    advantages,
    dispositions,
    flat_groups,
)

FACT = Advantage(
    advantage=0.5,
    group="g",
    seat="solver",
    values={"a": 0.5, "b": -0.5},
    members=("a", "b", "c"),
    baseline=0.5,
    scheduled=8,
    used=2,
    estimator="dr_grpo",
    rules="h",
)


def note(
    value: object, *, name: str = ADVANTAGE, rollout: str = "a", step: int = 0, node: int | None = None
) -> Annotation:
    return Annotation(producer="p", name=name, rollout=rollout, value=value, step=step, node=node)


@pytest.mark.parametrize("value", [0.5, None])
def test_a_fact_comes_back_from_its_wire_form(value: float | None) -> None:
    fact = msgspec.structs.replace(FACT, advantage=value)
    wired = msgspec.msgpack.decode(msgspec.msgpack.encode(note(msgspec.to_builtins(fact))), type=Annotation)
    assert advantages([wired]) == {"a": fact}
    decided = Disposition(Fate.MASKED, "max_turns: mask")
    assert dispositions([note(msgspec.to_builtins(decided), name=DISPOSITION)]) == {"a": decided}


@pytest.mark.parametrize(
    ("values", "flat"), [({"a": 0.5, "b": -0.5}, False), ({"a": 0.0, "b": 0.0}, True), ({}, False)]
)
def test_a_group_whose_votes_count_alike_has_no_variance(values: dict[str, float], flat: bool) -> None:
    assert msgspec.structs.replace(FACT, values=values).zero_variance is flat


def test_the_newest_step_wins_then_the_last_one() -> None:
    fates = ((Fate.USED, 2), (Fate.DROPPED, 1), (Fate.MASKED, 2))
    notes = [note(msgspec.to_builtins(Disposition(fate, "x")), name=DISPOSITION, step=step) for fate, step in fates]
    assert dispositions(notes)["a"].fate is Fate.MASKED


def test_other_names_and_facts_about_nodes_are_left_alone() -> None:
    assert advantages([note(3.0, name="label"), note(msgspec.to_builtins(FACT), node=2)]) == {}


@pytest.mark.parametrize("value", [0.5, {"advantage": 0.5}, {**msgspec.to_builtins(FACT), "members": "ab"}, None])
def test_a_value_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"is no Advantage.*can write it again"):
        advantages([note(value)])


def test_what_the_rewards_room_writes_is_read() -> None:
    written = GroupAdvantages(
        group="g",
        seat="solver",
        values={"a": 0.5, "b": -0.5},
        members=("a", "b", "c"),
        baseline=0.5,
        scheduled=8,
        used=2,
        estimator="dr_grpo",
        rules="h",
    )
    read = advantages(Advantages((written,)).annotations())
    assert read["a"] == FACT
    assert read["c"] == msgspec.structs.replace(FACT, advantage=None)
    decided = {"a": Disposition(Fate.USED, "final_answer: score")}
    assert dispositions(annotate(decided)) == decided


def seat(name: str, *values: float, group: str = "g") -> GroupAdvantages:
    by_rollout = {f"{name}{number}": value for number, value in enumerate(values)}
    plain = {name: value for name, value in msgspec.structs.asdict(FACT).items() if name != "advantage"}
    return msgspec.structs.replace(
        GroupAdvantages(**plain), group=group, seat=name, values=by_rollout, used=len(values)
    )


@pytest.mark.parametrize(
    ("seats", "flat"),
    [
        ((seat("solver", 0.0, 0.0), seat("judge", 0.0, 0.0)), {"g"}),
        ((seat("solver", 0.0, 0.0), seat("judge", 0.5, -0.5)), set()),
        ((seat("judge", 0.5, -0.5), seat("solver", 0.0, 0.0)), set()),
        ((seat("solver", 0.0, 0.0), seat("judge")), {"g"}),
        ((seat("solver"), seat("judge")), set()),
        ((seat("solver", 0.0), seat("solver", 0.5, -0.5, group="h"), seat("solver", 0.0, group="i")), {"g", "i"}),
    ],
)
def test_a_group_is_flat_where_no_seat_has_a_signal(seats: tuple[GroupAdvantages, ...], flat: set[str]) -> None:
    assert flat_groups(seats) == flat
