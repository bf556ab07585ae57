"""One pass over a batch: every check sees each trace once, then the gate gives its word on what they measured.

Traces are read one at a time and none is kept. A trace whose columns do not fit each other breaks the alignment check
and is not shown to the checks that read tokens. Rewards are those that were given last. Nothing is changed: what the
audit finds is in the report only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollbook.audit.gate import DEFAULT_GATE, Gate
from rollbook.audit.logprobs import misalignments
from rollbook.audit.measure import Evidence, Findings, Measure, Reencoder
from rollbook.audit.report import Check, Report, Status
from rollbook.audit.table import CHECKS, Row
from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.ending import Disposition
from rollbook.trace.facts import advantages, rewards, stalenesses
from rollbook.trace.facts import dispositions as recorded_dispositions
from rollbook.trace.protocols import TraceSource
from rollbook.trace.rescored import rescored_all
from rollbook.trace.trace import Trace

__all__ = ["audit", "audit_traces"]


def audit(
    source: TraceSource,
    *,
    renderer: Reencoder | None = None,
    gate: Gate = DEFAULT_GATE,
    dispositions: Mapping[str, Disposition] | None = None,
) -> Report:
    """Audit a batch, its annotations included.

    `renderer`: the run's own; checks that need it are not judged without it. `dispositions`: by rollout, in
    place of the recorded ones.
    """
    return audit_traces(
        source.traces(), annotations=source.annotations(), renderer=renderer, gate=gate, dispositions=dispositions
    )


def audit_traces(
    traces: Iterable[Trace],
    *,
    annotations: Iterable[Annotation] = (),
    renderer: Reencoder | None = None,
    gate: Gate = DEFAULT_GATE,
    dispositions: Mapping[str, Disposition] | None = None,
) -> Report:
    """As `audit`, over any traces."""
    facts = fold(annotations)
    evidence = Evidence(
        reencoder=renderer,
        dispositions=recorded_dispositions(facts) if dispositions is None else dispositions,
        advantages=advantages(facts),
        staleness=stalenesses(facts),
    )
    notes = [Findings(gate.findings) for _ in CHECKS]
    probes = [row.probe(findings, evidence) for row, findings in zip(CHECKS, notes, strict=True)]
    rollouts = 0
    for trace in rescored_all(traces, rewards(facts)):
        rollouts += 1
        aligned = not any(misalignments(trace))
        for row, probe in zip(CHECKS, probes, strict=True):
            if aligned or not row.reads_tokens:
                probe.see(trace)
    checks = tuple(
        _judge(row, gate.limit(row), probe.finish(), findings)
        for row, probe, findings in zip(CHECKS, probes, notes, strict=True)
    )
    return Report(rollouts=rollouts, checks=checks, must_judge=gate.must_judge)


def _judge(row: Row, limit: float | None, measure: Measure, findings: Findings) -> Check:
    status = _status(limit, measure)
    return Check(
        name=row.name,
        status=status,
        value=measure.value,
        limit=limit,
        unit=row.unit,
        n=measure.n,
        of=row.of,
        says=_sentence(row, status, measure),
        details=measure.details,
        findings=tuple(findings.kept),
        found=findings.total,
    )


def _status(limit: float | None, measure: Measure) -> Status:
    if measure.value is None:
        return Status.NOT_JUDGED
    if limit is None:
        return Status.INFO
    return Status.OK if measure.value <= limit else Status.BROKE


def _sentence(row: Row, status: Status, measure: Measure) -> str:
    if status is Status.NOT_JUDGED:
        return f"Not judged: {measure.unjudged}."
    if not measure.value:
        return f"No {row.means}."
    if status is Status.BROKE:
        return f"Too many {row.means}: {row.remedy}."
    return f"Some {row.means}; where they are too many: {row.remedy}."
