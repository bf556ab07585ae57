"""Samples: what a trainer takes. Each trainable branch of a trace becomes one, and no sampled token is trained twice.

Which branch owns a token, and why one does not train, is told by `rollbook.trace.ownership`. The samples of one
rollout weigh 1 together (`Sample.weight`), however many branches it has, so that each rollout counts once. A reward
of a turn goes with the sample that trains the turn, on its last sampled token; where that token is in no sample, the
reward is reported as unbound and never moved to another token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.branch_arrays import BranchArrays, branch_arrays
from rollbook.trace.call import Call, LogprobKind, Sampling
from rollbook.trace.ending import Disposition, Ending
from rollbook.trace.experts import Experts, spread_experts
from rollbook.trace.node import TOKENS, Branch
from rollbook.trace.ownership import LossReason, Ownership, Share, TokenLedger
from rollbook.trace.trace import Trace

__all__ = ["LossReason", "Sample", "SampleSet", "TokenLedger", "kind_fits", "logprobs_fit", "samples"]


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
    """Of the whole rollout; None: not computed, or no vote."""
    advantages: npt.NDArray[np.float32] | None = None
    """float32, shape (tokens,): where turns have advantages of their own; NaN off the loss mask. None: every trained
    token has `advantage`."""
    rollout_trained: int
    """Trained tokens of all samples of this rollout."""
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

    @property
    def trained(self) -> int:
        """How many tokens train here."""
        return int(np.count_nonzero(self.loss_mask))

    @property
    def weight(self) -> float:
        """This sample's part of its rollout's vote, by trained tokens: those of one rollout add up to 1."""
        return self.trained / self.rollout_trained

    def token_rewards(self) -> npt.NDArray[np.float32]:
        """float32, shape (tokens,): each reward of `turn_rewards` on the last sampled token of its turn, 0 elsewhere.
        Rewards of one turn add up."""
        rewards = np.zeros(len(self), np.float32)
        for turn, value in self.turn_rewards:
            rewards[np.flatnonzero(self.turn_id == turn)[-1]] += value
        return rewards


@dataclass(frozen=True, slots=True)
class SampleSet:
    """The samples of one trace and where its sampled tokens went."""

    samples: tuple[Sample, ...]
    ledger: TokenLedger
    unbound_turn_rewards: tuple[int, ...] = ()
    """Turns whose reward goes with no sample, for none trains their last token."""

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def logprobs_fit(call: Call) -> bool:
    """True where the call's logprobs are of the distribution that its tokens were drawn from."""
    return kind_fits(call.logprob_kind, call.sampling)


def kind_fits(kind: LogprobKind | None, sampling: Sampling) -> bool:
    """True where logprobs of this kind are of the distribution that `sampling` draws from."""
    match kind:
        case LogprobKind.PROCESSED:
            return True
        case LogprobKind.RAW:
            return not sampling.changes_distribution
        case LogprobKind.TEMPERATURE:
            return not sampling.truncates
        case _:
            return False


def samples(
    trace: Trace,
    *,
    disposition: Disposition | None = None,
    advantage: float | None = None,
    turn_advantages: Mapping[int, float] | None = None,
    max_tokens: int | None = None,
    cut: bool = False,
    experts: bool = False,
) -> SampleSet:
    """The samples of one trace.

    `disposition`: what became of the rollout; None means that no rules were applied, and it is used. `advantage` is
    copied to each sample. `turn_advantages`: by number of the turn; a turn that is not named has `advantage`.
    `max_tokens`: branches longer than this do not train, or with `cut` end there. `experts`: spread routed experts over
    the samples, which takes layers * k times as much memory as their ids do. Raises `RecordError` for a trace without
    token ids, or read without the experts that are asked for; for an advantage of a turn that is not there; and for a
    trained turn without any advantage where others have one.
    """
    if not trace.head.tokens:
        raise RecordError(f"trace {trace.id} has no token ids (text-only engine); it cannot be trained from")
    ownership = Ownership(trace, disposition, max_tokens, cut=cut)
    by_turn = _by_turn(ownership, turn_advantages or {}, advantage)
    builder = _Builder(ownership, advantage, by_turn, experts)
    built = tuple(builder.sample(share) for share in ownership.shares if len(share.trained))
    bound = {turn for sample in built for turn, _ in sample.turn_rewards}
    every = [int(ownership.turn_of[each.node]) for each in trace.tail.turn_rewards]
    return SampleSet(built, ownership.ledger, tuple(turn for turn in every if turn not in bound))


def _by_turn(
    ownership: Ownership, turn_advantages: Mapping[int, float], advantage: float | None
) -> npt.NDArray[np.float32] | None:
    """Advantage by turn: float32, shape (turns,); NaN where there is none. None: turns have none of their own."""
    if not turn_advantages:
        return None
    turns = int(ownership.turn_of.max(initial=-1)) + 1
    if stray := sorted(turn for turn in turn_advantages if not 0 <= turn < turns):
        raise RecordError(
            f"trace {ownership.trace.id} has advantages for turns {stray}, and it has {turns}; number them from 0"
        )
    by_turn = np.full(turns, np.nan if advantage is None else advantage, np.float32)
    by_turn[list(turn_advantages)] = list(turn_advantages.values())
    trained = np.concatenate([ownership.turn_of[share.trained] for share in ownership.shares])
    if bare := trained[np.isnan(by_turn[trained])].tolist():
        raise RecordError(
            f"trace {ownership.trace.id}: turns {sorted(bare)} train and have no advantage, and the rollout has none "
            "that stands for them; give one for each turn, or `advantage`"
        )
    return by_turn


class _Builder:
    """Makes the samples of one trace."""

    def __init__(
        self,
        ownership: Ownership,
        advantage: float | None,
        by_turn: npt.NDArray[np.float32] | None,
        experts: bool,
    ) -> None:
        self.ownership, self.advantage, self.by_turn, self.experts = ownership, advantage, by_turn, experts
        self.trace, self.graph = ownership.trace, ownership.graph
        whole = ownership.kept_counts == ownership.sampled_counts
        self.turn_rewards = [
            (each.node, int(ownership.turn_of[each.node]), each.value)
            for each in self.trace.tail.turn_rewards
            if whole[each.node]
        ]

    def sample(self, share: Share) -> Sample:
        """The sample of one branch that trains something."""
        head, tail, branch = self.trace.head, self.trace.tail, share.branch
        arrays = branch_arrays(self.ownership, share)
        length = slice(self.ownership.max_tokens if self.ownership.cut else None)
        loss_mask, policy_version, turn_id = (
            arrays.loss_mask[length],
            arrays.policy_version[length],
            arrays.turn_id[length],
        )
        calls = self._calls(arrays.calls)
        low, high = _version_bounds(arrays, loss_mask, policy_version)
        routed, routed_at = self._experts(branch, len(arrays.sampled))
        owned = set(share.trained.tolist()) if self.turn_rewards else ()
        return Sample(
            token_ids=arrays.token_ids[length],
            sampled=arrays.sampled[length],
            loss_mask=loss_mask,
            logprobs=arrays.logprobs[length],
            policy_version=policy_version,
            turn_id=turn_id,
            prompt_len=int(arrays.sampled.argmax()),
            logprob_kinds=frozenset(call.logprob_kind for call in calls if call.logprob_kind is not None),
            samplings=_samplings(calls),
            logprobs_fit=arrays.all_given and all(map(logprobs_fit, calls)),
            reward=tail.reward,
            reward_parts=tail.reward_parts,
            turn_rewards=tuple((turn, value) for node, turn, value in self.turn_rewards if node in owned),
            advantage=self.advantage,
            advantages=None if self.by_turn is None else np.where(loss_mask, self.by_turn[turn_id], np.float32(np.nan)),
            rollout_trained=self.ownership.ledger.trained,
            ending=tail.ending,
            truncated=tail.ending is not None and tail.ending.truncated,
            min_version=low,
            max_version=high,
            run=head.run,
            group=head.group,
            episode=head.episode,
            rollout=head.rollout,
            branch=branch.index,
            is_last_branch=branch.leaf == len(self.graph) - 1,
            routed_experts=None if routed is None else routed[length],
            experts_known=None if routed_at is None else routed_at[length],
        )

    def _experts(self, branch: Branch, tokens: int) -> tuple[Experts | None, npt.NDArray[np.bool_] | None]:
        if not self.experts:
            return None, None
        nodes: list[int] = branch.nodes.tolist()
        counts = self.ownership.counts[branch.nodes, TOKENS]
        starts = dict(zip(nodes, (counts.cumsum() - counts).tolist(), strict=True))
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


def _version_bounds(
    arrays: BranchArrays, loss_mask: npt.NDArray[np.bool_], policy_version: npt.NDArray[np.int32]
) -> tuple[int | None, int | None]:
    """The lowest and the highest known version of the tokens that train; those that were cut off do not count."""
    known = arrays.versions
    if len(loss_mask) < len(arrays.loss_mask):
        trained: list[int] = policy_version[loss_mask].tolist()
        known = [version for version in trained if version >= 0]
    return min(known, default=None), max(known, default=None)


def _samplings(calls: Sequence[Call]) -> tuple[Sampling, ...]:
    """The first sampling of each transform, in the order of first use."""
    found: dict[object, Sampling] = {}
    for call in calls:
        found.setdefault(call.sampling.transform, call.sampling)
    return tuple(found.values())
