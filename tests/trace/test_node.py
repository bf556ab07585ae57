"""Nodes, branches and forks."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from rollbook.trace import ROOT, Branch, Fork, Message, MessageGraph, Origin, Role, RunKind, Trace, expand_runs
from rollbook.trace.node import ORIGINS, TABLE_WIDTH
from tests.strategies import forks, traces


@given(traces())
def test_sampled_ids_are_those_of_the_sampled_runs(trace: Trace) -> None:
    for node in trace.graph:
        kinds = expand_runs(node.runs).tolist()
        pairs = zip(node.token_ids.tolist(), kinds, strict=True)
        assert node.sampled_ids.tolist() == [token for token, kind in pairs if kind == RunKind.SAMPLED]


def test_a_branch_ends_at_its_leaf() -> None:
    assert Branch(0, np.array([0, 2], np.int32)).leaf == 2


@given(forks())
def test_a_fork_is_kept_as_it_came(fork: Fork) -> None:
    graph = MessageGraph()
    node = graph.add(Message(role=Role.USER), parent=ROOT, origin=Origin.USER, fork=fork)
    assert graph[node].fork == graph.texts()[node].fork == fork


def test_codes_of_the_node_table_are_part_of_the_stored_form() -> None:
    assert [str(origin) for origin in ORIGINS] == ["policy", "environment", "user", "harness", "subagent", "synthetic"]
    assert TABLE_WIDTH == 9
