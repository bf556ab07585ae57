"""Routed experts out of base64 and ``.npy``, which may be hostile."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.experts import experts_in_npy, experts_of_shape
from rollbook.trace import Reason, RolloutFailure


def packed(array: Any, **how: Any) -> str:
    file = io.BytesIO()
    np.save(file, array, **how)
    return b64encode(file.getvalue()).decode()


def routing(rows: int, kind: Any = np.uint8) -> Any:
    return np.arange(rows * 2 * 3).reshape(rows, 2, 3).astype(kind)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
@pytest.mark.parametrize("rows", [2, 2 + 4 - 1])
def test_the_rows_of_the_sampled_tokens(kind: Any, rows: int) -> None:
    found = experts_in_npy(packed(routing(rows, kind)), 2, 4)
    assert found.dtype == np.uint16
    assert found.tolist() == routing(rows)[-2:].tolist()


def forged(shape: str, body: bytes = b"\0" * 12, kind: str = "|u1", by_column: bool = False) -> str:
    header = f"{{'descr': '{kind}', 'fortran_order': {by_column}, 'shape': {shape}, }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    return b64encode(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "AAAA",
        b64encode(b"\x93NUMPY\x02\x00").decode(),
        packed(routing(2, np.float32)),
        packed(np.zeros((2, 3), np.uint8)),
        packed(np.array([[[{}]]], object), allow_pickle=True),
        packed(routing(3)),
        packed(routing(4)),
        packed(routing(2, ">u2")),
        packed(np.asfortranarray(routing(2))),
        packed(routing(2, np.int32) - 1),
        packed(routing(2, np.int32) + 2**16),
        forged("(2, 2, 4)"),
        forged("(2, 2, 1099511627776)"),
        forged("(2, -2, -3)"),
        forged("(2, 2, 3.0)"),
        forged("(2, 2, 3)", kind="|V1"),
    ],
)
def test_what_is_no_routing(text: str) -> None:
    with pytest.raises(RolloutFailure) as caught:
        experts_in_npy(text, 2, 4)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


def test_a_header_that_its_bytes_do_not_bear_out() -> None:
    with pytest.raises(RolloutFailure, match="12 bytes for uint8 of shape"):
        experts_in_npy(forged("(2, 2, 1099511627776)"), 2, 4)


def test_the_forgery_itself_is_readable() -> None:
    assert experts_in_npy(forged("(2, 2, 3)"), 2, 4).shape == (2, 2, 3)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_refused(data: bytes) -> None:
    for body in (data, b"\x93NUMPY\x01\x00" + data):
        with pytest.raises(RolloutFailure):
            experts_in_npy(b64encode(body).decode(), 2, 4)


def flat(*numbers: int) -> str:
    return b64encode(np.array(numbers, np.int32).tobytes()).decode()


def test_numbers_without_a_shape() -> None:
    found = experts_of_shape(flat(*range(12)), 2, (2, 3))
    assert (found.dtype, found.shape, found[1].tolist()) == (np.uint16, (2, 2, 3), [[6, 7, 8], [9, 10, 11]])


@pytest.mark.parametrize("text", ["!", "AAAA", "AAAAAAAA", flat(1, 2), flat(-1), flat(2**16)])
def test_numbers_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(RolloutFailure, match="expert") as caught:
        experts_of_shape(text, 1, (1, 1))
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize(
    "header",
    ["{'descr': (", "'" * 3, "{[]: 1}", "-" * 9000, "(" * 9000, "\n  a\n b", "\0",
     "{'descr': '<u2', 'fortran_order': False, 'shape': (0, 1180591620717411303424, 1)}"],
)  # fmt: skip
def test_a_header_that_is_none(header: str) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with pytest.raises(RolloutFailure, match="unreadable routed experts"):
        experts_in_npy(b64encode(data).decode(), 1, 1)
