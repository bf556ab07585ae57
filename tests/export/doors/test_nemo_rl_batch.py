import numpy as np

from rollbook.export.doors import nemo_rl_batch
from tests.export.doors.made import made


def test_the_columns_are_padded_on_the_right() -> None:
    samples = made("one_turn", "three_branches", "cut")
    batch = nemo_rl_batch.records(samples, pad_id=63)
    longest = max(map(len, samples))
    assert {name: (array.dtype, array.shape) for name, array in batch.items()} == {
        "input_ids": (np.int64, (5, longest)),
        "token_mask": (np.int64, (5, longest)),
        "generation_logprobs": (np.float32, (5, longest)),
        "advantages": (np.float32, (5, longest)),
        "input_lengths": (np.int64, (5,)),
        "sample_mask": (np.float32, (5,)),
        "total_reward": (np.float32, (5,)),
        "truncated": (np.bool_, (5,)),
    }
    assert batch["sample_mask"].tolist() == [1.0] * 5
    assert batch["truncated"].tolist() == [False] * 4 + [True]
    for place, sample in enumerate(samples):
        length = len(sample)
        assert batch["input_lengths"][place] == length
        assert batch["input_ids"][place].tolist() == [*sample.token_ids.tolist(), *[63] * (longest - length)]
        assert batch["token_mask"][place, :length].tolist() == sample.loss_mask.astype(int).tolist()
        want = np.where(sample.loss_mask, np.float32(sample.advantage or 0), np.float32(0))
        assert np.array_equal(batch["advantages"][place, :length], want)
        assert not batch["token_mask"][place, length:].any()
