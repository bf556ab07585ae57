"""Requests of one turn: what is waited out, what is asked again and out of which budget, and what goes on."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.policy.protocol import EngineBusy
from rollbook.rollout.asking import EMPTY_ABORTS
from rollbook.rollout.loaded import derive_seed
from rollbook.trace import EndingKind, Finish, Reason, RolloutFailure, Sampling, Trace
from tests.rollout.made import (
    NO_LIMITS,
    Engine,
    Said,
    Talk,
    attempt,
    completion,
    detail,
    ids_of,
    never,
    play,
    says,
    why,
)
from tests.rollout.skipping import run_skipping

RESET, LATE = (RolloutFailure(each, "as said") for each in (Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT))
BUSY = EngineBusy(Reason.RATE_LIMITED, "429", 0.01)
WHOLE = ids_of("the sum is five")


def retries(number: int) -> dict[str, Any]:
    return {"limits": msgspec.structs.replace(NO_LIMITS, request_retries=number)}


def run(engine: Engine, **more: Any) -> Trace:
    return asyncio.run(attempt(Talk(), engine, **more))


def part(start: int, stop: int, **more: Any) -> Said:
    """Aborted behind some of the ids."""
    return completion(WHOLE[start:stop], Finish.ABORT, **more)


def test_a_busy_engine_is_waited_out_and_counted_with_the_request_that_got_through() -> None:
    trace = play(Talk("And?"), BUSY, BUSY, says("five"), says("six"), **retries(0))
    assert why(trace) is Reason.FINAL_ANSWER
    assert [(call.tries, call.error) for call in trace.calls] == [(3, None), (1, None)]
    assert trace.tail.times is not None
    assert trace.tail.times.limiter > 0.01


@pytest.mark.parametrize("told", [math.nan, -math.inf, -1.0])
def test_a_wait_that_is_no_wait_breaks_no_waiting(told: float) -> None:
    trace = play(Talk(), EngineBusy(Reason.RATE_LIMITED, "429", told), says("five"), **retries(0))
    assert (why(trace), trace.calls[0].tries) == (Reason.FINAL_ANSWER, 2)
    assert trace.tail.times is not None
    assert math.isfinite(trace.tail.times.limiter)


def test_tries_before_a_failure_belong_to_it_and_not_to_the_next_request() -> None:
    trace = play(Talk(), BUSY, RESET, BUSY, BUSY, says("five"), **retries(1))
    assert [(call.tries, call.error is None) for call in trace.calls] == [(2, False), (3, True)]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_requests_that_failed_in_transit_are_made_again_out_of_one_budget(left: int) -> None:
    trace = play(Talk("And?"), RESET, says("five"), LATE, says("six"), **retries(left))
    assert why(trace) is [Reason.ENGINE_UNREACHABLE, Reason.ENGINE_TIMEOUT, Reason.FINAL_ANSWER][left]
    assert len(trace.calls) == 1 + left + (left > 0)


def test_a_broken_contract_is_never_asked_again() -> None:
    trace = play(Talk(), RolloutFailure(Reason.ENGINE_CONTRACT, "NaN"), says("five"), **retries(9))
    assert (why(trace), len(trace.calls)) == (Reason.ENGINE_CONTRACT, 1)


def test_an_aborted_turn_goes_on_behind_its_own_ids() -> None:
    engine = Engine(
        [part(0, 2, versions=((3, 2),)), RESET, part(2, 2), completion(WHOLE[2:], versions=((4, len(WHOLE) - 2),))]
    )
    trace = run(engine, **retries(1))
    (turn,) = trace.policy_nodes
    node = trace.graph[turn]
    assert node.sampled_ids.tolist() == WHOLE
    assert node.versions.tolist() == [[3, 2], [4, len(WHOLE) - 2]]
    assert [call.finish for call in trace.calls] == [Finish.ERROR, Finish.ABORT, Finish.ABORT, Finish.STOP]
    first = engine.requests[0].prompt
    assert [each.prompt for each in engine.requests] == [first, *3 * [first + WHOLE[:2]]]
    assert [each.sampling.seed for each in engine.requests] == [derive_seed(0, at) for at in range(4)]


def test_versions_that_one_segment_does_not_tell_are_not_told() -> None:
    trace = play(Talk(), part(0, 2), completion(WHOLE[2:], versions=((4, len(WHOLE) - 2),)))
    assert len(trace.graph[trace.policy_nodes[0]].versions) == 0


def test_a_failure_behind_some_segments_keeps_them() -> None:
    trace = play(Talk(), part(0, 3), RESET, **retries(0))
    assert why(trace) is Reason.ENGINE_UNREACHABLE
    assert trace.graph[trace.policy_nodes[0]].sampled_ids.tolist() == WHOLE[:3]


def test_a_deadline_behind_some_segments_keeps_them_and_is_the_ending() -> None:
    limits = msgspec.structs.replace(NO_LIMITS, deadline=0.2)
    trace = play(Talk(), part(0, 3), never, limits=limits)
    assert why(trace) is Reason.DEADLINE
    assert trace.graph[trace.policy_nodes[0]].sampled_ids.tolist() == WHOLE[:3]


def test_an_abort_at_the_limit_is_the_limit() -> None:
    trace = play(Talk(), part(0, 2), part(2, 4), limits=msgspec.structs.replace(NO_LIMITS, max_generation=4))
    assert why(trace).kind is EndingKind.LENGTH_CUT
    assert [call.sampling.max_tokens for call in trace.calls] == [4, 2]


@pytest.mark.parametrize(("left", "reason"), [(0, Reason.ENGINE_UNREACHABLE), (1, Reason.FINAL_ANSWER)])
def test_an_abort_under_a_stop_string_begins_again_out_of_the_budget(left: int, reason: Reason) -> None:
    engine = Engine([part(0, 2), completion(WHOLE)])
    trace = run(engine, sampling=Sampling(stop=("nowhere",)), **retries(left))
    assert why(trace) is reason
    assert len({tuple(each.prompt) for each in engine.requests}) == 1
    assert trace.calls[0].error is not None
    sampled = np.concatenate([node.sampled_ids for node in trace.graph])
    assert sampled.tolist() == (WHOLE if left else [])


@pytest.mark.parametrize("empty", [EMPTY_ABORTS - 1, EMPTY_ABORTS, EMPTY_ABORTS + 1])
def test_so_many_aborts_in_a_row_without_a_token_are_an_engine_that_goes_away(empty: int) -> None:
    """Tokens between two of them begin the count anew."""
    engine = Engine([part(0, 0), part(0, 2), *[part(2, 2)] * empty, completion(WHOLE[2:])])
    trace = run_skipping(attempt(Talk(), engine, **retries(9)))
    node = trace.graph[trace.policy_nodes[0]]
    if empty < EMPTY_ABORTS:
        assert (why(trace), node.sampled_ids.tolist()) == (Reason.FINAL_ANSWER, WHOLE)
        assert len(engine.requests) == empty + 3
    else:
        assert (why(trace), node.sampled_ids.tolist()) == (Reason.ENGINE_UNREACHABLE, WHOLE[:2])
        assert len(engine.requests) == EMPTY_ABORTS + 2
        assert f"aborted {EMPTY_ABORTS + 2} times" in detail(trace)
