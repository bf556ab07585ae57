"""Rewards of turns: each on the token that earned it, or reported, never on another token."""

from __future__ import annotations

from typing import Any

from rollbook.trace import LossReason, Role, Trace, TurnReward, samples
from tests.cases.case import add_turn, add_user, head, report


def rewarded(given: dict[str, Any]) -> Trace:
    """The report's turns behind a question without tokens."""
    trace, rewards = Trace(head()), []
    add_user(trace, "?", [])
    for part in given["turns"]:
        if "obs" in part:
            add_user(trace, "seen", part["obs"], role=Role.TOOL)
        else:
            rewards.append(TurnReward(add_turn(trace, "said", part["ids"]), part["r"]))
    trace.score(1.0, turn_rewards=tuple(rewards))
    return trace


@report("J14")
def test_each_turns_reward_stands_on_its_own_last_token(given: dict[str, Any]) -> None:
    (sample,) = samples(rewarded(given))
    assert sample.token_ids.tolist() == [5, 6, 50, 51, 7]
    assert [round(float(value), 6) for value in sample.token_rewards()] == [0, 0.1, 0, 0, 0.9]


@report("J14")
def test_a_reward_whose_token_was_cut_off_is_unbound_and_moves_nowhere(given: dict[str, Any]) -> None:
    found = samples(rewarded(given), max_tokens=given["max_len"], cut=True)
    (sample,) = found
    assert sample.token_ids.tolist() == [5, 6, 50, 51]
    assert [round(float(value), 6) for value in sample.token_rewards()] == [0, 0.1, 0, 0]
    assert found.unbound_turn_rewards == (1,)
    assert found.ledger.lost == {LossReason.CUT_OFF: 1}
