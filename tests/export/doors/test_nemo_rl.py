import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import nemo_rl
from tests.export.doors.made import made


def test_each_stretch_that_trains_is_an_assistants_message_with_logprobs() -> None:
    (two,) = made("two_turns")
    (completion,) = nemo_rl.records([two])
    log = completion["message_log"]
    assert [message["role"] for message in log] == ["user", "assistant", "user", "assistant"]
    assert [message["token_ids"].tolist() for message in log] == [[1, 2, 3, 4, 5], [13, 14], [50, 51, 5], [15, 16, 17]]
    assert ["generation_logprobs" in message for message in log] == [False, True, False, True]
    assert np.array_equal(log[1]["generation_logprobs"], two.logprobs[5:7])
    assert (completion["reward"], completion["truncated"]) == (0.0, False)


def test_a_turn_out_of_the_loss_has_no_logprobs_and_turns_that_touch_are_cut_apart() -> None:
    (masked,) = made("masked_end")
    (completion,) = nemo_rl.records([masked])
    assert [message["role"] for message in completion["message_log"]] == ["user", "assistant", "user"]
    (one,) = made("one_turn")
    split = one.turn_id.copy()
    split[6:] = 1
    (completion,) = nemo_rl.records([dataclasses.replace(one, turn_id=split)])
    assert [message["token_ids"].tolist() for message in completion["message_log"][1:]] == [[10], [11, 12]]


def test_a_cut_attempt_is_marked() -> None:
    assert nemo_rl.records(made("cut"))[0]["truncated"]


def test_several_branches_of_one_attempt_are_refused() -> None:
    with pytest.raises(UsageError, match="one message log for each attempt"):
        nemo_rl.records(made("three_branches"))
