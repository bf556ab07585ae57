"""Branches: which of them train, in whatever order they are stored, and how steps become branches."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest

from rollbook.trace import (
    ROOT,
    Edge,
    EdgeLabel,
    Fork,
    ForkReason,
    LossReason,
    Mark,
    Message,
    NodeRef,
    Origin,
    Role,
    RunKind,
    Trace,
    TurnReward,
    make_runs,
    samples,
)
from rollbook.trace.steps import Step, add_steps
from tests.cases.case import head, report

RETRY, NEW_ROOT = Fork(reason=ForkReason.RETRY), Fork(reason=ForkReason.NEW_ROOT)


def add(trace: Trace, parent: int, ids: list[int], *, sampled: bool, fork: Fork | None = None) -> int:
    """A message with these ids, sampled or given."""
    return trace.graph.add(
        Message(role=Role.ASSISTANT if sampled else Role.USER, content=f"{ids}"),
        parent=parent,
        origin=Origin.POLICY if sampled else Origin.USER,
        token_ids=np.array(ids, np.int32),
        runs=make_runs((RunKind.SAMPLED if sampled else RunKind.CONTENT, len(ids))),
        logprobs=np.full(len(ids), -0.5, np.float32) if sampled else None,
        fork=fork,
    )


def compaction(given: dict[str, Any], *, taken: bool = True) -> Trace:
    """The report's graph: each node has one token, 10 and its number."""
    trace = Trace(head())
    for node in given["nodes"]:
        parent = ROOT if node["parent"] is None else node["parent"]
        siblings = [other for other in given["nodes"][: node["id"]] if other["parent"] == node["parent"]]
        fork = None if not siblings else NEW_ROOT if parent == ROOT else RETRY
        add(trace, parent, [10 + node["id"]], sampled=node.get("sampled", False), fork=fork)
    for node in given["nodes"]:
        match node.get("edge", "").split(" from "):
            case ["compaction_attempt"]:
                link = Edge(
                    label=EdgeLabel.COMPACTION_ATTEMPT, source=NodeRef(node["id"]), target=NodeRef(node["parent"])
                )
                trace.add_edge(link)
            case ["compaction", summary] if taken:
                trace.add_edge(
                    Edge(label=EdgeLabel.COMPACTION, source=NodeRef(int(summary)), target=NodeRef(node["id"]))
                )
    return trace


@report("F02")
def test_a_rejected_summary_is_stored_and_does_not_train(given: dict[str, Any]) -> None:
    trace = compaction(given)
    found = samples(trace)
    assert [sample.token_ids.tolist() for sample in found] == [[10, 11, 13], [14, 15]]
    assert [sample.loss_mask.tolist() for sample in found] == [[False, True, True], [False, True]]
    assert [sample.branch for sample in found] == [1, 2]
    assert trace.graph.path_ids(2).tolist() == [10, 11, 12]
    assert found.ledger.lost == {LossReason.REJECTED: 1}
    trained = [int(token) for sample in found for token in sample.token_ids[sample.loss_mask]]
    assert sorted(trained) == [11, 13, 15], "node 1 once, node 2 never"


@report("F02")
def test_without_an_accepted_summary_every_attempt_is_rejected(given: dict[str, Any]) -> None:
    found = samples(compaction(given, taken=False))
    assert [sample.token_ids.tolist() for sample in found] == [[14, 15]]
    assert found.ledger.lost == {LossReason.REJECTED: 3}


@report("F03")
def test_a_branch_that_cannot_train_claims_nothing_whatever_comes_first(given: dict[str, Any]) -> None:
    branches = given["branches"]
    tokens = {"p": given["p_sampled_ids"], "y": given["y_ids"], "z": given["z_ids"], "x": [3], "s": [6]}
    for order in itertools.permutations(branches):
        trace, places = Trace(head()), {}
        for branch in order:
            first, last = branch["path"]
            if first not in places:
                fork = NEW_ROOT if places else None
                places[first] = add(trace, ROOT, tokens[first], sampled=first == "p", fork=fork)
                fork = None
            else:
                fork = RETRY
            places[last] = add(trace, places[first], tokens[last], sampled=True, fork=fork)
            if not branch["trainable"]:
                trace.graph.mark(places[last], Mark.REJECTED)
        found = samples(trace)
        trained = [int(token) for sample in found for token in sample.token_ids[sample.loss_mask]]
        assert sorted(trained) == [2, 5, 7]
        assert found.ledger.lost == {LossReason.REJECTED: 1}
        if list(order) == branches:
            assert trained == [2, 5, 7]
            assert [sample.branch for sample in found] == [1, 2], "branch states false, true, true"


def steps(given: dict[str, Any]) -> list[Step]:
    return [
        Step(
            np.array(step["prompt"], np.int32),
            np.array(step["out"], np.int32),
            np.full(len(step["out"]), -0.5, np.float32),
        )
        for step in given["steps"]
    ]


@report("F12")
def test_a_step_that_continues_another_is_merged_and_one_that_does_not_is_its_own(given: dict[str, Any]) -> None:
    made = steps(given)
    before = copy.deepcopy(made)
    trace = Trace(head())
    assert add_steps(trace, made) == 1
    rewards = [
        TurnReward(node, sum(step["reward"]))
        for node, step in zip(trace.policy_nodes.tolist(), given["steps"], strict=True)
    ]
    trace.score(1.0, turn_rewards=tuple(rewards))
    merged, other = samples(trace)
    assert merged.token_ids.tolist() == [1, 2, 3, 9, 4]
    assert merged.loss_mask.astype(int).tolist() == [0, 1, 1, 0, 1]
    assert merged.token_rewards().tolist() == [0, 0, 0, 0, 1]
    assert other.token_ids.tolist() == [1, 2, 8, 5]
    assert other.loss_mask.astype(int).tolist() == [0, 0, 0, 1]
    for sample in (merged, other):
        assert len(sample.logprobs) == len(sample.token_rewards()) == len(sample)
        assert (np.isnan(sample.logprobs) == ~sample.loss_mask).all()
    for kept, step in zip(before, made, strict=True):
        assert kept.prompt.tolist() == step.prompt.tolist()
        assert kept.reply.tolist() == step.reply.tolist()


@pytest.mark.parametrize(("prompts", "mismatches", "branches"), [(([1], [1, 2]), 0, 1), (([1], [1]), 1, 2)])
def test_a_step_with_nothing_new_is_merged_too(
    prompts: tuple[list[int], list[int]], mismatches: int, branches: int
) -> None:
    trace = Trace(head())
    replies = ([2], [3])
    made = [Step(np.array(p, np.int32), np.array(r, np.int32)) for p, r in zip(prompts, replies, strict=True)]
    assert add_steps(trace, made) == mismatches
    assert len(samples(trace)) == branches
