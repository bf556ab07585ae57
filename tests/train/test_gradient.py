"""What samples promise a trainer, seen where it counts: in the gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError, UsageError
from rollbook.rewards import advantages, annotate, dispositions
from rollbook.run import open_run
from rollbook.store import RunWriter
from rollbook.trace import Disposition, EndingRules, Fate, Mark, Mask, Reason, Sampling, Trace, samples
from rollbook.trace.sample import Sample
from rollbook.train.batch import micro_batches
from rollbook.train.learner import Learner, LearnerConfig
from rollbook.train.loss import Correction, LossRules
from tests.export.build import end, start, turn
from tests.train.made import VOCABULARY, Logits, Toy, gradient, kept, member, same, trained

PLAIN = LearnerConfig(loss=LossRules(correction=Correction.NONE))


def group(good: tuple[int, ...] = (20, 21), bad: tuple[int, ...] = (30, 31)) -> list[Trace]:
    return [
        member("r0", good, 1.0),
        member("r1", bad, 0.0),
        member("r2", good[:1], 1.0),
        member("r3", (*bad, 40, 41), 0.0),
    ]


def gradient_of(found: list[Sample], config: LearnerConfig = PLAIN, model: Toy | None = None) -> dict[str, np.ndarray]:
    chosen = Toy() if model is None else model
    Learner(chosen, config).gradient(found, version=0)
    return gradient(chosen)


def logprob(model: Toy, found: list[Sample], rollout: str) -> float:
    """Of all trained tokens of a rollout."""
    rows = [each for each in found if each.rollout == rollout]
    with torch.no_grad():
        each = [
            model.logprobs(
                torch.from_numpy(row.token_ids[None].astype(np.int64)), torch.from_numpy(row.loss_mask[None])
            )
            for row in rows
        ]
    return float(torch.cat(each).sum())


@pytest.mark.parametrize("correction", list(Correction))
def test_what_was_rewarded_becomes_likelier_and_what_was_punished_less_likely(correction: Correction) -> None:
    model, found = Toy(), trained(group())
    behaving = [logprob(model, found, name) for name in ("r0", "r1", "r2", "r3")]
    learner = Learner(model, LearnerConfig(lr=1e-2, loss=LossRules(correction=correction, low=0.0, high=1e9)))
    for _ in range(3):
        learner.step(found, version=0)
    after = [logprob(model, found, name) for name in ("r0", "r1", "r2", "r3")]
    assert after[0] > behaving[0]
    assert after[1] < behaving[1]
    assert after[2] > behaving[2]
    assert after[3] < behaving[3]


def branched(rollout: str, reward: float) -> Trace:
    """Three branches from one question: (10, 11), then two others that leave it."""
    trace = turn(start(rollout), (10, 11))
    turn(trace, (12, 13), parent=0)
    turn(trace, (14, 15), parent=0)
    return end(trace, reward=reward)


def test_tokens_outside_of_the_loss_have_exactly_no_gradient() -> None:
    """Prompts, scaffolds, padding and turns that were taken out of the loss."""
    demoted = turn(turn(start("r0"), (10, 11)), (12, 13, 14))
    demoted.graph.mark(1, Mark.DEMOTED)
    traces = [end(demoted, reward=1.0), member("r1", (30,), 0.0)]
    found = trained(traces)
    model = Logits(2, max(map(len, found)))
    Learner(model, PLAIN).gradient(found)
    masks = np.zeros(model.logits.shape[:2], np.bool_)
    for row, sample in enumerate(sorted(found, key=len, reverse=True)):
        masks[row, : len(sample)] = sample.loss_mask
    assert model.logits.grad is not None
    touched = (model.logits.grad != 0).any(-1).numpy()
    assert np.array_equal(touched, masks)
    assert masks.sum() == 4  # 12, 13, 14 of the turn that trains, 30 of the other rollout


def test_context_that_does_not_train_may_say_anything_about_logprobs_and_versions() -> None:
    found = trained(group())
    changed = [
        replace(
            each,
            logprobs=np.where(each.loss_mask, each.logprobs, np.float32(-7.0)),
            policy_version=np.where(each.loss_mask, each.policy_version, 99),
        )
        for each in found
    ]
    assert same(gradient_of(found, LearnerConfig()), gradient_of(changed, LearnerConfig()))


LOST = [Reason.SANDBOX_LOST, Reason.ENGINE_TIMEOUT, Reason.INTERNAL, Reason.MAX_TURNS]


@pytest.mark.parametrize("reason", LOST)
def test_a_dropped_or_masked_rollout_has_no_influence(reason: Reason) -> None:
    """The gradient is the same, bit for bit, with it and without it: as member, as baseline and as row."""
    lost = end(turn(start("lost"), (50, 51, 52)), reason, reward=0.0)
    rules = EndingRules().override({Reason.MAX_TURNS: Mask()})

    def of(traces: list[Trace]) -> list[Sample]:
        decided = dispositions(traces, rules)
        values = advantages(traces, rules).values
        return [
            sample
            for trace in traces
            for sample in samples(trace, disposition=decided[trace.id], advantage=values.get(trace.id))
        ]

    whole = of([*group()[:2], lost, *group()[2:]])
    assert {each.rollout for each in whole} == {"r0", "r1", "r2", "r3"}
    assert same(gradient_of(whole), gradient_of(of(group())))


def test_a_stored_disposition_takes_a_rollout_out_as_well() -> None:
    (sample,) = samples(group()[0], advantage=0.5)
    masked = samples(group()[1], disposition=Disposition(Fate.MASKED, "by hand"), advantage=-0.5)
    assert same(gradient_of([sample, *masked]), gradient_of([sample]))


def test_a_trace_with_three_branches_weighs_as_much_as_one_with_a_single_branch() -> None:
    """Said of the gradient at the logits: that of a rollout's tokens adds up to the same, however they are spread."""

    def weight(traces: list[Trace]) -> dict[str, float]:
        found = trained(traces)
        model = Logits(len(found), max(map(len, found)))
        Learner(model, PLAIN).gradient(found)
        assert model.logits.grad is not None
        rows = sorted(found, key=len, reverse=True)
        sums: dict[str, float] = {}
        for row, sample in enumerate(rows):
            own = model.logits.grad[row, range(len(sample)), sample.token_ids.tolist()]
            sums[sample.rollout] = sums.get(sample.rollout, 0.0) + float(own.sum())
        return sums

    one = weight([member("r0", (10, 11), 1.0), member("r1", (12,), 0.0)])
    three = weight([branched("r0", 1.0), member("r1", (12,), 0.0)])
    assert three["r0"] == pytest.approx(one["r0"], rel=1e-6)
    assert three["r1"] == pytest.approx(one["r1"], rel=1e-6)
    assert three["r0"] == pytest.approx(-three["r1"], rel=1e-6)


def test_a_sample_from_the_store_gives_the_gradient_of_the_one_in_memory(tmp_path: Path) -> None:
    traces = [branched("r0", 1.0), *group()[1:]]
    for trace in traces:
        trace.seal()
    with RunWriter.create(tmp_path / "run") as writer:
        for trace in traces:
            writer.seal(trace)
        writer.annotate(annotate(dispositions(traces)))
    stored = trained(open_run(tmp_path / "run").traces())
    assert len(stored) == 6
    assert same(gradient_of(stored, LearnerConfig()), gradient_of(trained(kept(traces).traces()), LearnerConfig()))


def test_micro_batches_add_up_to_the_batch() -> None:
    found = trained(group())
    whole = gradient_of(found)
    cut = gradient_of(found, LearnerConfig(loss=PLAIN.loss, budget=1))
    for name, each in whole.items():
        np.testing.assert_allclose(cut[name], each, rtol=1e-4, atol=1e-7)


def test_a_group_without_a_signal_moves_nothing_and_is_compared_all_the_same() -> None:
    model = Toy()
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    learned = Learner(model).step(trained([member("r0", (10,), 1.0), member("r1", (11,), 1.0)]), version=0)
    assert learned.norm is None
    assert learned.mismatch.tokens == 2
    assert all(torch.equal(each, before[name]) for name, each in model.named_parameters())


def test_a_signal_beside_a_flat_group_counts_with_the_weight_of_all_rollouts() -> None:
    flat = [member(f"f{place}", (60,), 1.0, group="flat") for place in range(4)]
    alone, beside = gradient_of(trained(group())), gradient_of(trained([*group(), *flat]))
    for name, each in alone.items():
        np.testing.assert_allclose(beside[name], each / 2, rtol=1e-5, atol=1e-8)


def test_turns_with_advantages_of_their_own_are_weighed_by_them() -> None:
    trace = end(turn(turn(start(), (10,)), (11,)))
    (sample,) = samples(trace, advantage=1.0, turn_advantages={0: 2.0, 1: -3.0})
    model = Logits(1, len(sample))
    Learner(model, PLAIN).gradient([sample])
    assert model.logits.grad is not None
    own = model.logits.grad[0, range(len(sample)), sample.token_ids.tolist()][sample.loss_mask.tolist()]
    scale = 0.5 * (1 - 1 / 128)  # two trained tokens of one rollout; softmax of equal logits
    assert own.tolist() == pytest.approx([-2.0 * scale, 3.0 * scale], rel=1e-5)


def test_what_cannot_be_trained_from_is_refused() -> None:
    learner = Learner(Toy())
    with pytest.raises(UsageError, match="nothing to learn from"):
        learner.gradient([])
    with pytest.raises(UsageError, match="has no advantage"):
        learner.gradient(list(samples(group()[0])))
    hot = end(turn(start(), (10,), sampling=Sampling(temperature=0.7)))
    with pytest.raises(UsageError, match="not drawn from the model's own distribution"):
        learner.gradient(list(samples(hot, advantage=1.0)))
    silent = end(turn(start(), (10,), kind=None))
    with pytest.raises(UsageError, match="needs the engine's logprob"):
        learner.gradient(list(samples(silent, advantage=1.0)))
    Learner(Toy(), PLAIN).gradient(list(samples(silent, advantage=1.0)))
    twice = list(samples(group()[0], advantage=1.0)) * 2
    with pytest.raises(UsageError, match="there twice"):
        learner.gradient(twice)
    first = replace(twice[0], loss_mask=np.ones(len(twice[0]), np.bool_))
    with pytest.raises(UsageError, match="first token trains"):
        learner.gradient([first])
    with pytest.raises(ConfigError, match="reference"):
        Learner(Toy(), LearnerConfig(loss=LossRules(kl=0.1)))


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    model = Toy()
    with torch.no_grad():
        model.head[0, 0] = float("inf")
    before = model.embedding.detach().clone()
    with pytest.raises(UsageError, match="gradient"):
        Learner(model, PLAIN).step(trained(group()))
    assert torch.equal(model.embedding.detach(), before)


def test_weights_that_are_no_numbers_any_more_go_nowhere() -> None:
    model = Toy()
    with torch.no_grad():
        model.embedding[VOCABULARY - 1] = float("inf")  # of a token that no row has
    with pytest.raises(UsageError, match="some weights are no finite numbers"):
        Learner(model, PLAIN).step(trained(group()))


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 90), min_size=1, max_size=5), st.integers(0, 2)), min_size=2, max_size=5)
)
def test_weights_of_a_batch_add_up_to_one_and_rollouts_weigh_alike(rows: list[tuple[list[int], int]]) -> None:
    traces = []
    for place, (ids, forks) in enumerate(rows):
        trace = turn(start(f"r{place}"), ids)
        for fork in range(forks):
            turn(trace, (100 + fork,), parent=0)
        traces.append(end(trace, reward=float(place % 2)))
    weights: dict[str, float] = {}
    for batch in micro_batches(trained(traces), 16):
        for sample, each in zip(batch.samples, batch.weights.split(batch.row_sizes), strict=True):
            weights[sample.rollout] = weights.get(sample.rollout, 0.0) + float(each.sum())
    assert list(weights.values()) == pytest.approx([1 / len(rows)] * len(rows), rel=1e-5)
