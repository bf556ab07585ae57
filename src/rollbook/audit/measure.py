"""The shape that all checks share: a probe sees the traces of a batch one at a time and then says what it measured.

Rules: a probe keeps numbers and a bounded list of findings, never a trace, so memory does not grow with the length of
the traces; it does not know its limit; what it could not measure it reports as `unjudged`, with the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rollbook.audit.report import Finding
from rollbook.render.protocol import Renderer
from rollbook.render.vocabulary import TokenText
from rollbook.trace.ending import Disposition, EndingKind
from rollbook.trace.facts import Advantage, Mismatch, Staleness
from rollbook.trace.node import TokenIds
from rollbook.trace.record import ScoringStatus
from rollbook.trace.trace import Trace

__all__ = ["Evidence", "Findings", "Measure", "Probe", "Reencoder"]


class Reencoder(Renderer, Protocol):
    """The run's renderer as the checks use it: what the template writes, and what a text round trip would have made
    of ids. Only what was made with the same tokenizer, and where the template matters the same template, is judged."""

    @property
    def control_ids(self) -> frozenset[int]:
        """Tokens that only the template and the policy write, never content."""
        ...

    @property
    def begin_id(self) -> int | None:
        """The begin-of-sequence token; None: the model names none."""
        ...

    def spelled_control(self, text: str, start: int = 0) -> tuple[int, str] | None:
        """The first control token that `text` spells at `start` or later: (position, token). None: it spells none."""
        ...

    def show(self, token_ids: TokenIds) -> TokenText:
        """Text for people, with the characters of each token."""
        ...

    def reencode(self, token_ids: TokenIds) -> TokenIds:
        """Decode and encode again as a harness does that sends text: control tokens are split out and keep their
        ids. int32, shape (tokens,); the input is not changed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the probes have beside the traces."""

    reencoder: Reencoder | None = None
    dispositions: Mapping[str, Disposition] = field(default_factory=dict[str, Disposition])
    """By rollout; a rollout that is missing has none."""
    advantages: Mapping[str, Advantage] = field(default_factory=dict[str, Advantage])
    """By rollout."""
    staleness: Mapping[str, Staleness] = field(default_factory=dict[str, Staleness])
    """By rollout; empty where none waited for a trainer."""
    mismatch: Mapping[str, Mismatch] = field(default_factory=dict[str, Mismatch])
    """By rollout; empty where no trainer compared."""

    def no_vote(self, trace: Trace) -> str | None:
        """Why the rollout may not enter any statistic of its group; None where it may."""
        disposition = self.dispositions.get(trace.id)
        if disposition is not None and not disposition.votes:
            return f"{disposition.fate} ({disposition.rule})"
        if trace.ending is None or trace.ending.kind is EndingKind.ERROR:
            return f"ended as {trace.ending}" if trace.ending else "has no ending"
        if trace.tail.scoring.status is ScoringStatus.FAILED:
            return "its scoring failed"
        return "it has no reward" if trace.reward is None else None


class Findings:
    """The first findings of a probe, and how many there were."""

    __slots__ = ("kept", "most", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[Finding] = []
        self.total = 0

    def add(self, trace: Trace, text: str, *, node: int | None = None, token: int | None = None) -> None:
        """Note one place."""
        self.add_for(trace.id, text, node=node, token=token)

    def add_for(self, rollout: str, text: str, *, node: int | None = None, token: int | None = None) -> None:
        """Note one place of a trace that is no longer at hand."""
        self.total += 1
        if len(self.kept) < self.most:
            self.kept.append(Finding(rollout=rollout, node=node, token=token, text=text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a probe measured."""

    value: float | None
    """In the unit of the check; None where it could not be measured."""
    n: int
    """Over how many things."""
    details: dict[str, float | int | str | None] = field(default_factory=dict[str, float | int | str | None])
    unjudged: str | None = None
    """Why there is no answer, and what would give one; None where there is one."""

    @classmethod
    def share(cls, hits: int, n: int, nothing: str, **details: float | int | str | None) -> Measure:
        """`hits` of `n`; not judged, for the reason `nothing`, where n is 0."""
        return cls(value=hits / n if n else None, n=n, details=details, unjudged=None if n else nothing)

    @classmethod
    def count(cls, hits: int, n: int, **details: float | int | str | None) -> Measure:
        """How many among n; where n is 0 there is nothing that could be wrong."""
        return cls(value=float(hits), n=n, details=details)

    @classmethod
    def none(cls, why: str, **details: float | int | str | None) -> Measure:
        """No answer, for the reason `why`."""
        return cls(value=None, n=0, details=details, unjudged=why)


class Probe(Protocol):
    """Measures one thing over a batch."""

    findings: Findings

    def see(self, trace: Trace) -> None:
        """Take one trace in."""
        ...

    def finish(self) -> Measure:
        """What was measured."""
        ...
