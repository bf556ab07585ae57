"""Samples in the form that a trainer reads, with an account of every sampled token; conversations to imitate; and what
others recorded."""

from rollbook.export.batch import export
from rollbook.export.forms import FORMS, Form, Writer
from rollbook.export.report import ExportReport, Snapshot
from rollbook.export.sft import SftReport, export_sft

__all__ = ["FORMS", "ExportReport", "Form", "SftReport", "Snapshot", "Writer", "export", "export_sft"]
