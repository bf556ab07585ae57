"""Live numbers: what Prometheus reads is what the last snapshot said, on this machine alone."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rollbook.errors import UsageError
from rollbook.rollout import Phase, ResourceLimit, Snapshot
from rollbook.rollout.limiter import LimiterStats
from rollbook.run.metrics import LiveMetrics
from rollbook.trace import Reason


def snapshot() -> Snapshot:
    engine = LimiterStats(name="engine", limit=4, in_use=3, waiting=2, peak=4, entered=9, waited=1.5, paused=0.5)
    tool = LimiterStats(name="tool:a", limit=None, in_use=1, waiting=0, peak=1, entered=1, waited=0.0, paused=0.0)
    made = Snapshot(
        phases={Phase.SAMPLING: 3},
        started=12,
        endings={Reason.FINAL_ANSWER: 7, Reason.MAX_TURNS: 1},
        turns=30,
        tokens=400,
        rewarded=7,
        rewards=3.5,
        oldest=1700.5,
        limiters=(engine, tool),
    )
    made.calls.prompt_tokens.add(100)
    made.calls.sampled_tokens.add(5)
    made.calls.seconds.add(0.25)
    made.calls.failed = 2
    made.lag.add(0.003)
    return made


def read(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_read_is_the_last_snapshot() -> None:
    with LiveMetrics(0, policy="vllm:x") as metrics:
        assert read(metrics.port)["rollbook_rollouts_started_total", ()] == 0
        metrics.snapshot(Snapshot(started=1))
        metrics.snapshot(snapshot())
        found = read(metrics.port)
    assert found["rollbook_rollouts_started_total", ()] == 12
    assert found["rollbook_rollouts_ended_total", (("reason", "final_answer"),)] == 7
    assert found["rollbook_rollouts_in_flight", (("phase", "sampling"),)] == 3
    assert found["rollbook_rollouts_in_flight", (("phase", "setup"),)] == 0
    assert found["rollbook_sampled_tokens_total", ()] == 400
    assert found["rollbook_requests_failed_total", ()] == 2
    assert found["rollbook_reward_sum_total", ()] == 3.5
    assert found["rollbook_oldest_rollout_start_time_seconds", ()] == 1700.5
    assert found["rollbook_limiter_waiting", (("resource", "engine"),)] == 2
    assert found["rollbook_limiter_waited_seconds_total", (("resource", "engine"),)] == 1.5
    assert ("rollbook_limiter_limit", (("resource", "tool:a"),)) not in found
    assert found["rollbook_event_loop_lag_seconds_count", ()] == 1


def test_requests_bear_the_names_of_the_semantic_conventions() -> None:
    with LiveMetrics(0, policy="vllm:x") as metrics:
        metrics.snapshot(snapshot())
        found = read(metrics.port)
    chat = (("gen_ai_operation_name", "chat"), ("gen_ai_request_model", "vllm:x"))
    assert found["gen_ai_client_token_usage_sum", (*chat, ("gen_ai_token_type", "input"))] == 100
    assert found["gen_ai_client_token_usage_sum", (*chat, ("gen_ai_token_type", "output"))] == 5
    assert found["gen_ai_client_operation_duration_seconds_sum", chat] == 0.25
    assert found["gen_ai_server_time_to_first_token_seconds_count", chat] == 0
    buckets = [
        value
        for (name, labels), value in found.items()
        if name == "gen_ai_client_token_usage_bucket" and ("gen_ai_token_type", "input") in labels
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1


def test_it_listens_to_this_machine_alone_and_frees_the_port() -> None:
    with LiveMetrics(0) as metrics:
        port = metrics.port
        with pytest.raises(UsageError, match="choose another port"), LiveMetrics(port):
            pass
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    assert ResourceLimit().limit is None
