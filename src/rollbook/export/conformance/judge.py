"""The judge of a door: runs each check on made-up rollouts and says what it found.

Rules: a check sees records through the door's `rows` only, as its trainer would; what the door says that its trainer
lacks is not checked, and said; where the door refuses a case in place of a check, that it refuses is checked. A door
that falls over (any error of ours but a refusal that was announced) is broken, with the error's text.
"""

from __future__ import annotations

from rollbook.errors import RollbookError
from rollbook.export.conformance.checks import CHECKS, Broken, Tried
from rollbook.export.conformance.report import ExporterFinding, ExporterReport, ExporterVerdict
from rollbook.export.doors import Door, DoorModule, ExporterCheck, find_door, open_door

__all__ = ["check_door", "check_exporter"]


def check_exporter(name: str) -> ExporterReport:
    """The ten checks of the door `name` (one of `DOORS`); raises `UsageError` where there is no such door."""
    return check_door(find_door(name), open_door(name))


def check_door(door: Door, module: DoorModule) -> ExporterReport:
    """The ten checks of a door of one's own."""
    tried = Tried(module)
    return ExporterReport(name=door.name, findings=tuple(_finding(door, tried, each) for each in ExporterCheck))


def _finding(door: Door, tried: Tried, about: ExporterCheck) -> ExporterFinding:
    verdict, detail = _judged(door, tried, about)
    return ExporterFinding(about=about, verdict=verdict, detail=detail)


def _judged(door: Door, tried: Tried, about: ExporterCheck) -> tuple[ExporterVerdict, str]:
    if about in door.lacks:
        return ExporterVerdict.LACKS, door.lacks[about]
    check = CHECKS[about]
    try:
        if about in door.refuses:
            tried.refused(check.cases, experts=check.experts)
            return ExporterVerdict.REFUSES, door.refuses[about]
        return ExporterVerdict.FINE, check.run(tried)
    except Broken as found:
        return ExporterVerdict.BROKEN, str(found)
    except RollbookError as error:
        return ExporterVerdict.BROKEN, f"the door refuses sound samples: {error}"
