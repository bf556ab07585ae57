import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import tinker
from tests.export.doors.made import made


def test_everything_is_shifted_by_one() -> None:
    (two,) = made("two_turns")
    two = dataclasses.replace(two, advantage=-0.5)
    (datum,) = tinker.records([two])
    inputs = datum["loss_fn_inputs"]
    assert datum["model_input"] == two.token_ids[:-1].tolist()
    assert inputs["target_tokens"].tolist() == two.token_ids[1:].tolist()
    assert inputs["mask"].tolist() == two.loss_mask[1:].astype(float).tolist()
    assert inputs["advantages"].tolist() == (-0.5 * two.loss_mask[1:]).tolist()
    assert np.array_equal(inputs["logprobs"], np.where(two.loss_mask, two.logprobs, 0)[1:])
    assert {name: array.dtype for name, array in inputs.items()} == {
        "target_tokens": np.int64,
        "logprobs": np.float32,
        "advantages": np.float32,
        "mask": np.float32,
    }


def test_the_mask_can_be_left_out_for_servers_that_refuse_it() -> None:
    (one,) = made("one_turn")
    records = tinker.records([dataclasses.replace(one, advantage=0.5)], with_mask=False)
    assert set(records[0]["loss_fn_inputs"]) == {"target_tokens", "logprobs", "advantages"}
    (row,) = tinker.rows(records)
    assert row.trains.tolist() == one.loss_mask.tolist()


def test_an_absent_advantage_is_refused() -> None:
    (one,) = made("one_turn")
    with pytest.raises(UsageError, match="no advantage"):
        tinker.records([dataclasses.replace(one, advantage=None)])
