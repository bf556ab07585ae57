"""Groups and episodes go by ids and seats, never by place in a list."""

from __future__ import annotations

import random

from rollbook.trace import Agent, GroupKey, PolicyRecord, Task, Trace, TraceHead, by_episode, by_group


def trace(rollout: str, group: str = "g", seat: str = "solver", episode: str = "") -> Trace:
    head = TraceHead(
        rollout=rollout,
        group=group,
        episode=episode,
        agent=Agent(seat=seat),
        task=Task(id="t", prompt=""),
        policies=(PolicyRecord(name="m"),),
    )
    return Trace(head)


def test_members_of_a_group_share_its_id_and_the_seat() -> None:
    members = [trace("a"), trace("b", seat="judge"), trace("c", group="h"), trace("d"), trace("e", seat="judge")]
    want = {
        GroupKey("g", "solver"): {"a", "d"},
        GroupKey("g", "judge"): {"b", "e"},
        GroupKey("h", "solver"): {"c"},
    }
    for seed in range(5):
        random.Random(seed).shuffle(members)
        assert {key: {each.id for each in found} for key, found in by_group(members).items()} == want
    assert [key.group for key in by_group([trace("x", "late"), trace("y", "early")])] == ["late", "early"]


def test_a_trace_without_an_episode_is_one_of_its_own() -> None:
    episodes = by_episode([trace("a", episode="e"), trace("b"), trace("c", episode="e", seat="judge")])
    assert [(each.id, [t.id for t in each.traces]) for each in episodes] == [("e", ["a", "c"]), ("b", ["b"])]
    assert episodes[0].seats == ("solver", "judge")
