"""What was found of a door, one typed finding for each of the ten checks.

A finding is `fine` where the check holds, `refuses` where the door refuses the case in place of it (its trainer cannot
hold it), `lacks` where the trainer's record has no place for what is asked, and `broken` where training on the records
would be wrong.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rollbook.export.doors.door import ExporterCheck

__all__ = ["ExporterFinding", "ExporterReport", "ExporterVerdict"]


class ExporterVerdict(StrEnum):
    """What a finding means for training."""

    FINE = "fine"
    """The check holds."""
    REFUSES = "refuses"
    """The door refuses such samples, with the reason."""
    LACKS = "lacks"
    """The trainer's record cannot say it."""
    BROKEN = "broken"
    """Training on such records would be wrong."""


class ExporterFinding(msgspec.Struct, frozen=True, kw_only=True, rename={"about": "check"}):
    """One check of one door."""

    about: ExporterCheck
    verdict: ExporterVerdict
    detail: str
    """What was seen, in a sentence."""


class ExporterReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one door, in the order of `ExporterCheck`."""

    name: str
    findings: tuple[ExporterFinding, ...]

    @property
    def broken(self) -> tuple[ExporterFinding, ...]:
        """The checks that do not hold."""
        return tuple(each for each in self.findings if each.verdict is ExporterVerdict.BROKEN)

    @property
    def fit(self) -> bool:
        """True where nothing is broken."""
        return not self.broken
