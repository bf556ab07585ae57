"""Live numbers of a run for Prometheus, on a port of this machine.

Rules: every number comes from the last snapshot that the run told, at the moment when it is asked for, so nothing is
counted twice and a rollout costs nothing; names that OpenTelemetry's semantic conventions for generative AI have
(v1.36) are spelled as Prometheus spells them, the others begin with ``rollbook_``. This module alone imports
`prometheus_client` (the extra ``metrics``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rollbook.errors import UsageError
from rollbook.rollout import Histogram, Phase, Snapshot
from rollbook.rollout.limiter import LimiterStats

__all__ = ["LOOPBACK", "LiveMetrics"]

LOOPBACK = "127.0.0.1"
"""Where the port listens unless told otherwise: programs of this machine alone."""

_LIMITERS: Mapping[str, tuple[str, str]] = {
    "in_use": ("rollbook_limiter_in_use", "Slots that are held"),
    "waiting": ("rollbook_limiter_waiting", "Entries that wait for a slot, the end of a pause or the rate"),
    "limit": ("rollbook_limiter_limit", "Slots; no sample where there is no limit"),
}


class LiveMetrics(Collector):
    """Serves the last snapshot that it was given. A context manager: inside, the port listens."""

    def __init__(self, port: int, address: str = LOOPBACK, policy: str = "") -> None:
        """`port`: 0 takes a free one. `policy`: the name that the requests' metrics bear as their model."""
        self._asked, self._policy = (port, address), policy
        self._last = Snapshot()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._server: tuple[WSGIServer, threading.Thread] | None = None

    def __enter__(self) -> LiveMetrics:
        port, address = self._asked
        try:
            self._server = start_http_server(port, address, self._registry)
        except OSError as error:
            raise UsageError(f"metrics cannot be served on {address}:{port}: {error}; choose another port") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    @property
    def port(self) -> int:
        """The port that listens."""
        return self._asked[0] if self._server is None else self._server[0].server_port

    def snapshot(self, snapshot: Snapshot) -> None:
        """How things stand now."""
        self._last = snapshot

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        last = self._last
        yield _counter("rollbook_rollouts_started", "Rollouts that began", last.started)
        yield _by(
            "rollbook_rollouts_ended",
            "Rollouts that are over, by reason",
            "reason",
            {str(why): count for why, count in last.endings.items()},
        )
        flight = GaugeMetricFamily("rollbook_rollouts_in_flight", "Rollouts that run, by phase", labels=["phase"])
        for phase in Phase:
            flight.add_metric([phase], last.phases.get(phase, 0))
        yield flight
        yield _counter("rollbook_turns", "Replies that were recorded", last.turns)
        yield _counter("rollbook_sampled_tokens", "Sampled tokens", last.tokens)
        yield _counter("rollbook_tool_calls", "Tool calls that executed", last.tool_calls)
        yield _counter("rollbook_requests_failed", "Requests to the engine that gave nothing", last.calls.failed)
        yield _counter("rollbook_requests_repeated", "Requests to the engine behind the first try", last.calls.repeated)
        yield _counter("rollbook_reward_sum", "Rewards, added up", last.rewards)
        yield _counter("rollbook_reward_count", "Rollouts with a reward", last.rewarded)
        if last.oldest is not None:
            name = "rollbook_oldest_rollout_start_time_seconds"
            yield GaugeMetricFamily(name, "When the oldest rollout in flight began, Unix time", last.oldest)
        yield from _limiters(last.limiters)
        yield _histogram("rollbook_event_loop_lag_seconds", "Lateness of the event loops", {(): last.lag}, ())
        yield from self._requests()

    def _requests(self) -> Iterator[Metric]:
        """Under the names of the semantic conventions, with the attributes that they require."""
        calls, labels = self._last.calls, ("gen_ai_operation_name", "gen_ai_request_model")
        chat = ("chat", self._policy)
        yield _histogram(
            "gen_ai_client_operation_duration_seconds", "From request to reply", {chat: calls.seconds}, labels
        )
        yield _histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "Queue and prefill, where the engine reports both",
            {chat: calls.first_token},
            labels,
        )
        usage = {(*chat, "input"): calls.prompt_tokens, (*chat, "output"): calls.sampled_tokens}
        yield _histogram(
            "gen_ai_client_token_usage", "Tokens of a request and of its reply", usage, (*labels, "gen_ai_token_type")
        )


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value)


def _by(name: str, help_text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for key, count in counts.items():
        family.add_metric([key], count)
    return family


def _limiters(stats: Iterable[LimiterStats]) -> Iterator[Metric]:
    rows = list(stats)
    for field, (name, help_text) in _LIMITERS.items():
        family = GaugeMetricFamily(name, help_text, labels=["resource"])
        for row in rows:
            value = {"in_use": row.in_use, "waiting": row.waiting, "limit": row.limit}[field]
            if value is not None:
                family.add_metric([row.name], value)
        yield family
    waited = CounterMetricFamily("rollbook_limiter_waited_seconds", "Seconds waited", labels=["resource"])
    paused = CounterMetricFamily("rollbook_limiter_paused_seconds", "Seconds closed", labels=["resource"])
    for row in rows:
        waited.add_metric([row.name], row.waited)
        paused.add_metric([row.name], row.paused)
    yield waited
    yield paused


def _histogram(
    name: str, help_text: str, found: Mapping[tuple[str, ...], Histogram], labels: tuple[str, ...]
) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for key, histogram in found.items():
        bounds = [f"{bound:.6g}" for bound in histogram.bounds.values()]
        counts = histogram.counts or [0] * (len(bounds) + 1)
        seen, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip([*bounds, "+Inf"], counts, strict=True):
            seen += count
            buckets.append((bound, seen))
        family.add_metric(list(key), buckets, histogram.total)
    return family
