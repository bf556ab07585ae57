"""Traces on disk: segments, the journal of running rollouts, annotations. `docs/trace-format.md` is the format."""

from rollbook.store.append import StoreOptions, Sync
from rollbook.store.folder import Manifest, create_spool, read_manifest, write_manifest
from rollbook.store.frame import DamagedFrame
from rollbook.store.notes import AnnotationWriter
from rollbook.store.reader import RunReader
from rollbook.store.redact import redact_trace
from rollbook.store.report import Damage, DamageReason, RecoveryReport
from rollbook.store.segment import SegmentReader
from rollbook.store.writer import RunWriter

__all__ = [
    "AnnotationWriter",
    "Damage",
    "DamageReason",
    "DamagedFrame",
    "Manifest",
    "RecoveryReport",
    "RunReader",
    "RunWriter",
    "SegmentReader",
    "StoreOptions",
    "Sync",
    "create_spool",
    "read_manifest",
    "redact_trace",
    "write_manifest",
]
