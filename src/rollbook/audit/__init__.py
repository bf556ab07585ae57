"""A gate between rollouts and trainer: rates and musts over a batch, from the record alone."""

from rollbook.audit.gate import DEFAULT_GATE, Gate
from rollbook.audit.judge import audit, audit_traces
from rollbook.audit.measure import Reencoder
from rollbook.audit.report import Check, Finding, Report, Status, Unit
from rollbook.audit.table import CHECKS

__all__ = [
    "CHECKS",
    "DEFAULT_GATE",
    "Check",
    "Finding",
    "Gate",
    "Reencoder",
    "Report",
    "Status",
    "Unit",
    "audit",
    "audit_traces",
]
