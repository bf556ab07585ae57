"""Samples: what a trainer takes. Each trainable branch of a trace becomes one, and no sampled token is trained twice.

Order of the rules: first the branches that cannot train go (rejected attempts, redacted nodes, over length; the
whole trace where its seat is not trainable or its disposition has no vote); then the earliest surviving branch that
holds a node owns it, and the node is context in the others; last, nodes of an untrainable policy or taken out of
the loss stay as context. Every sampled token that is not trained is counted with its reason (`TokenLedger`), so
captured = trained + lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.call import Call, LogprobKind, Sampling
from rollbook.trace.ending import Disposition, Ending
from rollbook.trace.experts import Experts, spread_experts
from rollbook.trace.node import (
    LOGPROBS,
    ORIGIN,
    POLICY,
    RUNS,
    SAMPLED,
    SEGMENTS,
    TOKENS,
    VERSIONS,
    Branch,
    Mark,
)
from rollbook.trace.runs import RunKind, Runs
from rollbook.trace.trace import Trace

__all__ = ["LossReason", "Sample", "SampleSet", "TokenLedger", "logprobs_fit", "samples"]

_Scalar = TypeVar("_Scalar", np.int32, np.float32)


class LossReason(StrEnum):
    """Why a sampled token is not trained."""

    UNTRAINABLE_SEAT = "untrainable_seat"
    """The agent's seat does not train."""
    UNTRAINABLE_POLICY = "untrainable_policy"
    """Another policy, which does not train, sampled it."""
    NO_VOTE = "no_vote"
    """The rollout's disposition is dropped, masked or retried."""
    REJECTED = "rejected"
    """The attempt was thrown away and sampled again."""
    REDACTED = "redacted"
    """A node of its branch was redacted."""
    OVER_LENGTH = "over_length"
    """Its branch is longer than the trainer takes."""
    DEMOTED = "demoted"
    """Its turn was taken out of the loss."""


@dataclass(slots=True)
class TokenLedger:
    """Where the sampled tokens of a trace went."""

    captured: int = 0
    """Sampled tokens that the trace holds."""
    trained: int = 0
    """Of these, in the loss of exactly one sample."""
    lost: Counter[LossReason] = field(default_factory=Counter[LossReason])
    """The others, by reason."""

    def __iadd__(self, other: TokenLedger) -> TokenLedger:
        self.captured += other.captured
        self.trained += other.trained
        self.lost += other.lost
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One training token sequence. Arrays have full length: entry t is about token t."""

    token_ids: npt.NDArray[np.int32]
    """int32, shape (tokens,)."""
    sampled: npt.NDArray[np.bool_]
    """bool: the engine returned this token."""
    loss_mask: npt.NDArray[np.bool_]
    """bool: this token trains here."""
    logprobs: npt.NDArray[np.float32]
    """float32: behaviour logprob; NaN where the token was not sampled or the engine gave none."""
    policy_version: npt.NDArray[np.int32]
    """int32; -1 where not sampled or not known."""
    turn_id: npt.NDArray[np.int32]
    """int32: number of the turn within the trace; -1 where not sampled."""
    prompt_len: int
    """Index of the first sampled token."""
    logprob_kinds: frozenset[LogprobKind]
    """The kinds that occur among the trained tokens."""
    samplings: tuple[Sampling, ...]
    """One for each different transform that its trained tokens were sampled with, in the order of first use."""
    logprobs_fit: bool
    """True where every trained token has a logprob, of the distribution that it was sampled from by a known call."""
    reward: float | None
    """Of the whole rollout; None: no reward, which is not zero."""
    reward_parts: dict[str, float]
    turn_rewards: tuple[tuple[int, float], ...]
    """(turn number, reward) of the turns that this sample owns."""
    advantage: float | None
    """None: not computed, or no vote."""
    ending: Ending | None
    """None while the rollout runs."""
    truncated: bool
    """A budget or a limit cut the rollout short."""
    min_version: int | None
    """Over the trained tokens; None where no version is known."""
    max_version: int | None
    run: str
    group: str
    episode: str
    rollout: str
    branch: int
    """Number of the branch within the trace."""
    is_last_branch: bool
    """True for the branch that the rollout ended on."""
    routed_experts: Experts | None = None
    """uint16, shape (tokens, layers, k): of the pass that each token was sampled from; 0 where not known. None: not
    asked for (`samples`), or none are known."""
    experts_known: npt.NDArray[np.bool_] | None = None
    """bool, shape (tokens,): where `routed_experts` says something; None where that is None."""

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class SampleSet:
    """The samples of one trace and where its sampled tokens went."""

    samples: tuple[Sample, ...]
    ledger: TokenLedger
    unbound_turn_rewards: tuple[int, ...] = ()
    """Turns whose reward goes with no sample, for none trains them."""

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def logprobs_fit(call: Call) -> bool:
    """True where the call's logprobs are of the distribution that its tokens were drawn from."""
    match call.logprob_kind:
        case LogprobKind.PROCESSED:
            return True
        case LogprobKind.RAW:
            return not call.sampling.changes_distribution
        case LogprobKind.TEMPERATURE:
            return not call.sampling.truncates
        case _:
            return False


def samples(
    trace: Trace,
    *,
    disposition: Disposition | None = None,
    advantage: float | None = None,
    max_tokens: int | None = None,
    experts: bool = False,
) -> SampleSet:
    """The samples of one trace.

    `disposition`: what became of the rollout; None means that no rules were applied, and it is used. `advantage` is
    copied to each sample. `max_tokens`: branches longer than this do not train. `experts`: spread routed experts over
    the samples, which takes layers * k times as much memory as their ids do. Raises `RecordError` for a trace without
    token ids, or read without the experts that are asked for.
    """
    if not trace.head.tokens:
        raise RecordError(f"trace {trace.id} has no token ids (text-only engine); it cannot be trained from")
    return _Builder(trace, disposition, advantage, max_tokens, experts).build()


class _Builder:
    """The work of `samples`, with what all branches of a trace share computed once."""

    def __init__(
        self,
        trace: Trace,
        disposition: Disposition | None,
        advantage: float | None,
        max_tokens: int | None,
        experts: bool,
    ) -> None:
        self.trace, self.graph, self.experts = trace, trace.graph, experts
        self.disposition, self.advantage, self.max_tokens = disposition, advantage, max_tokens
        self.counts = self.graph.counts()
        self.sampled_counts = self.counts[:, SAMPLED]
        is_turn = self.counts[:, ORIGIN] == POLICY
        self.turn_of = is_turn.cumsum(dtype=np.int32) - 1
        self.turn_of[~is_turn] = -1
        self.node_loss = self._node_losses()

    def build(self) -> SampleSet:
        branches = self.graph.branches()
        free = self.sampled_counts > 0
        lost_to: dict[LossReason, list[Branch]] = {}
        built: list[Sample] = []
        ledger = TokenLedger(captured=self.graph.sampled_count)
        for branch in branches:
            reason = self._branch_loss(branch)
            if reason is not None:
                lost_to.setdefault(reason, []).append(branch)
                continue
            owned = branch.nodes[free[branch.nodes]]
            free[branch.nodes] = False
            trained = self._count_owned(owned, ledger)
            if len(trained):
                built.append(self._sample(branch, trained, branch.leaf == len(self.graph) - 1))
        for reason, lost_branches in lost_to.items():
            for branch in lost_branches:
                ledger.lost[reason] += int(self.sampled_counts[branch.nodes[free[branch.nodes]]].sum())
                free[branch.nodes] = False
        ledger.lost = +ledger.lost
        bound = {turn for sample in built for turn, _ in sample.turn_rewards}
        every = [int(self.turn_of[each.node]) for each in self.trace.tail.turn_rewards]
        return SampleSet(tuple(built), ledger, tuple(turn for turn in every if turn not in bound))

    def _node_losses(self) -> dict[int, LossReason]:
        """Nodes that stay out of the loss on their own account."""
        found = {node: LossReason.DEMOTED for node, mark in self.graph.marks.items() if mark is Mark.DEMOTED}
        untrainable = {index for index, policy in enumerate(self.trace.head.policies) if not policy.trainable}
        if untrainable:
            for node in np.flatnonzero(self.sampled_counts).tolist():
                calls: list[int] = self.graph[node].segments[:, 0].tolist()
                if any(self.trace.calls[call].policy in untrainable for call in calls):
                    found[node] = LossReason.UNTRAINABLE_POLICY
        return found

    def _branch_loss(self, branch: Branch) -> LossReason | None:
        """Why the whole branch cannot train, or None."""
        if not self.trace.head.agent.trainable:
            return LossReason.UNTRAINABLE_SEAT
        if self.disposition is not None and not self.disposition.votes:
            return LossReason.NO_VOTE
        if self.graph.marks:
            marks = {self.graph.marks.get(node) for node in branch.nodes.tolist()}
            if Mark.REDACTED in marks:
                return LossReason.REDACTED
            if Mark.REJECTED in marks:
                return LossReason.REJECTED
        if self.max_tokens is not None and int(self.counts[branch.nodes, TOKENS].sum()) > self.max_tokens:
            return LossReason.OVER_LENGTH
        return None

    def _count_owned(self, owned: npt.NDArray[np.int32], ledger: TokenLedger) -> npt.NDArray[np.int32]:
        """Enter the owned nodes into the ledger; returns those that train."""
        if self.node_loss:
            for node in owned.tolist():
                if node in self.node_loss:
                    ledger.lost[self.node_loss[node]] += int(self.sampled_counts[node])
            owned = owned[[node not in self.node_loss for node in owned.tolist()]]
        ledger.trained += int(self.sampled_counts[owned].sum())
        return owned

    def _sample(self, branch: Branch, trained: npt.NDArray[np.int32], is_last: bool) -> Sample:
        graph, head, tail = self.graph, self.trace.head, self.trace.tail
        stretches = graph.stretches(branch.leaf)
        counts = self.counts[branch.nodes]
        trains = np.zeros(len(graph), np.bool_)
        trains[trained] = True
        trains = trains[branch.nodes]
        runs = graph.gather("runs", stretches)
        run_sampled, lengths = runs[:, 0] == RunKind.SAMPLED, runs[:, 1].astype(np.intp)
        turns = self.turn_of[branch.nodes].repeat(counts[:, RUNS])
        turns[~run_sampled] = -1
        turn_id = turns.repeat(lengths)
        sampled = turn_id >= 0  # only turns hold sampled tokens
        spans = graph.gather("versions", stretches)
        known = [version for version in spans[trains.repeat(counts[:, VERSIONS]), 0].tolist() if version >= 0]
        segments = graph.gather("segments", stretches)
        calls = self._calls(segments[trains.repeat(counts[:, SEGMENTS]), 0])
        all_train = len(trained) == np.count_nonzero(counts[:, SAMPLED])
        all_given = bool(np.count_nonzero(counts[trains][:, (LOGPROBS, SEGMENTS)]) == 2 * len(trained))
        owned_turns = set(self.turn_of[trained].tolist())
        rewards = [(int(self.turn_of[each.node]), each.value) for each in tail.turn_rewards]
        routed, routed_at = self._experts(branch, len(sampled))
        return Sample(
            token_ids=graph.gather("tokens", stretches),
            sampled=sampled,
            loss_mask=sampled.copy() if all_train else (run_sampled & trains.repeat(counts[:, RUNS])).repeat(lengths),
            logprobs=_spread(graph.gather("logprobs", stretches), counts, LOGPROBS, sampled, np.nan),
            policy_version=_versions(spans, runs, counts, sampled),
            turn_id=turn_id,
            prompt_len=int(sampled.argmax()),
            logprob_kinds=frozenset(call.logprob_kind for call in calls if call.logprob_kind is not None),
            samplings=_samplings(calls),
            logprobs_fit=all_given and all(map(logprobs_fit, calls)),
            reward=tail.reward,
            reward_parts=tail.reward_parts,
            turn_rewards=tuple(pair for pair in rewards if pair[0] in owned_turns),
            advantage=self.advantage,
            ending=tail.ending,
            truncated=tail.ending is not None and tail.ending.truncated,
            min_version=min(known, default=None),
            max_version=max(known, default=None),
            run=head.run,
            group=head.group,
            episode=head.episode,
            rollout=head.rollout,
            branch=branch.index,
            is_last_branch=is_last,
            routed_experts=routed,
            experts_known=routed_at,
        )

    def _experts(self, branch: Branch, tokens: int) -> tuple[Experts | None, npt.NDArray[np.bool_] | None]:
        if not self.experts:
            return None, None
        nodes: list[int] = branch.nodes.tolist()
        ends = self.counts[branch.nodes, TOKENS].cumsum()
        starts = dict(zip(nodes, (ends - self.counts[branch.nodes, TOKENS]).tolist(), strict=True))
        return spread_experts(
            self.graph.experts, nodes, lambda node: starts[node] + self.graph[node].sampled_positions, tokens
        ) or (None, None)

    def _calls(self, indices: npt.NDArray[np.int32]) -> list[Call]:
        """Of the calls with these indices the first of each transform and logprob kind, in their order."""
        found: dict[tuple[object, ...], Call] = {}
        named: list[int] = indices.tolist()
        for index in named:
            call = self.trace.calls[index]
            found.setdefault((call.logprob_kind, call.sampling.transform), call)
        return list(found.values())


def _spread(
    given: npt.NDArray[_Scalar],
    counts: npt.NDArray[np.int32],
    kind: int,
    sampled: npt.NDArray[np.bool_],
    absent: float,
) -> npt.NDArray[_Scalar]:
    """Values of the sampled tokens on the whole sequence; `absent` elsewhere and where a node has none.

    `counts`: the rows of the branch's nodes in each column; `kind`: the column that the values come from.
    """
    full = np.full(len(sampled), absent, given.dtype)
    if len(given) == np.count_nonzero(sampled):
        full[sampled] = given
    elif len(given):
        places = np.flatnonzero(sampled)
        full[places[np.repeat(counts[:, kind] > 0, counts[:, SAMPLED])]] = given
    return full


def _versions(
    spans: Runs, runs: Runs, counts: npt.NDArray[np.int32], sampled: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int32]:
    """The policy version of each token. Nearly always each turn has one, and then its run tells for all of them."""
    run_sampled = runs[:, 0] == RunKind.SAMPLED
    if not np.array_equal(spans[:, 1], runs[run_sampled, 1]):
        return _spread(spans[:, 0].repeat(spans[:, 1]), counts, VERSIONS, sampled, -1)
    versions = np.full(len(runs), -1, np.int32)
    versions[run_sampled] = spans[:, 0]
    return versions.repeat(runs[:, 1])


def _samplings(calls: Sequence[Call]) -> tuple[Sampling, ...]:
    """The first sampling of each transform, in the order of first use."""
    found: dict[object, Sampling] = {}
    for call in calls:
        found.setdefault(call.sampling.transform, call.sampling)
    return tuple(found.values())
