"""A run: configuration, resume, the wiring of the other rooms, and what came out."""

from rollbook.run.access import Access
from rollbook.run.config import RunConfig, differences
from rollbook.run.effect import Change, Effect
from rollbook.run.fitness import refuse_unfit
from rollbook.run.live_run import CONCURRENCY, RunOptions
from rollbook.run.open import open_run
from rollbook.run.policies import load_policy, load_renderer, policy_of
from rollbook.run.recording import Progress
from rollbook.run.report import report
from rollbook.run.report_rows import RunReport
from rollbook.run.rescore import Rescored, rescore, scored_by
from rollbook.run.resources import ResourceReport, read_resources, resource_report, write_resources
from rollbook.run.resume import check_folder
from rollbook.run.runner import RunOutcome, run
from rollbook.run.selection import GroupFacts, SelectionReport, selection
from rollbook.run.standing import Standing, standing
from rollbook.run.stream import ClosedGroup, RolloutStream, StreamStats, open_stream
from rollbook.run.templates import check_template
from rollbook.run.what_if import WhatIf, judging_of, keep, read_rules, what_if

__all__ = [
    "CONCURRENCY",
    "Access",
    "Change",
    "ClosedGroup",
    "Effect",
    "GroupFacts",
    "Progress",
    "Rescored",
    "ResourceReport",
    "RolloutStream",
    "RunConfig",
    "RunOptions",
    "RunOutcome",
    "RunReport",
    "SelectionReport",
    "Standing",
    "StreamStats",
    "WhatIf",
    "check_folder",
    "check_template",
    "differences",
    "judging_of",
    "keep",
    "load_policy",
    "load_renderer",
    "open_run",
    "open_stream",
    "policy_of",
    "read_resources",
    "read_rules",
    "refuse_unfit",
    "report",
    "rescore",
    "resource_report",
    "run",
    "scored_by",
    "selection",
    "standing",
    "what_if",
    "write_resources",
]
