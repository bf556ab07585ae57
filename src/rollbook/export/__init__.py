"""Samples in the form that a trainer reads, with an account of every sampled token."""

from rollbook.export.batch import export
from rollbook.export.forms import FORMS, BlockWriter, Form, Writer
from rollbook.export.report import ExportReport, Snapshot

__all__ = ["FORMS", "BlockWriter", "ExportReport", "Form", "Snapshot", "Writer", "export"]
