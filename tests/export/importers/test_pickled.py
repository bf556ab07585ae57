"""The reader of pickles: plain data comes back, and nothing else is ever done."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.export.importers.pickled import Storage, unpickle
from rollbook.export.importers.rows import BadRow

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary()
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(st.text(), inner, max_size=5)
    ),
    max_leaves=20,
)


def no_storage(asked: Storage) -> bytes:
    raise BadRow(f"no {asked}")


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
@settings(max_examples=150, deadline=None)
def test_plain_data_comes_back(plain: Any, protocol: int) -> None:
    assert unpickle(pickle.dumps(plain, protocol), no_storage) == plain


def test_what_is_shared_stays_shared() -> None:
    one = [1]
    found = unpickle(pickle.dumps([one, one], 2), no_storage)
    assert found[0] is found[1]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("number", [np.float64(0.5), np.float32(0.25), np.int64(-3), np.bool_(True)])
def test_numbers_of_numpy_are_numbers(number: Any, protocol: int) -> None:
    found = unpickle(pickle.dumps(number, protocol), no_storage)
    assert (found, type(found).__module__) == (number.item(), "builtins")


def test_an_ordered_mapping_is_a_mapping() -> None:
    assert unpickle(pickle.dumps(collections.OrderedDict(), 2), no_storage) == {}


class _Calls:
    """Pickles as a call of `called`."""

    def __init__(self, called: Any, *args: Any) -> None:
        self.what = called, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.what


class _Plain:
    """An instance of a class of somebody's."""


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize(
    "hostile",
    [
        _Calls(os.system, "touch hacked"),
        _Calls(eval, "open('hacked', 'w')"),
        _Calls(exec, "open('hacked', 'w')"),
        _Calls(subprocess.Popen, ["touch", "hacked"]),
        _Calls(getattr, os, "system"),
        _Calls(__import__, "os"),
        _Calls(Path, "x"),
        _Plain(),
        {1, 2},
        np.array([object()]),
        np.arange(3),
    ],
    ids=lambda hostile: getattr(getattr(hostile, "what", (type(hostile),))[0], "__name__", None),
)
def test_nothing_is_called_and_nothing_is_imported(
    hostile: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(hostile, _Calls) and hostile.what[0] is getattr:
        hostile.what = (getattr, (_Plain, "__init__"))
    try:
        data = pickle.dumps({"samples": [hostile]}, protocol)
    except (TypeError, AttributeError, pickle.PicklingError):
        pytest.skip("this protocol has no form for it")
    with pytest.raises(BadRow, match=r"does not need|no tensor|damaged|calls what is no name"):
        unpickle(data, no_storage)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02]q\xff",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02\x8d" + b"\xff" * 8 + b"x.",
        b"\x80\x02e.",
        b"\x80\x02]e.",
        b"\x80\x02}K\x01s.",
        b"\x80\x02K\x01K\x01a.",
        b"\x80\x02h\x05.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02}]K\x01s.",
        b"\x80\x02)R.",
        b"\x80\x02K\x01)R.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02}}K\x01K\x02sb.",
        b"\x80\x02\x86.",
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02ccollections\nOrderedDict\n.garbage",
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        b"\x80\x02c\xff\xff\n\xff\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    ],
)
def test_damaged_programs_are_refused(program: bytes) -> None:
    if program.endswith(b"garbage"):
        unpickle(program, no_storage)
        return
    with pytest.raises(BadRow):
        unpickle(program, no_storage)


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_program_does_anything_but_give_data_or_be_refused(program: bytes) -> None:
    with contextlib.suppress(BadRow):
        unpickle(b"\x80\x02" + program + b".", no_storage)


def test_a_large_place_in_the_memo_costs_nothing() -> None:
    program = b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"."
    assert unpickle(program, no_storage) == []


def tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, length: int = 6) -> bytes:
    """A pickle of one tensor over a storage of `length` values, as torch writes it."""

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(length) + b"tQ"
    sizes = b"(" + b"".join(map(number, size)) + b"t" + b"(" + b"".join(map(number, stride)) + b"t"
    hooks = b"ccollections\nOrderedDict\n)R"
    call = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return b"\x80\x02" + call + b"(" + storage + number(offset) + sizes + b"\x89" + hooks + b"tR."


def six(asked: Storage) -> bytes:
    assert (asked.kind, asked.key) == ("torch FloatStorage", "0")
    return np.arange(6, dtype="<f4").tobytes()


def test_tensors_are_views_of_their_storage() -> None:
    assert unpickle(tensor((2, 3), (3, 1)), six).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert unpickle(tensor((2, 2), (1, 2), 1), six).tolist() == [[1, 3], [2, 4]]
    assert unpickle(tensor((0,), (1,)), six).tolist() == []


@pytest.mark.parametrize(
    ("size", "stride", "offset", "length"),
    [
        ((7,), (1,), 0, 6),
        ((3,), (3,), 0, 6),
        ((2,), (1,), 5, 6),
        ((2**31 - 1,), (0,), 0, 6),
        ((2**30, 2**30), (0, 0), 0, 6),
        ((2,), (-1,), 3, 6),
        ((-2,), (1,), 0, 6),
        ((2,), (1,), -1, 6),
        ((2,), (1, 1), 0, 6),
        ((2,), (1,), 0, 7),
    ],
)
def test_no_tensor_reaches_beyond_its_storage(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, length: int
) -> None:
    with pytest.raises(BadRow):
        unpickle(tensor(size, stride, offset, length), six)


DOUBLED_TUPLE = b")q\x000" + b"h\x00h\x00\x86q\x000" * 60 + b"h\x00"


@pytest.mark.parametrize("keys", [DOUBLED_TUPLE, b")" + b"\x85" * 100_000])
def test_a_key_is_never_walked_for_its_hash(keys: bytes) -> None:
    with pytest.raises(BadRow, match="neither text nor number"):
        unpickle(b"\x80\x02}" + keys + b"K\x01s.", no_storage)


def doubled(times: int, inner: Any = "x") -> Any:
    for _ in range(times):
        inner = [inner, inner]
    return inner


@pytest.mark.parametrize("plain", [doubled(60), {"a": doubled(40)}, [["x" * 1000] * 1000] * 1000])
def test_what_is_shared_too_often_is_refused(plain: Any) -> None:
    with pytest.raises(BadRow, match="repeats what it holds"):
        unpickle(pickle.dumps(plain, 2), no_storage)


def test_what_is_shared_a_little_is_read() -> None:
    assert unpickle(pickle.dumps(doubled(10), 2), no_storage) == doubled(10)


def test_a_tensor_that_is_rebuilt_often_counts_as_often() -> None:
    tensor = tensor_pickle(1000)[2:-1]
    program = b"\x80\x02(" + tensor + b"q\xff" + b"h\xff" * 5000 + b"t."
    with pytest.raises(BadRow, match="repeats what it holds"):
        unpickle(program, lambda _: bytes(4000))


def tensor_pickle(count: int) -> bytes:
    size = b"M" + struct.pack("<H", count)
    named = b"ctorch._utils\n_rebuild_tensor_v2\n"
    stored = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + size + b"tQ"
    return b"\x80\x02" + named + b"(" + stored + b"K\x00" + size + b"\x85K\x01\x85tR."


def test_data_that_hold_themselves_are_refused() -> None:
    plain: list[Any] = []
    plain.append({"a": plain})
    with pytest.raises(BadRow, match="hold themselves"):
        unpickle(pickle.dumps(plain, 2), no_storage)


def test_data_that_are_nested_without_end_are_refused() -> None:
    with pytest.raises(BadRow, match="1000 deep"):
        unpickle(b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".", no_storage)


@pytest.mark.parametrize("called", [b"cnumpy\ndtype\n", b"\x93"])
def test_names_are_texts(called: bytes) -> None:
    program = called + DOUBLED_TUPLE + b"\x85R" if called != b"\x93" else DOUBLED_TUPLE + b"X\x01\x00\x00\x00x" + called
    with pytest.raises(BadRow):
        unpickle(b"\x80\x02" + program + b".", no_storage)
