import pytest

from rollbook.policy.testing.ask import Ask, Refused
from rollbook.policy.testing.script import Script, Scripted
from rollbook.trace import LogprobKind, Sampling


def ask(prompt: list[int], session: str = "s") -> Ask:
    return Ask(
        session=session, number=0, rid="r", prompt=prompt, sampling=Sampling(), limit=99, seed=0,
        stops=frozenset({2}), kind=LogprobKind.RAW,
    )  # fmt: skip


def serve(scripted: Scripted, prompt: list[int], count: int | None = None) -> list[int]:
    whole = scripted.ids(ask(prompt))
    given = whole[:count]
    scripted.delivered(ask(prompt), given, whole)
    return given


def test_lists_come_one_after_the_other_and_are_closed() -> None:
    scripted = Scripted({"s": [[5, 6], [7, 2]]}, 2)
    assert serve(scripted, [1]) == [5, 6, 2]
    assert serve(scripted, [1, 5, 6, 2, 8]) == [7, 2]
    with pytest.raises(Refused, match="has 2 replies for session 's'"):
        scripted.ids(ask([1]))


def test_a_cut_list_goes_on_where_its_prompt_does() -> None:
    scripted = Scripted({"s": [[5, 6, 7, 8], [9]]}, 2)
    assert serve(scripted, [1], 2) == [5, 6]
    assert serve(scripted, [1, 5, 6], 1) == [7]
    assert serve(scripted, [1, 5, 6, 7]) == [8, 2]
    assert serve(scripted, [1, 5, 6, 7, 8, 2, 4]) == [9, 2]


def test_a_cut_list_that_is_not_continued_is_over() -> None:
    scripted = Scripted({"s": [[5, 6, 7], [9]]}, 2)
    assert serve(scripted, [1], 1) == [5]
    assert serve(scripted, [1, 5, 4]) == [9, 2]


def test_what_was_not_delivered_comes_again() -> None:
    scripted = Scripted({"s": [[5]]}, 2)
    assert scripted.ids(ask([1])) == scripted.ids(ask([1])) == [5, 2]


def test_a_function_is_asked_each_time() -> None:
    script: Script = lambda prompt, sampling, session: [len(prompt), len(session)]  # noqa: E731
    scripted = Scripted(script, 2)
    assert serve(scripted, [1, 1, 1]) == [3, 1, 2]
    scripted.clear()
    assert serve(scripted, [1]) == [1, 1, 2]


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(Refused, match="none replies for session 'x'"):
        Scripted({}, 2).ids(ask([1], "x"))
