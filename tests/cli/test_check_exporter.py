"""`rollbook check exporter`: the table, the document, the exit codes."""

from __future__ import annotations

from rollbook.export import DOORS, ExporterCheck
from tests.cli.cli_made import document, refused, rollbook


def test_a_sound_door_is_shown_check_by_check() -> None:
    done = rollbook("check", "exporter", "slime")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert all(each.value in done.stdout for each in ExporterCheck)
    assert done.stdout.rstrip().endswith("Training on such records is sound.")
    assert DOORS["slime"].about in done.stdout


def test_the_document_has_every_finding() -> None:
    found = document(rollbook("check", "exporter", "trl", "--json"))
    assert (found["name"], found["fit"]) == ("trl", True)
    verdicts = {each["check"]: each["verdict"] for each in found["findings"]}
    assert list(verdicts) == [each.value for each in ExporterCheck]
    assert (verdicts["branch_weight"], verdicts["expert_rows"]) == ("refuses", "lacks")


def test_an_unknown_door_is_refused_with_the_names_there_are() -> None:
    assert "doors: " in refused(rollbook("check", "exporter", "vrel"))
