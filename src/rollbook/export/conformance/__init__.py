"""Prove a door to a trainer: ten checks on made-up rollouts, from the records alone."""

from __future__ import annotations

from rollbook.export.conformance.judge import check_exporter
from rollbook.export.conformance.report import ExporterFinding, ExporterReport, ExporterVerdict

__all__ = ["ExporterFinding", "ExporterReport", "ExporterVerdict", "check_exporter"]
