"""An export: the samples of a batch, one trace at a time, into one file, and an account of every sampled token.

Rules: who votes, with which reward and advantage, is what the record says (`rollbook.export.recorded`). Logprobs that
are not of the distribution that was sampled stop the export, for leaving rows out by how they were sampled would
select. Nothing is padded: a rollout without a trained token gives no row, and an export without rows writes no file.
The report is written beside the file, as ``OUT.report.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from rollbook.errors import UsageError
from rollbook.export.fields import check_numbers, check_sample
from rollbook.export.files import refuse_taken, replacing
from rollbook.export.fitness import unfit
from rollbook.export.forms import BlockWriter, Form, Writer, find_form, open_writer
from rollbook.export.memory import keep_freed
from rollbook.export.recorded import Recorded
from rollbook.export.report import ExportReport, snapshot
from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.disposition import DEFAULT_RULES
from rollbook.trace.ending import Disposition, EndingRules
from rollbook.trace.protocols import StoredSource, TraceSource
from rollbook.trace.rescored import rescored
from rollbook.trace.sample import LossReason, Sample, SampleSet, TokenLedger
from rollbook.trace.sample_block import SampleBlock, stored_samples
from rollbook.trace.stored import OpenedTrace, StoredTrace, open_stored
from rollbook.trace.trace import Trace

__all__ = ["account_beside", "export"]


def export(  # noqa: PLR0913 - one keyword for each thing that the report tells
    source: TraceSource,
    form: str,
    out: str | Path,
    *,
    rules: EndingRules = DEFAULT_RULES,
    dispositions: Mapping[str, Disposition] | None = None,
    advantages: Mapping[str, float | None] | None = None,
    turn_advantages: Mapping[str, Mapping[int, float]] | None = None,
    annotations: Sequence[Annotation] | None = None,
    max_tokens: int | None = None,
    allow_unfit_logprobs: bool = False,
    overwrite: bool = False,
) -> ExportReport:
    """Write the samples of a batch to `out` in one of `FORMS`.

    `dispositions` and `advantages`: by rollout, before what the annotations say. `turn_advantages`: by rollout and
    number of the turn; turns that are not named have the rollout's. `rules`: for rollouts on which nobody decided.
    `annotations`: the snapshot to use (None: the source's, as they are now).
    `max_tokens`: longer branches do not train. `allow_unfit_logprobs`: for trainers that can correct them; said in
    the report.

    Raises `UsageError` where there is nothing to write or a form, name or value is unusable, `StoreError` where the
    file cannot be written; nothing is left behind then.
    """
    chosen, path = find_form(form), Path(out)
    facts = fold(source.annotations() if annotations is None else annotations)
    recorded = Recorded.of(
        facts,
        rules=rules,
        dispositions=dispositions,
        advantages=advantages,
        turn_advantages=turn_advantages,
        max_tokens=max_tokens,
    )
    job = _Job(recorded=recorded, allow_unfit=allow_unfit_logprobs)
    account_path = account_beside(path)
    refuse_taken(path, overwrite=overwrite)  # the file that was named is told of before the one beside it
    with replacing(account_path, overwrite=overwrite) as account, replacing(path, overwrite=overwrite) as file:
        writer = open_writer(chosen, file)
        try:
            job.run(source, writer)
        finally:
            writer.release()
        report = job.report(chosen, path, facts)
        account.write(f"{json.dumps(report.to_dict(), indent=1)}\n".encode("ascii"))
    return report


def account_beside(path: Path) -> Path:
    if not path.name:
        raise UsageError(f"'{path}' names no file")
    return path.with_name(f"{path.name}.report.json")


@dataclass(slots=True, kw_only=True)
class _Job:
    """What an export keeps while it runs: counts, never a trace."""

    recorded: Recorded
    allow_unfit: bool
    rollouts: int = 0
    written: int = 0
    without_advantage: int = 0
    unfit: int = 0
    unbound: int = 0
    ledger: TokenLedger = field(default_factory=TokenLedger)
    without: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    decided: Counter[str] = field(default_factory=Counter[str])

    def run(self, source: TraceSource, writer: Writer) -> None:
        """Write the samples of all traces."""
        keep_freed()
        if isinstance(source, StoredSource):
            self.take_stored(source.stored(), writer)
        else:
            for trace in source.traces():
                self.take(trace, writer)
        if not self.written:
            raise UsageError(f"no rollout of this batch gives a sample: {self.why_empty()}")
        writer.finish()

    def take_stored(self, source: Iterable[StoredTrace], writer: Writer) -> None:
        """Write the samples of all traces; what is of the common case is made several traces at a time."""
        held: list[tuple[StoredTrace, OpenedTrace]] = []
        tokens = 0
        for stored in source:
            opened = open_stored(stored)
            common = opened is not None and self.recorded.goes_whole(opened)
            if opened is not None and common:
                held.append((stored, opened))
                tokens += opened.tokens
            # blocks end where batches of columns do
            full = len(held) == _TOGETHER - self.written % _TOGETHER or tokens > _MOST_TOKENS
            if not common or full:
                self._take_held(held, writer)
                held.clear()
                tokens = 0
            if not common:
                self._take_alone(stored, writer)
        self._take_held(held, writer)

    def _take_alone(self, stored: StoredTrace, writer: Writer) -> None:
        if (trace := stored.trace()) is not None:
            self.take(trace, writer)

    def _take_held(self, held: Sequence[tuple[StoredTrace, OpenedTrace]], writer: Writer) -> None:
        if not held:
            return
        block = stored_samples(
            [opened for _, opened in held], [self.recorded.advantages.get(each.id) for _, each in held]
        )
        if block is None:
            for stored, _ in held:
                self._take_alone(stored, writer)
            return
        self._account(block)
        if isinstance(writer, BlockWriter):
            writer.write_block(block)
        else:
            for sample in block.samples():
                writer.write(sample)

    def _account(self, block: SampleBlock) -> None:
        """Enter a block into the account; refuse what may not be exported."""
        count, tokens = len(block), int(block.trained.sum())
        self.rollouts += count
        recorded = sum(trace.id in self.recorded.dispositions for trace in block.traces)
        self.decided += Counter(recorded=recorded, rules=count - recorded)
        self.ledger += TokenLedger(tokens, tokens)
        if all(by.logprobs_fit and not by.truncates for by in block.sampled_by) and all(
            advantage is None or isfinite(advantage) for advantage in block.advantages
        ):
            self.written += count
            self.without_advantage += block.advantages.count(None)
        else:
            for sample in block.samples():
                check_numbers(sample)
                self._count(sample)

    def take(self, trace: Trace, writer: Writer) -> None:
        """Write the samples of one trace."""
        trace = rescored(trace, self.recorded.rewards.get(trace.id))
        self.rollouts += 1
        if not trace.head.tokens:
            self.refused["no_token_ids"] += 1
            return
        self.decided["recorded" if trace.id in self.recorded.dispositions else "rules"] += 1
        built = self.recorded.samples(trace)
        self.ledger += built.ledger
        self.unbound += len(built.unbound_turn_rewards)
        if not len(built):
            self.without[_why_none(built)] += 1
        for sample in built:
            self._write(sample, writer)

    def _write(self, sample: Sample, writer: Writer) -> None:
        check_sample(sample)
        self._count(sample)
        writer.write(sample)

    def _count(self, sample: Sample) -> None:
        """Enter one sample into the account; refuse what may not be exported."""
        if (problem := unfit(sample)) is not None:
            if not self.allow_unfit:
                raise UsageError(problem)
            self.unfit += 1
        self.written += 1
        self.without_advantage += sample.advantage is None

    def why_empty(self) -> str:
        """Why nothing was written."""
        reasons = [f"{count} {reason}" for reason, count in (self.without + self.refused).items()]
        why = ", ".join(reasons) or "there are no traces"
        return why + "".join(f". {remedy}" for reason, remedy in _REMEDIES.items() if reason in why)

    def report(self, form: Form, path: Path, facts: Sequence[Annotation]) -> ExportReport:
        """The account."""
        return ExportReport(
            form=form.name,
            out=str(path),
            rollouts=self.rollouts,
            samples=self.written,
            without_advantage=self.without_advantage,
            captured=self.ledger.captured,
            trained=self.ledger.trained,
            lost={str(reason): count for reason, count in sorted(self.ledger.lost.items())},
            without_samples=dict(sorted(self.without.items())),
            refused=dict(sorted(self.refused.items())),
            unbound_turn_rewards=self.unbound,
            dispositions=dict(sorted(self.decided.items())),
            unfit_logprobs_allowed=self.allow_unfit,
            unfit_samples=self.unfit,
            max_tokens=self.recorded.max_tokens,
            snapshot=snapshot(facts),
        )


_TOGETHER = 64
"""Stored traces whose samples are made at once: enough to spread the cost of a call, and few enough for the caches."""
_MOST_TOKENS = 1_000_000
"""Of such traces, so that memory stays bounded."""

_REMEDIES = {
    LossReason.NO_VOTE: "Only rollouts that vote are trained: those that have a reward and were not dropped. `rollbook "
    "show RUN` lists how each ended, and `rollbook show RUN ID` tells why one has no reward",
    LossReason.OVER_LENGTH: "Raise the limit of tokens (--max-tokens), or leave it out",
}


def _why_none(built: SampleSet) -> str:
    return "+".join(sorted(built.ledger.lost)) if built.ledger.captured else "no_sampled_tokens"
