"""Bad rows, bounds, and how a file tells its form."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import UsageError
from rollbook.export.importers import IMPORTERS, Book, find_importer, guess_form, read_into
from rollbook.export.importers import archive as archives
from rollbook.export.importers import rows as row_module
from rollbook.trace import MemorySink
from tests.export.importers.imported import DATA, FORMS, first_row, lines, read

VERL = {"input": "q", "output": "a", "gts": "1", "score": 1.0, "step": 1}
PRIME_RL, VERIFIERS = first_row("prime_rl.jsonl"), first_row("verifiers.jsonl")


@pytest.mark.parametrize(("name", "form"), FORMS.items())
def test_a_file_tells_its_form(name: str, form: str) -> None:
    assert guess_form(DATA / name) == form


def test_every_form_has_a_file() -> None:
    assert set(FORMS.values()) == set(IMPORTERS)


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", "hello\n", '{"input": 1, "output": 2}\n', "\x00\x01"])
def test_what_is_not_told_is_asked_for(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UsageError, match="does not tell what form it has; name it"):
        guess_form(tmp_path / "x")


def test_an_unknown_form_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no form 'csv' can be imported; forms: slime, verl"):
        find_importer("csv")


@pytest.mark.parametrize("name", ["nothing", "."])
def test_there_must_be_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file that is there|is a folder"):
        read(tmp_path / name, "verl")


BAD: list[tuple[str, Any, str]] = [
    ("verl", "{", "it is no JSON"),
    ("verl", "[" * 100_000, "it is no JSON"),
    ("verl", [], "Expected `object`"),
    ("verl", {"input": "q"}, "missing required field"),
    ("verl", {**VERL, "output": 5}, "Expected `str`"),
    ("verl", '{"input": "q", "output": "a", "gts": 1, "score": NaN, "step": 1}', "no finite number"),
    ("verl", {**VERL, "score": 1e300}, "no finite number"),
    ("prime_rl", {"token_ids": [1], "loss_mask": [True], "inference_logprobs": [0.0]}, "missing required field"),
    ("verl", {**VERL, "step": "\ud800"}, "no Unicode"),
    ("prime_rl", {**PRIME_RL, "inference_logprobs": [0.0, 0.0, -1e300, -1.0]}, "must be finite numbers"),
    ("verifiers", {**VERIFIERS, "traces": [{**VERIFIERS["traces"][0], "tools": [{"name": 1}]}]}, "a tool is none of"),
]


@pytest.mark.parametrize(("form", "row", "says"), BAD)
def test_a_bad_row_is_told_with_its_line(form: str, row: Any, says: str, tmp_path: Path) -> None:
    good = VERL if form == "verl" else first_row(f"{form}.jsonl")
    path = lines(tmp_path / "d", good, "", row, good)
    with pytest.raises(UsageError, match=f"d, line 3: .*{says}") as caught:
        read(path, form)
    assert "--skip-bad" in str(caught.value)
    assert len(read(path, form, skip_bad=True)) == 2


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("token_ids", [40, -1, 42, 43], "from 0 to"),
        ("token_ids", [40, 2**31, 42, 43], "from 0 to"),
        ("token_ids", [40, 41], "arrays have"),
        ("inference_logprobs", [0.0, 0.0, None, -1.0], "not finite"),
        ("inference_logprobs", [0.0, 0.0, 2.0, -1.0], "above 0"),
        ("loss_mask", [False, True], "arrays have"),
        ("schema_version", 2, "its schema is 2"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(field: str, value: Any, says: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "d", {**first_row("prime_rl.jsonl"), field: value})
    with pytest.raises(UsageError, match=f"line 1: .*{says}"):
        read(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parent": 7}, "does not come before it"),
        ({"parent": -2}, "does not come before it"),
        ({"mask": [True]}, "places in its mask"),
        ({"logprobs": [-0.5]}, "logprobs"),
        ({"message": {"role": "oracle", "content": ""}}, "has the role 'oracle'"),
        ({"message": {"content": ""}}, "missing required field `role`"),
        ({"sampled": False}, "only the policy samples"),
    ],
)
def test_nodes_that_do_not_hold_together_are_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    row = first_row("verifiers.jsonl")
    row["traces"][0]["nodes"][2].update(change)
    with pytest.raises(UsageError, match=f"line 1: .*{says}"):
        read(lines(tmp_path / "d", row))


def test_skipped_rows_are_counted_and_the_first_are_told(tmp_path: Path) -> None:
    path, importer = lines(tmp_path / "d", VERL, *["{"] * 30), find_importer("verl")
    found = read_into(MemorySink(), importer, path, Book("verl", "d", "run"), skip_bad=True)
    assert (found.rows, found.rollouts, found.skipped, len(found.first_skipped)) == (31, 1, 30, 20)
    assert found.first_skipped[0].startswith("line 2: it is no JSON")


@pytest.mark.parametrize(("rows", "says"), [((), "it holds no row"), (("{", "{"), "all 2 rows of it are bad")])
def test_a_file_of_nothing_is_refused(rows: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        read(lines(tmp_path / "d", *rows), "verl", skip_bad=True)


def test_no_line_is_longer_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_module, "MOST_LINE", 10)
    with pytest.raises(UsageError, match="line 1 is longer than 10 bytes"):
        read(lines(tmp_path / "d", VERL), "verl")


def test_a_text_file_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no archive that can be read"):
        read(lines(tmp_path / "d", VERL), "slime")


def test_an_archive_of_something_else_is_no_rollout_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d", "w") as made:
        made.writestr("a", "b")
    with pytest.raises(UsageError, match="no debug rollout file of slime"):
        read(tmp_path / "d", "slime")
    with pytest.raises(UsageError, match="no log of Inspect"):
        read(tmp_path / "d", "inspect")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_no_more_of_a_member_is_unpacked_than_the_bound(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d", "w") as made:
        made.writestr("bomb", b"0" * 10_000, method)
    with archives.opened_archive(tmp_path / "d") as archive:
        assert len(archive.read("bomb")) == 10_000
        with pytest.raises(row_module.BadRow, match="at most 9999 are read"):
            archive.read("bomb", most=9_999)


def test_a_member_that_hides_its_size_is_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d", "w") as made:
        made.writestr("bomb", b"0" * 10_000, zipfile.ZIP_DEFLATED)
        made.filelist[0].file_size = 5
    with (
        archives.opened_archive(tmp_path / "d") as archive,
        pytest.raises(row_module.BadRow, match="length or checksum"),
    ):
        archive.read("bomb", most=100)


def test_a_damaged_member_is_told(tmp_path: Path) -> None:
    content = (DATA / "inspect.eval").read_bytes()
    at = content.index(b"samples/one_epoch_1.json") + 200
    (tmp_path / "d.eval").write_bytes(content[:at] + b"xxxxxxxx" + content[at + 8 :])
    with pytest.raises(UsageError, match=r"samples/one_epoch_1.json: .*damaged"):
        read(tmp_path / "d.eval")
    assert len(read(tmp_path / "d.eval", skip_bad=True)) == 3


def test_a_compressed_pickle_is_refused(tmp_path: Path) -> None:
    with archives.opened_archive(DATA / "slime.pt") as archive, zipfile.ZipFile(tmp_path / "d", "w") as made:
        for name in archive.names:
            made.writestr(name, archive.read(name), zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="compressed, which this form never is"):
        read(tmp_path / "d", "slime")


def test_the_same_file_gives_the_same_ids() -> None:
    assert [trace.id for trace in read(DATA / "slime.pt")] == [trace.id for trace in read(DATA / "slime.pt")]


def test_a_trajectory_may_stand_in_a_line(tmp_path: Path) -> None:
    plain = json.loads((DATA / "atif_ids.json").read_text())
    traces = read(lines(tmp_path / "d", plain, {**plain, "session_id": "s1"}))
    assert [trace.head.member for trace in traces] == [0, 1], "they were asked the same"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [("schema_version", "ATIF-v2.0", "of version 'ATIF-v2.0'"), ("steps", {}, "Expected `array`")],
)
def test_other_trajectories_are_refused(field: str, value: Any, says: str, tmp_path: Path) -> None:
    plain = json.loads((DATA / "atif_ids.json").read_text())
    with pytest.raises(UsageError, match=says):
        read(lines(tmp_path / "d", {**plain, field: value}), "atif")
