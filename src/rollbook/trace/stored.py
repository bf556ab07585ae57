"""Samples of many stored traces at once, for the common case: one branch, nothing marked, everything trainable.

Rules: what comes out is what `samples` gives for the decoded trace, and every invariant of the arrays is checked as
when a trace is read; text is not looked at. Whatever is not of the common case, or breaks a rule, is not taken
(`open_stored` and `stored_samples` give None), and goes the general way, which decides or complains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import ConfigError, StoreError
from rollbook.trace.branch_arrays import spread, spread_versions
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.checks import columns_fit
from rollbook.trace.ending import Ending, is_reward
from rollbook.trace.node import (
    COLUMN_KINDS,
    LOGPROBS,
    ORIGIN,
    PARENT,
    POLICY,
    ROOT,
    RUNS,
    SAMPLED,
    SEGMENTS,
    TABLE_WIDTH,
    TOKENS,
)
from rollbook.trace.record import Agent, ScoringStatus, TraceTail
from rollbook.trace.runs import RunKind
from rollbook.trace.sample import Sample, kind_fits
from rollbook.trace.trace import Trace
from rollbook.trace.wire import TokenPart, as_column, decode_tokens

__all__ = ["OpenedTrace", "SampleBlock", "StoredTrace", "open_stored", "stored_samples"]


class StoredTrace(Protocol):
    """One sealed trace as it is stored, not decoded yet."""

    @property
    def rollout(self) -> str:
        """The rollout's id."""
        ...

    @property
    def marks(self) -> int | None:
        """How many of its nodes are marked; None: not known."""
        ...

    def section(self, name: str) -> bytes:
        """One section of the wire form (`rollbook.trace.wire`); raises `StoreError` where it is damaged."""
        ...

    def trace(self) -> Trace | None:
        """The trace, decoded and checked; None where it is damaged, which its source has told then."""
        ...


class _PolicyPart(msgspec.Struct, frozen=True):
    trainable: bool = True


class _HeadPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a sample needs of the head."""

    rollout: str
    group: str
    agent: Agent = Agent()
    policies: tuple[_PolicyPart, ...]
    run: str = ""
    episode: str = ""
    tokens: bool = True


class _CallPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a sample needs of a call."""

    node: int | None = None
    after: int = -1
    policy: int = 0
    sampling: msgspec.Raw
    logprob_kind: LogprobKind | None = None


class _Calls(msgspec.Struct, frozen=True, kw_only=True):
    first_call: int
    first_edge: int
    calls: list[_CallPart]
    edges: list[msgspec.Raw]


_decode_head = msgspec.msgpack.Decoder(_HeadPart).decode
_decode_tail = msgspec.msgpack.Decoder(TraceTail).decode
_decode_calls = msgspec.msgpack.Decoder(_Calls).decode


@dataclass(frozen=True, slots=True)
class OpenedTrace:
    """A stored trace of the common case, its arrays not looked at yet."""

    head: _HeadPart
    tail: TraceTail
    calls: list[_CallPart]
    columns: TokenPart
    ending: Ending

    @property
    def id(self) -> str:
        """The rollout's id."""
        return self.head.rollout

    @property
    def tokens(self) -> int:
        """How many token ids it has."""
        return len(self.columns.tokens) // _BYTES

    @property
    def sampled(self) -> int:
        """How many of them an engine returned."""
        return len(self.columns.logprobs) // _BYTES


def open_stored(stored: StoredTrace) -> OpenedTrace | None:
    """A stored trace of the common case; None for any other."""
    if stored.marks != 0:
        return None
    try:
        head = _decode_head(stored.section("head"))
        calls = _decode_calls(stored.section("calls"))
        tail = _decode_tail(stored.section("tail"))
        columns = decode_tokens(stored.section("tokens"))
    except (msgspec.MsgspecError, ValueError, ConfigError, StoreError):
        return None  # what is wrong with it, if anything, is told on the general way
    ending, nodes = tail.ending, len(columns.counts) // (_BYTES * TABLE_WIDTH)
    if ending is None:
        return None
    common = (
        head.tokens
        and head.rollout == stored.rollout
        and head.agent.trainable
        and all(policy.trainable for policy in head.policies)
        and not (calls.edges or calls.first_call or calls.first_edge or tail.turn_rewards)
        and _rewards_fit(tail)
        and len(columns.logprobs)
        and all(_call_fits(call, len(head.policies), nodes) for call in calls.calls)
    )
    return OpenedTrace(head, tail, calls.calls, columns, ending) if common else None


def _rewards_fit(tail: TraceTail) -> bool:
    values = (*tail.reward_parts.values(), *(() if tail.reward is None else (tail.reward,)))
    return all(map(is_reward, values)) and not (values and tail.scoring.status is ScoringStatus.FAILED)


def _call_fits(call: _CallPart, policies: int, nodes: int) -> bool:
    names_one = call.node is None or call.after < call.node < nodes
    return names_one and 0 <= call.policy < policies and ROOT <= call.after < nodes


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Samples whose arrays lie one behind the other."""

    samples: tuple[Sample, ...]
    offsets: npt.NDArray[np.int64]
    """int64, shape (samples + 1,): where the tokens of each sample begin."""
    arrays: Mapping[str, npt.NDArray[Any]]
    """By field of `Sample`, each of shape (all tokens,); the samples' own arrays are views of these."""


def stored_samples(traces: Sequence[OpenedTrace], advantages: Sequence[float | None]) -> SampleBlock | None:
    """The one sample of each trace, with its advantage. None where a trace breaks a rule or is of another kind."""
    block = _Block(traces)
    return block.samples(advantages) if block.sound() else None


class _Block:
    """The arrays of several traces, one behind the other, as if they were those of one."""

    def __init__(self, traces: Sequence[OpenedTrace]) -> None:
        self.traces = traces
        raw = [msgspec.structs.asdict(trace.columns) for trace in traces]
        self.counts = np.frombuffer(b"".join([each["counts"] for each in raw]), "<i4").reshape(-1, TABLE_WIDTH)
        self.columns = {name: as_column(name, b"".join([each[name] for each in raw])) for name in COLUMN_KINDS}
        self.nodes = np.array([len(each["counts"]) for each in raw]) // (_BYTES * TABLE_WIDTH)
        self.node_ends = self.nodes.cumsum()
        self.lengths = {
            name: np.array([len(each[name]) for each in raw]) // (_BYTES * (self.columns[name].ndim))
            for name in COLUMN_KINDS
        }

    def sound(self) -> bool:
        """True where every rule holds, and each trace is one path whose turns all have logprobs and calls."""
        counts = self.counts
        if not self.nodes.all() or counts[:, TOKENS:].min(initial=0) < 0:
            return False
        ends = counts.cumsum(axis=0, dtype=np.int64)
        last = ends[self.node_ends - 1]
        place = np.arange(len(counts)) - (self.node_ends - self.nodes).repeat(self.nodes)
        has_sampled = counts[:, SAMPLED] > 0
        return bool(
            all((self.lengths[name].cumsum() == last[:, kind]).all() for name, kind in COLUMN_KINDS.items())
            and (counts[:, PARENT] == place - 1).all()
            and columns_fit(counts, ends, self.columns)
            and (has_sampled == (counts[:, LOGPROBS] > 0)).all()
            and (has_sampled == (counts[:, SEGMENTS] > 0)).all()
            and self._calls_fit(ends[:, SEGMENTS])
        )

    def _calls_fit(self, ends: npt.NDArray[np.int64]) -> bool:
        """Segments and calls name each other (as in `Trace.check`)."""
        calls = np.array([len(trace.calls) for trace in self.traces])
        gave = np.array([ROOT if call.node is None else call.node for trace in self.traces for call in trace.calls])
        gave[gave != ROOT] += (self.node_ends - self.nodes).repeat(calls)[gave != ROOT]
        segments, named = self.lengths["segments"], self.columns["segments"][:, 0]
        if (named >= calls.repeat(segments)).any():
            return False
        named = named + (calls.cumsum() - calls).repeat(segments)
        unnamed = gave[(np.bincount(named, minlength=len(gave)) == 0) & (gave != ROOT)]
        return bool(
            (gave[named] == ends.searchsorted(np.arange(len(named)), side="right")).all()
            and not (np.diff(ends, prepend=0)[unnamed] > 0).any()
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """By field of `Sample`, each of shape (all tokens,)."""
        counts, runs = self.counts, self.columns["runs"]
        is_turn = counts[:, ORIGIN] == POLICY
        turn_of = is_turn.cumsum(dtype=np.int32) - 1
        before = np.concatenate(([0], turn_of[self.node_ends[:-1] - 1] + 1)).astype(np.int32)
        turns = (turn_of - before.repeat(self.nodes)).repeat(counts[:, RUNS])
        turns[runs[:, 0] != RunKind.SAMPLED] = -1
        turn_id = turns.repeat(runs[:, 1])
        sampled = turn_id >= 0
        return {
            "token_ids": self.columns["tokens"],
            "sampled": sampled,
            "loss_mask": sampled,
            "logprobs": spread(self.columns["logprobs"], counts, LOGPROBS, sampled, np.nan),
            "policy_version": spread_versions(self.columns["versions"], runs, counts, sampled),
            "turn_id": turn_id,
        }

    def samples(self, advantages: Sequence[float | None]) -> SampleBlock:
        """One for each trace."""
        arrays = self.arrays()
        offsets = np.concatenate(([0], self.lengths["tokens"].cumsum()))
        places = np.flatnonzero(arrays["sampled"])
        firsts = (places[places.searchsorted(offsets[:-1])] - offsets[:-1]).tolist()
        bounds: list[int] = offsets.tolist()
        versions = _slices(self.columns["versions"][:, 0], self.lengths["versions"])
        segments = _slices(self.columns["segments"][:, 0], self.lengths["segments"])
        made: list[Sample] = []
        for place, trace in enumerate(self.traces):
            part = slice(bounds[place], bounds[place + 1])
            known = versions[place]
            kinds, samplings, fit = _sampled_by(trace, segments[place])
            head, tail = trace.head, trace.tail
            made.append(
                Sample(
                    **{name: array[part] for name, array in arrays.items()},
                    prompt_len=firsts[place],
                    logprob_kinds=kinds,
                    samplings=samplings,
                    logprobs_fit=fit,
                    reward=tail.reward,
                    reward_parts=tail.reward_parts,
                    turn_rewards=(),
                    advantage=advantages[place],
                    rollout_trained=trace.sampled,
                    ending=trace.ending,
                    truncated=trace.ending.truncated,
                    min_version=min(known, default=None),
                    max_version=max(known, default=None),
                    run=head.run,
                    group=head.group,
                    episode=head.episode,
                    rollout=head.rollout,
                    branch=0,
                    is_last_branch=True,
                )
            )
        return SampleBlock(tuple(made), offsets, arrays)


def _slices(values: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64]) -> list[list[int]]:
    """`values` cut into pieces of these lengths."""
    found: list[int] = values.tolist()
    ends: list[int] = lengths.cumsum().tolist()
    return [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _sampled_by(trace: OpenedTrace, calls: list[int]) -> tuple[frozenset[LogprobKind], tuple[Sampling, ...], bool]:
    """Kinds of logprobs, samplings with different transforms, and whether all logprobs fit them."""
    first: dict[object, Sampling] = {}
    kinds: set[LogprobKind] = set()
    fit = True
    for kind, raw in dict.fromkeys(
        [(each.logprob_kind, bytes(each.sampling)) for each in map(trace.calls.__getitem__, calls)]
    ):
        sampling = _sampling(raw)
        first.setdefault(sampling.transform, sampling)
        fit = fit and kind_fits(kind, sampling)
        if kind is not None:
            kinds.add(kind)
    return frozenset(kinds), tuple(first.values()), fit


@lru_cache(maxsize=4096)
def _sampling(raw: bytes) -> Sampling:
    return msgspec.msgpack.decode(raw, type=Sampling)


_BYTES = 4
"""Bytes of one number in every column."""
