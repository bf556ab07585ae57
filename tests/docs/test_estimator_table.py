"""The table of estimators names what there is."""

from __future__ import annotations

from rollbook.rewards import ESTIMATORS
from tests.docs.test_tables import DOCS, rows


def test_every_estimator_has_its_row() -> None:
    found = rows(DOCS / "rooms" / "rewards.md", "| name | advantage | source |")
    assert sorted(row[0] for row in found) == sorted(ESTIMATORS)
    for name, _, source in found:
        number = ESTIMATORS[name].source.removeprefix("arXiv ")
        assert number in source or source == "below"
