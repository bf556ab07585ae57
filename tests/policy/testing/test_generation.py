import pytest

from rollbook.policy.testing.ask import Ask, Stop
from rollbook.policy.testing.generation import Generation
from rollbook.policy.testing.latency import Times
from rollbook.policy.testing.model import TinyModel
from rollbook.policy.testing.shape import letters
from rollbook.trace import LogprobKind, Sampling

MODEL = TinyModel(16, 1)


def generation(
    limit: int = 20, scripted: list[int] | None = None, per_token: float = 1.0, **sampling: object
) -> Generation:
    ask = Ask(
        session="s", number=0, rid="r", prompt=[3, 4], sampling=Sampling(**sampling), limit=limit, seed=7,
        stops=frozenset({99}), kind=LogprobKind.RAW,
    )  # fmt: skip
    made = Generation(
        ask,
        model=MODEL,
        decode=letters,
        scripted=scripted,
        timing=lambda tokens: Times(2.0, 3.0, per_token * tokens),
        now=100.0,
    )
    made.plan(0, "default")
    return made


def test_tokens_come_one_after_the_other_behind_queue_and_prefill() -> None:
    made = generation()
    assert [made.produced(at) for at in (100.0, 104.9, 105.0, 106.0, 115.5, 125.0, 200.0)] == [0, 0, 0, 1, 10, 20, 20]
    assert made.remaining(110.0) == 15.0
    assert made.until(10, 110.0) == 5.0


def test_new_weights_keep_what_is_there_and_plan_the_rest_anew() -> None:
    made, same = generation(), generation()
    made.plan(1, "step-1", made.produced(110.0))
    assert made.tokens[:5] == same.tokens[:5]
    assert made.tokens[5:] != same.tokens[5:]
    answer = made.answer(0)
    assert answer.spans == [("default", 5), ("step-1", 15)]
    fifth = MODEL.choice(made.tokens[4], 1, Sampling()).raw[made.tokens[5]]
    assert answer.logprobs is not None
    assert answer.logprobs[5] == fifth


def test_weights_that_nothing_was_made_with_are_not_told() -> None:
    made = generation()
    made.plan(1, "step-1", 0)
    made.plan(2, "step-2", 0)
    assert made.answer(0).spans == [("step-2", 20)]


def test_a_pause_stops_its_time() -> None:
    made = generation()
    made.freeze(110.0)
    assert made.produced(150.0) == 5
    made.thaw(150.0)
    assert made.produced(151.0) == 6
    assert made.remaining(150.0) == 15.0


def test_an_abort_keeps_what_is_there() -> None:
    made = generation()
    made.cut(made.produced(108.0))
    answer = made.answer(0)
    assert (answer.stop, len(answer.token_ids), answer.completion_tokens) == (Stop.ABORT, 3, 3)


@pytest.mark.parametrize(
    ("scripted", "limit", "stop", "tokens"),
    [([5, 6, 99], 20, Stop.ID, 3), ([5, 6, 99], 2, Stop.LENGTH, 2), ([5, 6, 7], 20, Stop.ID, 3)],
)
def test_scripted_ids_end_where_the_script_does(scripted: list[int], limit: int, stop: Stop, tokens: int) -> None:
    made = generation(limit=limit, scripted=scripted)
    assert (made.stop, made.tokens) == (stop, scripted[:tokens])


def test_a_stop_string_ends_with_the_token_that_completes_it() -> None:
    made = generation(scripted=[1, 2, 3, 4, 99], stop=("cd",))
    assert (made.stop, made.matched, made.tokens) == (Stop.STRING, "cd", [1, 2, 3])


def test_penalties_look_at_what_was_sampled() -> None:
    plain, punished = generation(temperature=0.0), generation(temperature=0.0, presence_penalty=2.0)
    assert len(set(punished.tokens)) > len(set(plain.tokens))


def test_the_likeliest_are_listed_best_first() -> None:
    made = generation(limit=1)
    made.ask = Ask(
        session="s", number=0, rid="r", prompt=[3, 4], sampling=Sampling(), limit=1, seed=7,
        stops=frozenset({99}), kind=LogprobKind.RAW, top=3,
    )  # fmt: skip
    ((first, second, third),) = made.answer(0).top
    assert first[1] > second[1] > third[1]
