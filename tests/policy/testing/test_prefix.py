import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.testing.prefix import PrefixCache

IDS = st.lists(st.integers(0, 3), min_size=1, max_size=40).map(lambda ids: np.array(ids, np.int32))


@given(served=IDS, prompt=IDS, block=st.integers(1, 16))
def test_what_is_shared_is_a_common_prefix_of_whole_blocks(served: np.ndarray, prompt: np.ndarray, block: int) -> None:
    cache = PrefixCache(block)
    cache.keep("s", served)
    shared = cache.shared("s", prompt)
    assert shared % block == 0
    assert shared < len(prompt)
    assert np.array_equal(served[:shared], prompt[:shared])
    longer = shared + block
    assert longer >= len(prompt) or not np.array_equal(served[:longer], prompt[:longer])


def test_another_session_shares_what_begins_alike() -> None:
    cache = PrefixCache(1)
    cache.keep("a", np.arange(100, dtype=np.int32))
    assert cache.shared("b", np.arange(50, dtype=np.int32)) == 49
    assert cache.shared("b", np.arange(1, 50, dtype=np.int32)) == 0
    cache.clear()
    assert cache.shared("b", np.arange(50, dtype=np.int32)) == 0
