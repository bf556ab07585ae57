"""Conversations for supervised fine-tuning: the best rollouts of a run, as JSON Lines that `datasets` and TRL read.

A line is ``{"messages": [...], "tools": "..."}``, or with `split` ``{"prompt": [...], "completion": [...], "tools":
"..."}``, cut before the policy's first turn; `tools` is a JSON text, for the schemas of different tools are no table,
and absent where none were offered. Each line also names `rollout`, `task` and `reward`.

Rules, in order; the first that leaves a rollout out is counted: it must vote (its disposition: the recorded one, else
by the ending rules); its seat must be trainable; it must have a conversation (`rollbook.export.conversations`); its
reward must reach the threshold; with ``best`` it must be the best of its group and seat, the earliest member among
equals; with ``task`` it must be the best of its task, likewise; it must not say what a better one, or an equal earlier
one, says already. What is left is written in the order of the run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import UsageError
from rollbook.export.batch import account_beside
from rollbook.export.conversations import Conversation, NoConversation, conversation
from rollbook.export.files import refuse_taken, replacing
from rollbook.export.report import Snapshot, snapshot
from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.disposition import DEFAULT_RULES, decide
from rollbook.trace.ending import Disposition, EndingRules
from rollbook.trace.facts import dispositions as recorded_dispositions
from rollbook.trace.facts import rewards as recorded_rewards
from rollbook.trace.message import canonical_bytes
from rollbook.trace.protocols import TraceSource
from rollbook.trace.rescored import rescored_all
from rollbook.trace.trace import Trace

__all__ = ["Dedupe", "Select", "SftReport", "export_sft"]


class Select(StrEnum):
    """Which rollouts are imitated."""

    REJECTION = "rejection"
    """All that reach the threshold."""
    BEST = "best"
    """The best of each group, where it reaches the threshold."""


class Dedupe(StrEnum):
    """What counts as said already."""

    NONE = "none"
    """Nothing."""
    CONTENT = "content"
    """The same messages and tools."""
    TASK = "task"
    """Another rollout of the same task, and the same messages and tools."""


class SftReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one export did."""

    form: str = "sft"
    out: str
    """The file that was written."""
    select: Select
    threshold: float | None
    """The lowest reward that was taken; None: any."""
    dedupe: Dedupe
    split: bool
    """True for prompt and completion, False for messages."""
    rollouts: int
    """Traces read."""
    conversations: int
    """Lines written."""
    tasks: int
    """Different tasks among them."""
    turns: int
    """The policy's turns in them."""
    foreign: int
    """Replies in them that the policy did not make (examples, a harness's words); a trainer cannot tell them apart."""
    left_out: dict[str, int]
    """The other rollouts, by the rule that left them out."""
    snapshot: Snapshot
    """The annotations that were used."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return msgspec.to_builtins(self)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What is kept of a rollout between reading and writing."""

    place: int
    """In the order of the run."""
    member: tuple[int, int]
    group: tuple[str, str]
    task: tuple[str, str]
    content: bytes
    reward: float

    @property
    def rank(self) -> tuple[float, tuple[int, int], int]:
        """The lowest is the best."""
        return -self.reward, self.member, self.place


def export_sft(
    source: TraceSource,
    out: str | Path,
    *,
    select: str = Select.REJECTION,
    threshold: float | None = None,
    dedupe: str = Dedupe.CONTENT,
    split: bool = False,
    rules: EndingRules = DEFAULT_RULES,
    dispositions: Mapping[str, Disposition] | None = None,
    annotations: Sequence[Annotation] | None = None,
    overwrite: bool = False,
) -> SftReport:
    """Write the conversations of a run's best rollouts to `out`, and a report beside it (``OUT.report.json``).

    `threshold`: the lowest reward that is taken; needed for ``rejection``. `split`: prompt and completion apart.
    `rules`, `dispositions` and `annotations` as in `export`. The source is read twice. Raises `UsageError` where a
    value is unusable or nothing is left, `StoreError` where the file cannot be written; nothing is left behind then.
    """
    choice, kept = _named(Select, select), _named(Dedupe, dedupe)
    if threshold is None and choice is Select.REJECTION:
        raise UsageError("rejection sampling needs the lowest reward that is taken (threshold)")
    if threshold is not None and not math.isfinite(threshold):
        raise UsageError(f"the threshold must be a finite number, not {threshold}")
    path, facts = Path(out), fold(source.annotations() if annotations is None else annotations)
    refuse_taken(path, overwrite=overwrite)
    decided = {**recorded_dispositions(facts), **(dispositions or {})}
    rewards, left_out = recorded_rewards(facts), Counter[str]()
    candidates = list(_candidates(rescored_all(source.traces(), rewards), rules, decided, threshold, left_out))
    chosen = _choose(candidates, choice, kept, left_out)
    if not chosen:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "there are no traces"
        raise UsageError(f"no rollout of this run is left to imitate: {why}")
    with replacing(account_beside(path), overwrite=overwrite) as account, replacing(path, overwrite=overwrite) as file:
        turns = foreign = 0
        for place, trace in enumerate(rescored_all(source.traces(), rewards)):
            if place in chosen:
                said = conversation(trace)
                file.write(_line(trace, said, split))
                turns, foreign = turns + said.turns, foreign + said.foreign
        report = SftReport(
            out=str(path),
            select=choice,
            threshold=threshold,
            dedupe=kept,
            split=split,
            rollouts=len(chosen) + left_out.total(),
            conversations=len(chosen),
            tasks=len({each.task for each in chosen.values()}),
            turns=turns,
            foreign=foreign,
            left_out=dict(sorted(left_out.items())),
            snapshot=snapshot(facts),
        )
        account.write(f"{json.dumps(report.to_dict(), indent=1)}\n".encode("ascii"))
    return report


def _named(kind: type[Select] | type[Dedupe], value: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise UsageError(f"{kind.__name__.lower()}: no {value!a}; there is {', '.join(kind)}") from error


def _candidates(
    traces: Iterable[Trace],
    rules: EndingRules,
    decided: Mapping[str, Disposition],
    threshold: float | None,
    left_out: Counter[str],
) -> Iterator[_Candidate]:
    """The rollouts that may be imitated; the others are counted."""
    for place, trace in enumerate(traces):
        disposition = decided.get(trace.id)
        found = _candidate(trace, place, decide(trace, rules) if disposition is None else disposition, threshold)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            yield found


def _candidate(trace: Trace, place: int, disposition: Disposition, threshold: float | None) -> _Candidate | str:
    """The rollout as one that may be imitated, or the rule that leaves it out."""
    head, reward = trace.head, trace.reward
    if not disposition.votes:
        return str(disposition.fate)
    if reward is None:
        return "no_reward"
    if not head.agent.trainable:
        return "untrainable_seat"
    try:
        messages = conversation(trace).messages
    except NoConversation as why:
        return str(why)
    if threshold is not None and reward < threshold:
        return "below_threshold"
    said = canonical_bytes([messages, [tool.openai() for tool in head.tools]])
    return _Candidate(
        place=place,
        member=(head.member, head.attempt),
        group=(head.group, head.agent.seat),
        task=(head.environment, head.task.id),
        content=hashlib.blake2b(said, digest_size=16).digest(),
        reward=reward,
    )


def _choose(
    candidates: Sequence[_Candidate], select: Select, dedupe: Dedupe, left_out: Counter[str]
) -> dict[int, _Candidate]:
    """The candidates that are written, by their place; the others are counted."""
    ranked = sorted(candidates, key=lambda each: each.rank)
    if select is Select.BEST:
        ranked = _first(ranked, lambda each: each.group, "not_best", left_out)
    if dedupe is Dedupe.TASK:
        ranked = _first(ranked, lambda each: each.task, "same_task", left_out)
    if dedupe is not Dedupe.NONE:
        ranked = _first(ranked, lambda each: each.content, "same_content", left_out)
    return {each.place: each for each in ranked}


def _first(
    ranked: Sequence[_Candidate], key: Callable[[_Candidate], Hashable], reason: str, left_out: Counter[str]
) -> list[_Candidate]:
    first: dict[Hashable, _Candidate] = {}
    for each in ranked:
        first.setdefault(key(each), each)
    if len(first) < len(ranked):
        left_out[reason] += len(ranked) - len(first)
    return list(first.values())


def _line(trace: Trace, said: Conversation, split: bool) -> bytes:
    row: dict[str, Any] = {"messages": said.messages}
    if split:
        row = {"prompt": said.messages[: said.first], "completion": said.messages[said.first :]}
    if trace.head.tools:
        row["tools"] = json.dumps([tool.openai() for tool in trace.head.tools])
    row |= {"rollout": trace.id, "task": trace.task.id, "reward": trace.reward}
    return f"{json.dumps(row)}\n".encode("ascii")
