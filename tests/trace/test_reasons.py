"""Reasons: the spans of a branch are its tokens, and they train exactly where the sample's loss mask is set."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.trace import Disposition, Fate, LossReason, Mark, RunKind, Trace, samples
from rollbook.trace.ownership import Ownership
from rollbook.trace.reasons import REASONS, SpanReason, token_spans
from tests.strategies import traces
from tests.trace.test_sample import RETRY, head, prompt, turn


@given(traces(), st.booleans(), st.none() | st.integers(0, 30), st.booleans())
def test_spans_cover_each_branch_and_train_where_its_sample_does(
    trace: Trace, votes: bool, max_tokens: int | None, cut: bool
) -> None:
    fate = Disposition(Fate.USED if votes else Fate.DROPPED, "r")
    ownership = Ownership(trace, fate, max_tokens, cut=cut)
    found = {sample.branch: sample for sample in samples(trace, disposition=fate, max_tokens=max_tokens, cut=cut)}
    sampled_once: dict[tuple[int, int], str] = {}
    for branch in trace.graph.branches():
        spans = token_spans(ownership, branch.index)
        assert [span.start for span in spans] == [0, *(span.end for span in spans)][: len(spans)]
        length = sum(len(trace.graph[node].token_ids) for node in branch.nodes.tolist())
        assert sum(map(len, spans)) == length
        mask = np.zeros(length, np.bool_)
        for span in spans:
            mask[span.start : span.end] = span.trains
            assert span.reason in REASONS
            assert span.trains == (span.reason == SpanReason.TRAINS)
            if span.owner is not None:
                assert span.owner != branch.index
                assert span.node in ownership.shares[span.owner].trained or cut
            for place in range(span.start, span.end) if span.turn is not None else ():
                known = sampled_once.get((span.node, place))
                sampled_once[span.node, place] = span.reason if known != SpanReason.TRAINS else known
        kept = found[branch.index].loss_mask if branch.index in found else np.zeros(0, np.bool_)
        assert mask[: len(kept)].tolist() == kept.tolist()
        assert not mask[len(kept) :].any()
    assert len(sampled_once) == ownership.ledger.captured
    assert Counter(sampled_once.values())[SpanReason.TRAINS] == ownership.ledger.trained


def test_every_reason_has_a_sentence() -> None:
    assert set(REASONS) == {*SpanReason, *LossReason}
    assert len(set(REASONS.values())) == len(REASONS)


def test_a_branch_in_words() -> None:
    trace = Trace(head())
    shared = turn(trace, prompt(trace))
    demoted = turn(trace, shared)
    rejected = turn(trace, shared, fork=RETRY)
    trace.graph.mark(demoted, Mark.DEMOTED)
    trace.graph.mark(rejected, Mark.REJECTED)
    turn(trace, shared, fork=RETRY)
    ownership = Ownership(trace)
    told = [
        [(span.start, span.end, span.node, span.turn, span.reason, span.owner) for span in token_spans(ownership, each)]
        for each in range(3)
    ]
    question = [(0, 1, 0, None, "scaffold", None), (1, 3, 0, None, "content", None), (3, 4, 1, None, "scaffold", None)]
    assert told[0] == [
        *question,
        (4, 6, 1, 0, "trains", None),
        (6, 7, 2, None, "scaffold", None),
        (7, 9, 2, 1, "demoted", None),
    ]
    assert told[1] == [
        *question,
        (4, 6, 1, 0, "rejected", 0),
        (6, 7, 3, None, "scaffold", None),
        (7, 9, 3, 2, "rejected", None),
    ]
    assert told[2] == [
        *question,
        (4, 6, 1, 0, "other_branch", 0),
        (6, 7, 4, None, "scaffold", None),
        (7, 9, 4, 3, "trains", None),
    ]
    with pytest.raises(IndexError):
        token_spans(ownership, 3)


def test_a_cut_goes_through_a_turn() -> None:
    trace = Trace(head())
    turn(trace, turn(trace, prompt(trace)))
    spans = token_spans(Ownership(trace, None, 8, cut=True), 0)
    assert [(span.start, span.end, span.reason) for span in spans if span.turn is not None] == [
        (4, 6, "trains"),
        (7, 8, "trains"),
        (8, 9, "cut_off"),
    ]
    assert trace.graph[1].runs[0, 0] == RunKind.SCAFFOLD
