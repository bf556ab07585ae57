"""Mutants of what rollouts share: limiters, rates, own time, snapshots, work beside the loop, the breaker."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """`file` is below ``src/rollbook/rollout``, `test` below ``tests``."""
    return Mutant(name, f"rollout/{file}.py", snippet, replacement, f"tests/{test}")


SHARED = "rollout/test_resources.py::test_waiting_for_a_slot_is_the_limiters_and_no_step_runs_out_of_time_by_it"

MUTANTS = [
    mutant(
        "nothing at all cuts a generation",
        "limits",
        "        if not choices:\n            raise",
        "        if not choices:\n            return Allowance(1 << 31, Reason.CONTEXT_OVERFLOW)\n            raise",
        "rollout/test_limits.py::test_a_context_that_is_not_known_cuts_nothing",
    ),
    Mutant(
        "a context of unknown length is overrun",
        "policy/check.py",
        "if length is None or length > MOST_OVERFLOW:",
        "length = length or 0\n    if length > MOST_OVERFLOW:",
        "tests/policy/test_check.py::test_a_context_of_unknown_length_keeps_the_other_promises",
    ),
    mutant(
        "a pause lets everybody in",
        "limiter",
        "while (left := self._opens - monotonic()) > 0:  #",
        "while (left := self._opens - monotonic()) > 1e9:  #",
        "rollout/test_limiter.py::test_a_pause_lets_nobody_in_and_the_longer_one_stays",
    ),
    mutant(
        "all come back at once behind a pause",
        "limiter",
        "left + self._random.uniform(0.0, self._spread)",
        "left",
        "rollout/test_limiter.py::test_who_was_turned_away_together_does_not_come_back_together",
    ),
    mutant(
        "a slot is lost to a cancellation before the entry",
        "limiter",
        "            self._slots.release()\n            raise",
        "            raise",
        "rollout/test_limiter.py::test_a_cancellation_at_any_moment_leaves_no_trace",
    ),
    mutant(
        "grants are not counted",
        "rates",
        "if len(grants) >= count:",
        "if False:",
        "rollout/test_rates.py::test_a_burst_comes_at_once_and_single_grants_evenly",
    ),
    mutant(
        "own time goes on while calls wait",
        "own_time",
        "        if part is not Part.LIMITER:\n            self._run()",
        "        if True:\n            self._run()",
        SHARED,
    ),
    mutant(
        "set-up takes no slot",
        "rollout",
        "async with state.resources.sandbox.slot():",
        "async with state.resources.judge.slot():",
        SHARED,
    ),
    mutant(
        "scoring takes no slot",
        "rollout",
        "async with state.resources.scoring.slot():",
        "async with state.resources.judge.slot():",
        SHARED,
    ),
    mutant(
        "a late tick counts once",
        "lag",
        "range(int(late / TICK) + 1)",
        "range(1)",
        "rollout/test_lag.py::test_a_late_tick_counts_for_those_that_it_kept_from_coming",
    ),
    mutant(
        "the breaker opens before enough have ended",
        "breaker",
        "len(self._last) >= self._rules.least and ",
        "",
        "rollout/test_breaker.py::test_it_opens_for_the_share_of_errors_among_the_last",
    ),
    Mutant(
        "a cancelled call leaves its process running",
        "envs/process_pool.py",
        "            except BaseException:\n                server.kill()\n                raise",
        "            except BaseException:\n                raise",
        "tests/envs/test_offloop.py::test_a_cancelled_call_kills_its_process",
    ),
    Mutant(
        "a plain scorer runs on the loop",
        "envs/scorer.py",
        "if not is_plain(env.score):\n        return await env.score(trace)\n    given = await off_loop("
        'cast("Callable[[Trace], object]", env.score), trace)',
        "if not is_plain(env.score):\n        return await env.score(trace)\n    given: object = env.score(trace)",
        "tests/envs/test_offloop.py::test_a_plain_scorer_runs_in_a_thread_and_is_accepted",
    ),
]
