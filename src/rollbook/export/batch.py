"""An export: the samples of a batch, one trace at a time, into one file, and an account of every sampled token.

Rules: a rollout's disposition is the recorded one, else the one that the ending rules give; an advantage is the given
one, else the recorded one. Logprobs that are not of the distribution that was sampled stop the export, for leaving
rows out by how they were sampled would select. Nothing is padded: a rollout without a trained token gives no row, and
an export without rows writes no file. The report is written beside the file, as ``OUT.report.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollbook.errors import UsageError
from rollbook.export.fields import check_numbers, check_sample
from rollbook.export.files import refuse_taken, replacing
from rollbook.export.forms import BlockWriter, Form, Writer, find_form, open_writer
from rollbook.export.report import ExportReport, snapshot
from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.disposition import DEFAULT_RULES, decide, decide_tail
from rollbook.trace.ending import Disposition, EndingRules
from rollbook.trace.facts import advantages as recorded_advantages
from rollbook.trace.facts import dispositions as recorded_dispositions
from rollbook.trace.protocols import StoredSource, TraceSource
from rollbook.trace.sample import LossReason, Sample, SampleSet, TokenLedger, samples
from rollbook.trace.stored import OpenedTrace, StoredTrace, open_stored, stored_samples
from rollbook.trace.trace import Trace

__all__ = ["export"]


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
    number of the turn; turns that are not named have the rollout's. `rules`: for rollouts on which nobody
    decided. `annotations`: the snapshot to use (None: the source's, as they are now).
    `max_tokens`: longer branches do not train. `allow_unfit_logprobs`: for trainers that can correct them; said in
    the report.

    Raises `UsageError` where there is nothing to write or a form, name or value is unusable, `StoreError` where the
    file cannot be written; nothing is left behind then.
    """
    chosen, path = find_form(form), Path(out)
    facts = fold(source.annotations() if annotations is None else annotations)
    job = _Job(
        rules=rules,
        dispositions={**recorded_dispositions(facts), **(dispositions or {})},
        advantages={
            **{rollout: fact.advantage for rollout, fact in recorded_advantages(facts).items()},
            **(advantages or {}),
        },
        turn_advantages=turn_advantages or {},
        max_tokens=max_tokens,
        allow_unfit=allow_unfit_logprobs,
    )
    account_path = _beside(path)
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


def _beside(path: Path) -> Path:
    if not path.name:
        raise UsageError(f"'{path}' names no file")
    return path.with_name(f"{path.name}.report.json")


@dataclass(slots=True, kw_only=True)
class _Job:
    """What an export keeps while it runs: counts, never a trace."""

    rules: EndingRules
    dispositions: Mapping[str, Disposition]
    advantages: Mapping[str, float | None]
    turn_advantages: Mapping[str, Mapping[int, float]]
    max_tokens: int | None
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
        for stored in source:
            opened = open_stored(stored)
            common = opened is not None and self._goes_whole(opened)
            if opened is not None and common:
                held.append((stored, opened))
            if not common or len(held) == _TOGETHER:
                self._take_held(held, writer)
                held.clear()
            if not common:
                self._take_alone(stored, writer)
        self._take_held(held, writer)

    def _take_alone(self, stored: StoredTrace, writer: Writer) -> None:
        if (trace := stored.trace()) is not None:
            self.take(trace, writer)

    def _goes_whole(self, opened: OpenedTrace) -> bool:
        """True where the rollout votes and is not too long, so that all of it trains, each turn with the same
        advantage."""
        if self.max_tokens is not None and opened.tokens > self.max_tokens:
            return False
        if opened.id in self.turn_advantages:
            return False
        disposition = self.dispositions.get(opened.id)
        return (
            decide_tail(opened.ending, opened.tail, self.rules, trains=True) if disposition is None else disposition
        ).votes

    def _take_held(self, held: Sequence[tuple[StoredTrace, OpenedTrace]], writer: Writer) -> None:
        if not held:
            return
        block = stored_samples([opened for _, opened in held], [self.advantages.get(each.id) for _, each in held])
        if block is None:
            for stored, _ in held:
                self._take_alone(stored, writer)
            return
        self.rollouts += len(block.samples)
        recorded = sum(sample.rollout in self.dispositions for sample in block.samples)
        self.decided += Counter(recorded=recorded, rules=len(block.samples) - recorded)
        tokens = sum(opened.sampled for _, opened in held)
        self.ledger += TokenLedger(tokens, tokens)
        for sample in block.samples:
            check_numbers(sample)  # the arrays of a block fit each other, and all of what was sampled trains
            self._count(sample)
        if isinstance(writer, BlockWriter):
            writer.write_block(block)
        else:
            for sample in block.samples:
                writer.write(sample)

    def take(self, trace: Trace, writer: Writer) -> None:
        """Write the samples of one trace."""
        self.rollouts += 1
        if not trace.head.tokens:
            self.refused["no_token_ids"] += 1
            return
        disposition = self.dispositions.get(trace.id)
        self.decided["rules" if disposition is None else "recorded"] += 1
        built = samples(
            trace,
            disposition=decide(trace, self.rules) if disposition is None else disposition,
            advantage=self.advantages.get(trace.id),
            turn_advantages=self.turn_advantages.get(trace.id),
            max_tokens=self.max_tokens,
        )
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
        if (problem := _unfit(sample)) is not None:
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
            max_tokens=self.max_tokens,
            snapshot=snapshot(facts),
        )


_TOGETHER = 16
"""Stored traces whose samples are made at once: enough to spread numpy's cost a call, and little memory."""

_REMEDIES = {
    LossReason.NO_VOTE: "Only rollouts that vote are trained: those that have a reward and were not dropped. `rollbook "
    "show RUN` lists how each ended, and `rollbook show RUN ID` tells why one has no reward",
    LossReason.OVER_LENGTH: "Raise the limit of tokens (--max-tokens), or leave it out",
}


def _why_none(built: SampleSet) -> str:
    return "+".join(sorted(built.ledger.lost)) if built.ledger.captured else "no_sampled_tokens"


def _unfit(sample: Sample) -> str | None:
    """Why a trainer's own logprobs would not be of the same distribution; None where they would."""
    if not sample.logprobs_fit:
        kinds = ", ".join(sorted(sample.logprob_kinds)) or "absent"
        problem = f"its logprobs ({kinds}) are not of the distribution that was sampled"
    elif any(sampling.truncates for sampling in sample.samplings):
        problem = "its tokens were drawn from a part of the vocabulary, and a trainer's logprobs are over all of it"
    else:
        return None
    return (
        f"rollout {sample.rollout!a}, branch {sample.branch}: {problem}; sample at temperature 1 without top-k, top-p "
        "or min-p, or allow unfit logprobs if your trainer corrects them"
    )
