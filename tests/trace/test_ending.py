"""Endings and the rules that follow from them."""

from __future__ import annotations

import pickle

import pytest

from rollbook.errors import ConfigError, RecordError, RollbookError
from rollbook.trace import (
    Disposition,
    Drop,
    Ending,
    EndingKind,
    EndingRules,
    Fate,
    Mask,
    Penalize,
    Reason,
    Retry,
    RolloutFailure,
    Score,
)

KINDS = {
    EndingKind.SUBMITTED: "final_answer stop_tool user_stop",
    EndingKind.DETECTED: "goal_reached unrecoverable",
    EndingKind.TRUNCATED: "max_turns max_tokens context_overflow deadline max_tool_calls no_activity",
    EndingKind.LENGTH_CUT: "generation_limit",
    EndingKind.ERROR: "engine_timeout engine_unreachable rate_limited engine_contract env_setup tool_server"
    " sandbox_lost harness peer interrupted cancelled template_refused internal",
    EndingKind.UNKNOWN: "not_recorded",
}


def test_each_reason_has_exactly_one_kind() -> None:
    assert {kind: " ".join(r for r in Reason if r.kind is kind) for kind in EndingKind} == KINDS


@pytest.mark.parametrize("reason", Reason)
def test_an_ending_says_its_kind(reason: Reason) -> None:
    ending = Ending(reason, "why")
    assert ending.kind is reason.kind
    assert ending.truncated == (ending.kind in ("truncated", "length_cut"))
    assert str(ending) == f"{reason.kind}/{reason}"


@pytest.mark.parametrize("reason", Reason)
def test_rules_that_nobody_changed(reason: Reason) -> None:
    rule = EndingRules().rule(reason)
    if reason in (Reason.CANCELLED, Reason.TEMPLATE_REFUSED):
        assert rule == Drop()
    elif reason is Reason.INTERRUPTED:
        assert isinstance(rule, Retry)
        assert rule.times > 1_000_000, "a person asks for each retry, by resuming"
    elif reason.kind is EndingKind.ERROR:
        assert rule == Retry(2)
    else:
        assert rule == Score()


def test_an_override_leaves_the_table_as_it_is() -> None:
    plain = EndingRules()
    strict = plain.override({Reason.MAX_TURNS: Penalize(-0.5), Reason.HARNESS: Mask()})
    assert plain.rule(Reason.MAX_TURNS) == Score()
    assert strict.rule(Reason.MAX_TURNS) == Penalize(-0.5)
    assert strict.override({Reason.MAX_TURNS: Drop()}).rule(Reason.HARNESS) == Mask()
    with pytest.raises(AttributeError):
        strict.rows = {}  # type: ignore[misc]


def test_what_is_cancelled_is_never_retried() -> None:
    with pytest.raises(ConfigError, match="'cancelled' is never retried"):
        EndingRules({Reason.CANCELLED: Retry(1)})
    with pytest.raises(ConfigError):
        EndingRules().override({Reason.CANCELLED: Retry(0)})
    assert EndingRules({Reason.CANCELLED: Mask()}).rule(Reason.CANCELLED) == Mask()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Retry(3), "peer: retry(3)"),
        (Penalize(-0.25), "peer: penalize(-0.25)"),
        (Mask(), "peer: mask"),
        (Drop(), "peer: drop"),
        (Score(), "peer: score"),
    ],
)
def test_a_row_as_text(rule: Retry | Penalize | Mask | Drop | Score, text: str) -> None:
    assert EndingRules({Reason.PEER: rule}).describe(Reason.PEER) == text


def test_amounts_and_counts_make_sense() -> None:
    with pytest.raises(ConfigError, match="finite"):
        Penalize(float("nan"))
    with pytest.raises(ConfigError, match=">= 0"):
        Retry(-1)


def test_only_what_is_used_votes() -> None:
    assert [fate for fate in Fate if Disposition(fate, "r").votes] == [Fate.USED, Fate.PENALISED]


def test_a_failure_crosses_processes_with_its_reason() -> None:
    failure = RolloutFailure(Reason.ENGINE_TIMEOUT, "30 s")
    again = pickle.loads(pickle.dumps(failure))
    assert isinstance(again, RollbookError)
    assert (again.reason, again.detail, str(again)) == (Reason.ENGINE_TIMEOUT, "30 s", "error/engine_timeout: 30 s")
    assert again.ending == Ending(Reason.ENGINE_TIMEOUT, "30 s")


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.kind in ("submitted", "detected", "unknown")])
def test_no_failure_is_an_outcome(reason: Reason) -> None:
    with pytest.raises(RecordError, match="is an outcome"):
        RolloutFailure(reason, "won")


def test_the_detail_of_a_failure_is_text() -> None:
    assert RolloutFailure(Reason.SANDBOX_LOST, OSError("gone")).ending == Ending(Reason.SANDBOX_LOST, "gone")
