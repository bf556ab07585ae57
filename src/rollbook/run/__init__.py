"""A run: configuration, resume, the wiring of the other rooms, and what came out."""

from rollbook.run.access import Access
from rollbook.run.config import RunConfig, differences
from rollbook.run.fitness import refuse_unfit
from rollbook.run.importing import ImportReport, import_traces
from rollbook.run.live_run import CONCURRENCY, RunOptions
from rollbook.run.open import open_run
from rollbook.run.policies import load_policy, load_renderer, policy_of
from rollbook.run.recording import Progress
from rollbook.run.report import report
from rollbook.run.report_rows import RunReport
from rollbook.run.resources import ResourceReport, read_resources, resource_report, write_resources
from rollbook.run.resume import check_folder
from rollbook.run.runner import RunOutcome, run
from rollbook.run.selection import GroupFacts, SelectionReport, selection
from rollbook.run.standing import Standing, standing
from rollbook.run.stream import ClosedGroup, RolloutStream, StreamStats, open_stream
from rollbook.run.templates import check_template

__all__ = [
    "CONCURRENCY",
    "Access",
    "ClosedGroup",
    "GroupFacts",
    "ImportReport",
    "Progress",
    "ResourceReport",
    "RolloutStream",
    "RunConfig",
    "RunOptions",
    "RunOutcome",
    "RunReport",
    "SelectionReport",
    "Standing",
    "StreamStats",
    "check_folder",
    "check_template",
    "differences",
    "import_traces",
    "load_policy",
    "load_renderer",
    "open_run",
    "open_stream",
    "policy_of",
    "read_resources",
    "refuse_unfit",
    "report",
    "resource_report",
    "run",
    "selection",
    "standing",
    "write_resources",
]
