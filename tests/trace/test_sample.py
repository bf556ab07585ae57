"""Samples: against the slow rules of `naive`, and each rule alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.trace import (
    ROOT,
    Agent,
    Call,
    Disposition,
    Ending,
    Fate,
    Finish,
    Fork,
    ForkReason,
    LogprobKind,
    LossReason,
    Mark,
    Message,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    Sampling,
    Task,
    TokenLedger,
    Trace,
    TraceHead,
    TurnReward,
    make_runs,
    samples,
)
from rollbook.trace.sample import logprobs_fit
from tests.strategies import traces
from tests.trace import naive

RETRY = Fork(reason=ForkReason.RETRY)
NEUTRAL = Sampling()


def head(**fields: object) -> TraceHead:
    base: dict[str, object] = {"rollout": "r", "group": "g", "task": Task(id="t", prompt="p")}
    return TraceHead(
        **{**base, "policies": (PolicyRecord(name="m"), PolicyRecord(name="j", trainable=False)), **fields}
    )


def prompt(trace: Trace) -> int:
    runs = make_runs((0, 1), (1, 2))
    ids = np.array([1, 2, 3], np.int32)
    return trace.graph.add(Message(role=Role.USER), parent=ROOT, origin=Origin.USER, token_ids=ids, runs=runs)


def turn(
    trace: Trace,
    parent: int,
    *,
    policy: int = 0,
    fork: Fork | None = None,
    kind: LogprobKind | None = LogprobKind.RAW,
    sampling: Sampling = NEUTRAL,
    versions: tuple[tuple[int, int], ...] = (),
    logprobs: bool = True,
) -> int:
    """One scaffold token and two sampled ones."""
    node = len(trace.graph)
    call = trace.add_call(Call(node=node, policy=policy, sampling=sampling, logprob_kind=kind, finish=Finish.STOP))
    return trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=parent,
        origin=Origin.POLICY,
        token_ids=np.array([9, 10 + node, 20 + node], np.int32),
        runs=make_runs((0, 1), (2, 2)),
        logprobs=np.array([-0.5, -0.25], np.float32) if logprobs else None,
        segments=make_runs((call, 2)),
        versions=make_runs(*versions),
        fork=fork,
    )


def same(left: list[float | None], right: list[float]) -> bool:
    return all((a is None and math.isnan(b)) or a == b for a, b in zip(left, right, strict=True))


@given(traces(), st.booleans(), st.none() | st.integers(0, 30))
def test_samples_are_those_of_the_slow_rules(trace: Trace, votes: bool, max_tokens: int | None) -> None:
    disposition = Disposition(Fate.USED if votes else Fate.DROPPED, "r")
    fast = samples(trace, disposition=disposition, max_tokens=max_tokens)
    slow, lost = naive.samples(trace, votes=votes, max_tokens=max_tokens)
    assert fast.ledger.lost == lost
    assert fast.ledger.trained == sum(sum(each.loss) for each in slow)
    assert len(fast) == len(slow)
    for got, want in zip(fast, slow, strict=True):
        assert got.token_ids.tolist() == want.ids
        assert got.sampled.tolist() == want.sampled
        assert got.loss_mask.tolist() == want.loss
        assert same(want.logprobs, got.logprobs.tolist())
        assert got.policy_version.tolist() == want.versions
        assert got.turn_id.tolist() == want.turns
        assert list(got.turn_rewards) == want.turn_rewards
        assert got.prompt_len == want.sampled.index(True)
        assert got.is_last_branch == (want.leaf == len(trace.graph) - 1)
        known = [v for v, trained in zip(want.versions, want.loss, strict=True) if trained and v >= 0]
        assert (got.min_version, got.max_version) == ((min(known), max(known)) if known else (None, None))
        calls = [trace.calls[index] for index in want.calls]
        assert got.logprob_kinds == {call.logprob_kind for call in calls} - {None}
        assert got.logprobs_fit == (want.complete and all(map(logprobs_fit, calls)))
        assert [s.transform for s in got.samplings] == list(dict.fromkeys(call.sampling.transform for call in calls))


@given(traces(), st.booleans(), st.none() | st.integers(0, 30), st.booleans())
def test_every_sampled_token_is_accounted_for_and_a_rollout_weighs_one(
    trace: Trace, votes: bool, max_tokens: int | None, cut: bool
) -> None:
    disposition = Disposition(Fate.USED if votes else Fate.DROPPED, "r")
    found = samples(trace, disposition=disposition, max_tokens=max_tokens, cut=cut)
    ledger = found.ledger
    assert ledger.captured == trace.graph.sampled_count == ledger.trained + ledger.lost.total()
    assert ledger.trained == sum(sample.trained for sample in found)
    assert all(sample.rollout_trained == ledger.trained and sample.weight > 0 for sample in found)
    assert not len(found) or math.isclose(sum(sample.weight for sample in found), 1.0)
    rewarded = [turn for sample in found for turn, _ in sample.turn_rewards]
    assert len(rewarded) + len(found.unbound_turn_rewards) == len(trace.tail.turn_rewards)
    assert set(rewarded).isdisjoint(found.unbound_turn_rewards)


@given(traces(), st.integers(0, 30))
def test_a_cut_sample_is_the_beginning_of_the_whole_one(trace: Trace, max_tokens: int) -> None:
    whole = {sample.branch: sample for sample in samples(trace)}
    found = samples(trace, max_tokens=max_tokens, cut=True)
    assert set(found.ledger.lost) - {LossReason.CUT_OFF} == set(samples(trace).ledger.lost)
    assert found.ledger.trained == sum(int(sample.loss_mask[:max_tokens].sum()) for sample in whole.values())
    for sample in found:
        other = whole[sample.branch]
        assert len(sample) == min(len(other), max_tokens)
        for name in ("token_ids", "sampled", "loss_mask", "policy_version", "turn_id", "logprobs"):
            left, right = getattr(sample, name), getattr(other, name)[:max_tokens]
            assert left.tobytes() == right.tobytes()
        known = [version for version in sample.policy_version[sample.loss_mask].tolist() if version >= 0]
        assert (sample.min_version, sample.max_version) == (min(known, default=None), max(known, default=None))
        assert set(sample.turn_rewards) <= set(other.turn_rewards)


@given(traces())
def test_the_rewards_of_turns_stand_on_their_last_sampled_tokens(trace: Trace) -> None:
    for sample in samples(trace):
        want = [0.0] * len(sample)
        for turn, value in sample.turn_rewards:
            last = max(place for place, each in enumerate(sample.turn_id.tolist()) if each == turn)
            want[last] = float(np.float32(want[last]) + np.float32(value))
        assert sample.token_rewards().tolist() == pytest.approx(want)
        assert sample.loss_mask[sample.token_rewards() != 0].all()


def test_three_branches_weigh_as_much_as_one() -> None:
    single, forked = Trace(head()), Trace(head())
    turn(single, prompt(single))
    shared = turn(forked, prompt(forked))
    turn(forked, shared)
    turn(forked, shared, fork=RETRY)
    turn(forked, shared, fork=RETRY)
    assert [sample.weight for sample in samples(single)] == [1.0]
    assert [sample.weight for sample in samples(forked)] == [4 / 8, 2 / 8, 2 / 8]


def test_what_lies_behind_a_cut_does_not_train_and_its_reward_is_unbound() -> None:
    trace = Trace(head())
    first = turn(trace, prompt(trace))
    second = turn(trace, first, versions=((1, 1), (2, 1)))
    trace.score(1.0, turn_rewards=(TurnReward(first, 0.5), TurnReward(second, 0.25)))
    found = samples(trace, max_tokens=8, cut=True)
    (sample,) = found
    assert sample.loss_mask.tolist() == [False] * 4 + [True, True, False, True]
    assert (sample.min_version, sample.max_version) == (1, 1)
    assert sample.turn_rewards == ((0, 0.5),)
    assert sample.token_rewards().tolist() == [0, 0, 0, 0, 0, 0.5, 0, 0]
    assert found.unbound_turn_rewards == (1,)
    assert found.ledger == TokenLedger(4, 3, {LossReason.CUT_OFF: 1})  # type: ignore[arg-type]
    assert samples(trace, max_tokens=4, cut=True).samples == ()


def test_advantages_of_turns() -> None:
    trace = Trace(head())
    turn(trace, turn(trace, prompt(trace)))
    (sample,) = samples(trace, turn_advantages={0: 0.5, 1: -1.0})
    assert sample.advantages is not None
    assert sample.advantages.dtype == np.float32
    nan = None
    assert same([nan, nan, nan, nan, 0.5, 0.5, nan, -1.0, -1.0], sample.advantages.tolist())
    (sample,) = samples(trace, advantage=0.25, turn_advantages={1: -1.0})
    assert sample.advantages is not None
    assert sample.advantages[[4, 7]].tolist() == [0.25, -1.0]
    (sample,) = samples(trace, advantage=0.25, turn_advantages={})
    assert (sample.advantage, sample.advantages) == (0.25, None)
    with pytest.raises(RecordError, match=r"turns \[0\] train and have no advantage"):
        samples(trace, turn_advantages={1: -1.0})
    with pytest.raises(RecordError, match=r"advantages for turns \[2\], and it has 2"):
        samples(trace, turn_advantages={2: -1.0})


def test_arrays_have_full_length_and_their_dtypes() -> None:
    trace = Trace(head())
    turn(trace, prompt(trace), versions=((3, 1), (4, 1)))
    trace.end(Ending(Reason.GENERATION_LIMIT))
    (sample,) = samples(trace, advantage=0.5)
    assert len(sample) == 6
    assert sample.token_ids.dtype == sample.policy_version.dtype == sample.turn_id.dtype == np.int32
    assert sample.logprobs.dtype == np.float32
    assert sample.sampled.dtype == sample.loss_mask.dtype == np.bool_
    assert sample.policy_version.tolist() == [-1, -1, -1, -1, 3, 4]
    assert (sample.min_version, sample.max_version) == (3, 4)
    assert (sample.advantage, sample.truncated, sample.prompt_len) == (0.5, True, 4)


def test_the_earliest_surviving_branch_owns_a_shared_turn() -> None:
    trace = Trace(head())
    shared = turn(trace, prompt(trace))
    first = turn(trace, shared)
    second = turn(trace, shared, fork=RETRY)
    left, right = samples(trace)
    assert left.loss_mask.tolist() == [False] * 4 + [True, True, False, True, True]
    assert right.loss_mask.tolist() == [False] * 7 + [True, True]
    assert right.sampled.tolist()[4:6] == [True, True]
    trace.graph.mark(first, Mark.REJECTED)
    (only,) = samples(trace)
    assert only.branch == second - 2
    assert only.loss_mask.sum() == 4
    assert samples(trace).ledger.lost == {LossReason.REJECTED: 2}


def test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it() -> None:
    trace = Trace(head())
    shared = turn(trace, prompt(trace))
    turn(trace, shared)
    demoted = turn(trace, shared, fork=RETRY)
    trace.graph.mark(demoted, Mark.DEMOTED)
    trace.score(1.0, turn_rewards=(TurnReward(shared, 0.5), TurnReward(demoted, 0.25)))
    found = samples(trace)
    assert [sample.turn_rewards for sample in found] == [((0, 0.5),)]
    assert found.unbound_turn_rewards == (2,)


def test_an_untrainable_policy_is_context_only() -> None:
    trace = Trace(head())
    judge = turn(trace, turn(trace, prompt(trace)), policy=1, kind=LogprobKind.UNKNOWN)
    (sample,) = samples(trace)
    assert sample.loss_mask.tolist() == [False] * 4 + [True, True, False, False, False]
    assert samples(trace).ledger == TokenLedger(4, 2, {LossReason.UNTRAINABLE_POLICY: 2})  # type: ignore[arg-type]
    assert sample.logprobs_fit, "the logprobs of what does not train do not matter"
    assert judge == 2


def test_a_disposition_without_a_vote_trains_nothing() -> None:
    trace = Trace(head())
    turn(trace, prompt(trace))
    for fate in Fate:
        found = samples(trace, disposition=Disposition(fate, "rule"))
        votes = fate in (Fate.USED, Fate.PENALISED)
        assert len(found) == votes
        assert found.ledger.lost == ({} if votes else {LossReason.NO_VOTE: 2})


def test_a_seat_that_does_not_train_and_a_branch_over_length_lose_their_tokens() -> None:
    judge = Trace(head(agent=Agent(seat="judge", trainable=False)))
    turn(judge, prompt(judge))
    assert samples(judge).ledger.lost == {LossReason.UNTRAINABLE_SEAT: 2}
    trace = Trace(head())
    turn(trace, prompt(trace))
    assert samples(trace, max_tokens=6).ledger.trained == 2
    assert samples(trace, max_tokens=5).ledger.lost == {LossReason.OVER_LENGTH: 2}


def test_samplings_come_in_the_order_of_first_use() -> None:
    trace = Trace(head())
    cold, warm = Sampling(temperature=0.5, seed=1), Sampling(seed=2)
    last = turn(trace, turn(trace, prompt(trace), sampling=cold), sampling=warm)
    turn(trace, last, sampling=Sampling(temperature=0.5, seed=3))
    (sample,) = samples(trace)
    assert sample.samplings == (cold, warm)


def test_logprobs_without_a_known_call_never_fit() -> None:
    trace = Trace(head())
    ids, runs = np.array([1], np.int32), make_runs((2, 1))
    logprobs = np.array([-1], np.float32)
    trace.graph.add(
        Message(role=Role.ASSISTANT), parent=ROOT, origin=Origin.POLICY, token_ids=ids, runs=runs, logprobs=logprobs
    )
    (sample,) = samples(trace)
    assert not sample.logprobs_fit
    missing = Trace(head())
    turn(missing, prompt(missing), logprobs=False)
    assert [each.logprobs_fit for each in samples(missing)] == [False]


@pytest.mark.parametrize(
    ("kind", "sampling", "fits"),
    [
        (LogprobKind.RAW, Sampling(), True),
        (LogprobKind.RAW, Sampling(seed=1, max_tokens=4, stop=("x",)), True),
        (LogprobKind.RAW, Sampling(temperature=0.5), False),
        (LogprobKind.RAW, Sampling(grammar="g"), False),
        (LogprobKind.TEMPERATURE, Sampling(temperature=0.5), True),
        (LogprobKind.TEMPERATURE, Sampling(top_k=5), False),
        (LogprobKind.PROCESSED, Sampling(top_k=5), True),
        (LogprobKind.UNKNOWN, Sampling(), False),
        (None, Sampling(), False),
    ],
)
def test_logprobs_fit_the_distribution_that_was_sampled(
    kind: LogprobKind | None, sampling: Sampling, fits: bool
) -> None:
    assert logprobs_fit(Call(sampling=sampling, logprob_kind=kind, finish=Finish.STOP)) is fits


def test_a_trace_without_token_ids_cannot_be_trained_from() -> None:
    with pytest.raises(RecordError, match="no token ids"):
        samples(Trace(head(tokens=False)))


def test_an_empty_trace_has_no_samples() -> None:
    assert samples(Trace(head())).samples == ()


def test_ledgers_add_up() -> None:
    total = TokenLedger()
    trace = Trace(head())
    turn(trace, prompt(trace))
    total += samples(trace).ledger
    total += samples(trace, max_tokens=1).ledger
    assert (total.captured, total.trained, total.lost.total()) == (4, 2, 2)
