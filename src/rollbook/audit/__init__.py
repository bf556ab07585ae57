"""A gate between rollouts and trainer: rates and musts over a batch, from the record alone."""

from rollbook.audit.gate import DEFAULT_GATE, Gate
from rollbook.audit.judge import audit, audit_traces
from rollbook.audit.measure import Evidence, Reencoder
from rollbook.audit.report import Check, Finding, Report, Status, Unit
from rollbook.audit.selection import Facet, SelectionCount, SelectionLedger
from rollbook.audit.table import CHECKS

__all__ = [
    "CHECKS",
    "DEFAULT_GATE",
    "Check",
    "Evidence",
    "Facet",
    "Finding",
    "Gate",
    "Reencoder",
    "Report",
    "SelectionCount",
    "SelectionLedger",
    "Status",
    "Unit",
    "audit",
    "audit_traces",
]
