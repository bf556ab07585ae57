"""Samples in the form that a trainer reads, with an account of every sampled token; conversations to imitate; and what
others recorded."""

from rollbook.export.batch import export
from rollbook.export.conformance import ExporterFinding, ExporterReport, ExporterVerdict, check_exporter
from rollbook.export.doors import DOORS, Door, ExporterCheck, Row, open_door
from rollbook.export.forms import FORMS, BlockWriter, Form, Writer
from rollbook.export.recorded import recorded_samples
from rollbook.export.report import ExportReport, Snapshot
from rollbook.export.sft import SftReport, export_sft

__all__ = [
    "DOORS",
    "FORMS",
    "BlockWriter",
    "Door",
    "ExportReport",
    "ExporterCheck",
    "ExporterFinding",
    "ExporterReport",
    "ExporterVerdict",
    "Form",
    "Row",
    "SftReport",
    "Snapshot",
    "Writer",
    "check_exporter",
    "export",
    "export_sft",
    "open_door",
    "recorded_samples",
]
