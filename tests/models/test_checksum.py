import hashlib
import os

import pytest

from rollbook.errors import ModelError
from rollbook.models.checksum import file_sha256


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_sum_is_computed_once_for_a_state_of_the_file(tmp_path):
    file, notes, read = tmp_path / "w", tmp_path / "notes", []
    file.write_bytes(b"one")
    assert file_sha256(file, notes, read.append) == sum_of(b"one")
    assert file_sha256(file, notes, read.append) == sum_of(b"one")
    assert read == [3]


def test_a_changed_file_is_read_again(tmp_path):
    file, notes = tmp_path / "w", tmp_path / "notes"
    file.write_bytes(b"one")
    file_sha256(file, notes)
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert file_sha256(file, notes) == sum_of(b"two")


def test_a_copy_elsewhere_has_its_own_note(tmp_path):
    first, second, notes = tmp_path / "a", tmp_path / "b", tmp_path / "notes"
    for file, data in ((first, b"one"), (second, b"two")):
        file.write_bytes(data)
        os.utime(file, ns=(5, 5))
    assert file_sha256(first, notes) == sum_of(b"one")
    assert file_sha256(second, notes) == sum_of(b"two")


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"path": 1}', b"[]", b'{"sha256": "0"}'])
def test_a_damaged_note_is_as_good_as_none(tmp_path, garbage):
    file, notes = tmp_path / "w", tmp_path / "notes"
    file.write_bytes(b"one")
    file_sha256(file, notes)
    (note,) = notes.iterdir()
    note.write_bytes(garbage)
    assert file_sha256(file, notes) == sum_of(b"one")
    assert file_sha256(file, notes) == sum_of(b"one")


def test_a_missing_file_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match="cannot read"):
        file_sha256(tmp_path / "none", tmp_path / "notes")


def test_a_note_that_cannot_be_written_names_the_remedy(tmp_path):
    file, blocked = tmp_path / "w", tmp_path / "notes"
    file.write_bytes(b"one")
    blocked.write_bytes(b"a file where the folder should be")
    with pytest.raises(ModelError, match="ROLLBOOK_CACHE"):
        file_sha256(file, blocked)
