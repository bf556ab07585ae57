"""Pieces: each says where it belongs, and none is taken for another."""

from __future__ import annotations

import pytest

from rollbook.errors import StoreError
from rollbook.store.pieces import HEADER, pack_piece, piece_key, sort_pieces, unpack_piece


def test_a_piece_knows_its_place_and_its_bytes() -> None:
    piece = pack_piece(7, b"bytes")
    assert len(piece) == HEADER + 5
    assert unpack_piece("k", piece, 7) == b"bytes"
    for place in range(len(piece)):
        damaged = bytearray(piece)
        damaged[place] ^= 1
        with pytest.raises(StoreError, match="the object k is"):
            unpack_piece("k", bytes(damaged), 7)
    for wrong in (piece[:-1], piece + b"x", piece[:3], b""):
        with pytest.raises(StoreError, match="the object k is"):
            unpack_piece("k", wrong, 7)
    with pytest.raises(StoreError, match="not what was written"):
        unpack_piece("k", piece, 8)


def test_pieces_are_sorted_to_their_files_and_others_are_left_alone() -> None:
    sizes = {
        piece_key("segments/w-000001.seg", 2): HEADER + 5,
        piece_key("segments/w-000001.seg", 1): HEADER + 10,
        piece_key("writers/w0/segments/x.seg", 1): HEADER,
        piece_key("run.json", 1): HEADER + 30,
        piece_key("run.json", 2): HEADER + 40,
        piece_key("annotations/a%2Fb.ann", 1): HEADER + 1,
        "notes.txt": 3,
        "segments/x.seg/1": 3,
        "journal/x.jnl/00000001": 3,
        "writers/../segments/x.seg/00000001": 3,
        "segments/a/b.seg/00000001": 3,
        "other/run.json/00000001": 3,
    }
    files = sort_pieces(sizes)
    assert {name: pieces.ends for name, pieces in files.items()} == {
        "annotations/a%2Fb.ann": [1],
        "run.json": [30, 40],
        "segments/w-000001.seg": [10, 15],
        "writers/w0/segments/x.seg": [0],
    }
    pieces = files["segments/w-000001.seg"]
    assert [pieces.whole(size) for size in (0, 9, 10, 14, 15, 99)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("numbers", [(2,), (1, 3), (0, 1)])
def test_a_missing_piece_is_told(numbers: tuple[int, ...]) -> None:
    with pytest.raises(StoreError, match="is missing"):
        sort_pieces({piece_key("segments/x.seg", number): HEADER + 1 for number in numbers})
    with pytest.raises(StoreError, match="no piece"):
        sort_pieces({piece_key("segments/x.seg", 1): HEADER - 1})
