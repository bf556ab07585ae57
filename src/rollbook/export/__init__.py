"""Samples in the form that a trainer reads, with an account of every sampled token."""

from rollbook.export.batch import export
from rollbook.export.conformance import ExporterFinding, ExporterReport, ExporterVerdict, check_exporter
from rollbook.export.doors import DOORS, Door, ExporterCheck, Row, open_door
from rollbook.export.forms import FORMS, Form, Writer
from rollbook.export.recorded import recorded_samples
from rollbook.export.report import ExportReport, Snapshot

__all__ = [
    "DOORS",
    "FORMS",
    "Door",
    "ExportReport",
    "ExporterCheck",
    "ExporterFinding",
    "ExporterReport",
    "ExporterVerdict",
    "Form",
    "Row",
    "Snapshot",
    "Writer",
    "check_exporter",
    "export",
    "open_door",
    "recorded_samples",
]
