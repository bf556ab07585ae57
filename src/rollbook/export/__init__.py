"""Samples in the form that a trainer reads, with an account of every sampled token."""

from rollbook.export.batch import export
from rollbook.export.forms import FORMS, Form, Writer
from rollbook.export.report import ExportReport, Snapshot

__all__ = ["FORMS", "ExportReport", "Form", "Snapshot", "Writer", "export"]
