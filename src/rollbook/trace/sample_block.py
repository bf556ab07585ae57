"""Samples of many stored traces at once, for the common case: one branch, nothing marked, everything trainable.

Rules: what comes out is what `samples` gives for the decoded traces, and every invariant of calls and arrays is checked
as when a trace is read, once for all traces of a block. Where one of them breaks a rule or is of another kind, there is
no block (`stored_samples` gives None), and they go the general way, which decides or complains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import ConfigError
from rollbook.trace.branch_arrays import spread, spread_versions
from rollbook.trace.call import TRANSFORM, LogprobKind, Sampling, SamplingFields
from rollbook.trace.checks import columns_fit
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
from rollbook.trace.runs import RunKind
from rollbook.trace.sample import Sample, kind_fits
from rollbook.trace.stored import NUMBER, OpenedTrace, StoredCall
from rollbook.trace.wire import as_column

__all__ = ["SampleBlock", "SampledBy", "stored_samples"]


@dataclass(frozen=True, slots=True)
class SampledBy:
    """How the trained tokens of one sample were sampled; fields as in `Sample`."""

    logprob_kinds: frozenset[LogprobKind]
    samplings: tuple[SamplingFields, ...]
    """Each of them checked."""
    logprobs_fit: bool
    truncates: bool
    """One of the samplings does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBlock:
    """The one sample of each of some traces: all that was sampled trains. The arrays lie one behind the other."""

    traces: Sequence[OpenedTrace]
    advantages: Sequence[float | None]
    offsets: npt.NDArray[np.int32]
    """int32, shape (samples + 1,): where the tokens of each sample begin."""
    arrays: Mapping[str, npt.NDArray[Any]]
    """By field of `Sample`, each of shape (all tokens,)."""
    prompt_len: npt.NDArray[np.int32]
    """int32, shape (samples,)."""
    trained: npt.NDArray[np.int32]
    """int32, shape (samples,): trained tokens of each."""
    min_version: Sequence[int | None]
    max_version: Sequence[int | None]
    sampled_by: Sequence[SampledBy]

    def __len__(self) -> int:
        return len(self.traces)

    def part(self, start: int, end: int) -> SampleBlock:
        """The samples from `start` to `end`; the arrays are views."""
        if (start, end) == (0, len(self)):
            return self
        rows, (first, *_, last) = slice(start, end), self.offsets[start : end + 1].tolist()
        return SampleBlock(
            traces=self.traces[rows],
            advantages=self.advantages[rows],
            offsets=self.offsets[start : end + 1] - first,
            arrays={name: array[first:last] for name, array in self.arrays.items()},
            prompt_len=self.prompt_len[rows],
            trained=self.trained[rows],
            min_version=self.min_version[rows],
            max_version=self.max_version[rows],
            sampled_by=self.sampled_by[rows],
        )

    def samples(self) -> list[Sample]:
        """The samples one by one; their arrays are views."""
        bounds: list[int] = self.offsets.tolist()
        return [self._sample(place, slice(*bounds[place : place + 2])) for place in range(len(self))]

    def _sample(self, place: int, part: slice) -> Sample:
        trace, by = self.traces[place], self.sampled_by[place]
        head, tail, ending = trace.head, trace.tail, trace.ending
        return Sample(
            **{name: array[part] for name, array in self.arrays.items()},
            prompt_len=int(self.prompt_len[place]),
            logprob_kinds=by.logprob_kinds,
            samplings=tuple(Sampling(**msgspec.structs.asdict(sampling)) for sampling in by.samplings),
            logprobs_fit=by.logprobs_fit,
            reward=tail.reward,
            reward_parts=tail.reward_parts,
            turn_rewards=(),
            advantage=self.advantages[place],
            rollout_trained=int(self.trained[place]),
            ending=ending,
            truncated=ending.truncated,
            min_version=self.min_version[place],
            max_version=self.max_version[place],
            run=head.run,
            group=head.group,
            episode=head.episode,
            rollout=head.rollout,
            branch=0,
            is_last_branch=True,
        )


def stored_samples(traces: Sequence[OpenedTrace], advantages: Sequence[float | None]) -> SampleBlock | None:
    """The one sample of each trace, with its advantage. None where a trace breaks a rule or is of another kind."""
    block = _Block(traces)
    return block.samples(advantages) if block.sound() else None


class _Drawn(msgspec.Struct, frozen=True, eq=False):
    """What calls have in common that drew tokens alike. One for each different way within a block."""

    kind: LogprobKind | None
    transform: tuple[Any, ...]
    fits: bool
    """Logprobs of this kind are of the distribution that was sampled."""
    truncates: bool


_way_of = attrgetter("logprob_kind", *(f"sampling.{name}" for name in TRANSFORM))


class _Block:
    """The calls and arrays of several traces, one behind the other, as if they were those of one."""

    def __init__(self, traces: Sequence[OpenedTrace]) -> None:
        self.traces = traces
        self.calls = [call for trace in traces for call in trace.calls]
        self.call_counts = np.array([len(trace.calls) for trace in traces])
        raw = [msgspec.structs.asdict(trace.columns) for trace in traces]
        self.counts = np.frombuffer(b"".join([each["counts"] for each in raw]), "<i4").reshape(-1, TABLE_WIDTH)
        self.columns = {name: as_column(name, b"".join([each[name] for each in raw])) for name in COLUMN_KINDS}
        self.nodes = np.array([len(each["counts"]) for each in raw]) // (NUMBER * TABLE_WIDTH)
        self.node_ends = self.nodes.cumsum()
        self.lengths = {
            name: np.array([len(each[name]) for each in raw]) // (NUMBER * self.columns[name].ndim)
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
            and self._calls_fit()
            and self._segments_fit(ends[:, SEGMENTS])
        )

    def _calls_fit(self) -> bool:
        """Each call names a node and a policy of its trace (as in `Trace.check`), and its sampling can be one."""
        calls = self.calls
        given = [call.node for call in calls]
        self.gave = np.array([ROOT if node is None else node for node in given])
        """For each call its node; `ROOT`: none."""
        after, policy = np.array([call.after for call in calls]), np.array([call.policy for call in calls])
        none = np.array([node is None for node in given])
        nodes = self.nodes.repeat(self.call_counts)
        policies = np.array([len(trace.head.policies) for trace in self.traces]).repeat(self.call_counts)
        limits = [call.sampling.max_tokens for call in calls]
        return bool(
            (none | ((after < self.gave) & (self.gave < nodes))).all()
            and ((policy >= 0) & (policy < policies)).all()
            and ((after >= ROOT) & (after < nodes)).all()
            and min([limit for limit in limits if limit is not None], default=1) >= 1
            and self._find_ways()
        )

    def _find_ways(self) -> bool:
        """Find how each call drew; False where a sampling breaks a rule."""
        places: dict[tuple[Any, ...], int] = {}
        self.ways = np.array([places.setdefault(way, len(places)) for way in map(_way_of, self.calls)])
        """For each call its place in `drawn`."""
        try:
            self.drawn = [_drawn(*way) for way in places]
        except ConfigError:
            return False
        return True

    def _segments_fit(self, ends: npt.NDArray[np.int64]) -> bool:
        """Segments and calls name each other (as in `Trace.check`)."""
        counts = self.call_counts
        gave = self.gave.copy()
        gave[gave != ROOT] += (self.node_ends - self.nodes).repeat(counts)[gave != ROOT]
        segments, named = self.lengths["segments"], self.columns["segments"][:, 0]
        if (named >= counts.repeat(segments)).any():
            return False
        self.named = named + (counts.cumsum() - counts).repeat(segments)
        """For each segment its call in `calls`."""
        unnamed = gave[(np.bincount(self.named, minlength=len(gave)) == 0) & (gave != ROOT)]
        return bool(
            (gave[self.named] == ends.searchsorted(np.arange(len(named)), side="right")).all()
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
        turn_id = turns.repeat(runs[:, 1].astype(np.intp))
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
        low, high = self._version_bounds()
        return SampleBlock(
            traces=self.traces,
            advantages=advantages,
            offsets=offsets.astype(np.int32),
            arrays=arrays,
            prompt_len=(self._first_sampled() - offsets[:-1]).astype(np.int32),
            trained=self.lengths["logprobs"].astype(np.int32),
            min_version=low,
            max_version=high,
            sampled_by=self._sampled_by(),
        )

    def _first_sampled(self) -> npt.NDArray[np.int64]:
        """For each trace the place of its first sampled token among those of all traces."""
        kinds, lengths = self.columns["runs"].T
        sampled = np.flatnonzero(kinds == RunKind.SAMPLED)
        runs = self.lengths["runs"]
        first = sampled[sampled.searchsorted(runs.cumsum() - runs)]
        return (lengths.cumsum(dtype=np.int64) - lengths)[first]

    def _version_bounds(self) -> tuple[list[int | None], list[int | None]]:
        """The lowest and the highest version of each trace; None where none is known."""
        versions, lengths = self.columns["versions"][:, 0], self.lengths["versions"]
        given = lengths > 0
        starts = (lengths.cumsum() - lengths)[given]
        low = high = np.full(len(lengths), None)
        if len(starts):
            low, high = low.copy(), high.copy()
            low[given] = np.minimum.reduceat(versions, starts).tolist()
            high[given] = np.maximum.reduceat(versions, starts).tolist()
        return low.tolist(), high.tolist()

    def _sampled_by(self) -> list[SampledBy]:
        """How the calls of each trace sampled, which its segments name."""
        named, ends = self.named, self.lengths["segments"].cumsum()
        starts = ends - self.lengths["segments"]
        ways = self.ways[named]
        least, most = np.minimum.reduceat(ways, starts), np.maximum.reduceat(ways, starts)
        rows: list[tuple[int, ...]] = np.stack((least, most, starts, ends, named[starts])).T.tolist()
        return [
            self._alike(self.drawn[low], self.calls[first]) if low == high else self._mixed(named[start:end].tolist())
            for low, high, start, end, first in rows
        ]

    @staticmethod
    def _alike(drawn: _Drawn, call: StoredCall) -> SampledBy:
        return SampledBy(_KINDS[drawn.kind], (call.sampling,), drawn.fits, drawn.truncates)

    def _mixed(self, named: list[int]) -> SampledBy:
        first: dict[_Drawn, StoredCall] = {}
        ways: list[int] = self.ways[named].tolist()
        for way, call in zip(ways, named, strict=True):
            first.setdefault(self.drawn[way], self.calls[call])
        samplings: dict[object, SamplingFields] = {}
        for drawn, call in first.items():
            samplings.setdefault(drawn.transform, call.sampling)
        return SampledBy(
            frozenset(drawn.kind for drawn in first if drawn.kind is not None),
            tuple(samplings.values()),
            all(drawn.fits for drawn in first),
            any(drawn.truncates for drawn in first),
        )


_KINDS: Mapping[LogprobKind | None, frozenset[LogprobKind]] = {
    None: frozenset(),
    **{kind: frozenset({kind}) for kind in LogprobKind},
}


def _drawn(kind: LogprobKind | None, *transform: Any) -> _Drawn:
    """Raises `ConfigError` where no sampling has this transform."""
    sampling = Sampling(**dict(zip(TRANSFORM, transform, strict=True)))
    return _Drawn(kind, transform, kind_fits(kind, sampling), sampling.truncates)
