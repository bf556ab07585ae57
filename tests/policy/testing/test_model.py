import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.testing.model import TinyModel
from rollbook.trace import LogprobKind, Sampling

MODEL = TinyModel(32, 5)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0.1, 2.0),
    top_k=st.integers(0, 8),
    top_p=st.floats(0.1, 1.0),
    min_p=st.floats(0.0, 0.3),
)


@given(last=st.integers(0, 10**6), version=st.integers(0, 9), sampling=SAMPLINGS)
def test_all_three_forms_are_distributions(last: int, version: int, sampling: Sampling) -> None:
    choice = MODEL.choice(last, version, sampling)
    for form in (choice.raw, choice.tempered, choice.processed):
        assert abs(sum(map(math.exp, form)) - 1) < 1e-9
    assert math.isclose(choice.cumulative[-1], 1.0, abs_tol=1e-9)


@given(seed=st.integers(0, 2**40), position=st.integers(0, 5000), sampling=SAMPLINGS)
def test_a_drawn_token_is_one_that_was_kept(seed: int, position: int, sampling: Sampling) -> None:
    choice = MODEL.choice(4, 0, sampling)
    token = MODEL.draw(choice, sampling, seed, position)
    assert choice.processed[token] > -math.inf
    assert token == MODEL.draw(choice, sampling, seed, position)


def test_draws_follow_the_distribution() -> None:
    choice = MODEL.choice(9, 0, Sampling())
    found = Counter(MODEL.draw(choice, Sampling(), 1, position) for position in range(20_000))
    shares = np.array([found[each] / 20_000 for each in range(32)])
    assert np.abs(shares - np.exp(choice.raw)).max() < 0.015


def test_temperature_and_truncation_do_what_they_say() -> None:
    plain, hot = MODEL.choice(7, 0, Sampling()), MODEL.choice(7, 0, Sampling(temperature=2.0))
    cut = MODEL.choice(7, 0, Sampling(top_k=3))
    a, b = plain.top, (plain.top + 1) % 32
    assert math.isclose((plain.raw[a] - plain.raw[b]) / 2, hot.tempered[a] - hot.tempered[b])
    assert hot.raw == plain.raw
    assert sum(value > -math.inf for value in cut.processed) == 3
    assert cut.tempered == plain.tempered
    nucleus = MODEL.choice(7, 0, Sampling(top_p=0.5)).processed
    kept = [math.exp(value) for value, now in zip(plain.raw, nucleus, strict=True) if now > -math.inf]
    assert sum(kept) >= 0.5 > sum(kept) - min(kept)


def test_greedy_takes_the_likeliest_and_versions_differ() -> None:
    greedy = Sampling(temperature=0.0)
    choice = MODEL.choice(3, 0, greedy)
    assert MODEL.draw(choice, greedy, 1, 2) == int(np.argmax(choice.raw))
    assert choice.raw != MODEL.choice(3, 1, greedy).raw


def test_penalties_move_what_occurred() -> None:
    plain = MODEL.choice(3, 0, Sampling())
    top = plain.top
    punished = MODEL.penalised(3, 0, Sampling(presence_penalty=1.0, frequency_penalty=0.5), [top, top], [top])
    other = (top + 1) % 32
    before, after = plain.raw[top] - plain.raw[other], punished.tempered[top] - punished.tempered[other]
    assert math.isclose(before - after, 2.0)
    repeated = MODEL.penalised(3, 0, Sampling(repetition_penalty=2.0), [], [top])
    assert repeated.tempered[top] < plain.tempered[top]
    assert repeated.raw == plain.raw


def test_an_id_outside_the_vocabulary_has_a_logprob() -> None:
    choice = MODEL.choice(3, 0, Sampling())
    value = MODEL.logprob(choice, LogprobKind.RAW, 3, 0, 40_000)
    assert -5 < value < 0
    assert value == MODEL.logprob(choice, LogprobKind.RAW, 3, 0, 40_000)
