import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import prime_rl
from rollbook.trace import Sampling
from tests.export.doors.made import made


def test_the_fields_of_a_row() -> None:
    (one,) = made("one_turn")
    one = dataclasses.replace(one, advantage=0.5)
    (row,) = prime_rl.records([one], env_name="quiz")
    assert row == {
        "token_ids": [1, 2, 3, 4, 5, 10, 11, 12],
        "mask": [False] * 5 + [True] * 3,
        "logprobs": [0.0] * 5 + one.logprobs[5:].tolist(),
        "temperatures": [1.0] * 8,
        "env_name": "quiz",
        "advantages": [0.0] * 5 + [0.5] * 3,
        "routed_experts": None,
    }


def test_the_temperature_is_that_of_the_sampling_and_several_are_refused() -> None:
    (one,) = made("one_turn")
    warm = dataclasses.replace(one, samplings=(Sampling(temperature=0.5),))
    assert prime_rl.records([warm])[0]["temperatures"] == [0.5] * 8
    with pytest.raises(UsageError, match="drawn at 2 temperatures"):
        prime_rl.records([dataclasses.replace(one, samplings=(Sampling(), Sampling(temperature=0.5)))])


def test_experts_have_a_row_for_the_pass_over_each_token() -> None:
    (one,) = made("one_turn")
    experts = np.arange(8 * 4, dtype=np.uint16).reshape(8, 2, 2)
    known = np.arange(8) > 0
    (row,) = prime_rl.records([dataclasses.replace(one, routed_experts=experts, experts_known=known)])
    given = row["routed_experts"]
    read = np.frombuffer(given["data"], given["dtype"]).reshape(given["shape"])
    assert np.array_equal(read[:-1], experts[1:])
    assert not read[-1].any()
    with pytest.raises(UsageError, match="not known"):
        prime_rl.records(made("one_turn", experts=True))
