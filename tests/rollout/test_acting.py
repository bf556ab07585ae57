"""What follows a reply: which calls run, in which order they are answered, and what ends the rollout."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from rollbook.envs import StepResult, tool
from rollbook.rollout import Limits
from rollbook.trace import (
    Ending,
    Fault,
    Finish,
    Message,
    ParseStatus,
    Reason,
    Role,
    RolloutFailure,
    ToolCall,
    Trace,
)
from tests.rollout.made import NO_LIMITS, Said, Talk, completion, ids_of, play, says, why

NO_RETRIES = msgspec.structs.replace(NO_LIMITS, request_retries=0)


def call(name: str, **arguments: Any) -> str:
    shown = ", ".join(f'"{key}": {value}' for key, value in arguments.items())
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{shown}}}}}\n</tool_call>'


class Lab(Talk):
    """Tools that do what tools do."""

    def __init__(self, *answers: str) -> None:
        super().__init__(*answers)
        self.ran: list[int] = []
        self.cancelled: list[str] = []
        self.at_once = 0
        self.most = 0

    @tool
    async def wait(self, n: int) -> str:
        """Waits longer the smaller `n` is, so that the last call is done first."""
        self.ran.append(n)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.02 / n)
        self.at_once -= 1
        return f"waited {n}"

    @tool
    async def raises(self) -> str:
        """Raises."""
        raise ValueError("no such file")

    @tool
    async def hangs(self) -> str:
        """Never returns."""
        try:
            await asyncio.sleep(1000)
        finally:
            self.cancelled.append("hangs")
        return ""

    @tool(timeout=0.02)
    async def slow(self) -> str:
        """Takes too long."""
        await asyncio.sleep(1000)
        return ""

    @tool
    async def gives(self, n: int) -> Any:
        """Gives something else than text."""
        return [{"a": [1, None]}, None, b"\xffab", float("nan"), StepResult(b"x", 0.5)][n]

    @tool(stop=True)
    async def submit(self, n: int) -> str:
        """Hands in."""
        return f"got {n}"

    @tool
    async def found(self, n: int) -> StepResult:
        """Sees the goal."""
        return StepResult(f"found {n}", float(n), Ending(Reason.GOAL_REACHED, "seen"))

    @tool
    async def earns(self, n: int) -> StepResult:
        """Gives a reward."""
        return StepResult("ok", n / 4)

    @tool
    async def loses(self) -> str:
        """Loses its host."""
        await asyncio.sleep(0)
        raise RolloutFailure(Reason.SANDBOX_LOST, "host down")

    @tool
    async def deaf(self) -> str:
        """Swallows its cancellation."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)
        return "late"


def results(trace: Trace) -> list[Message]:
    return [node.message for node in trace.graph if node.message.role is Role.TOOL]


def lab(*texts: str, env: Lab | None = None, **more: Any) -> tuple[Lab, Trace]:
    env = env or Lab()
    said: list[Said] = [says(text) for text in texts]
    return env, play(env, *said, **more)


def test_parallel_calls_run_at_once_and_are_answered_in_order() -> None:
    env, trace = lab("".join(call("wait", n=n) for n in (1, 2, 3)), "five")
    assert env.ran == [1, 2, 3]
    assert env.most == 3
    assert [each.content for each in results(trace)] == ["waited 1", "waited 2", "waited 3"]
    asked = trace.graph.messages[int(trace.policy_nodes[0])].tool_calls
    assert [each.call_id for each in results(trace)] == [each.id for each in asked]
    times = trace.tail.times
    assert times is not None
    assert times.overlapped > 0
    assert why(trace) is Reason.FINAL_ANSWER


def test_one_call_overlaps_nothing() -> None:
    _, trace = lab(call("wait", n=1), "five")
    times = trace.tail.times
    assert times is not None
    assert times.overlapped == 0
    assert times.tool >= 0.02


def test_calls_beyond_the_limit_are_answered_visibly() -> None:
    env, trace = lab("".join(call("wait", n=n) for n in (5, 6, 7)), "five", limits=Limits(max_parallel_calls=2))
    assert env.ran == [5, 6]
    first, second, third = results(trace)
    assert (first.content, second.content) == ("waited 5", "waited 6")
    assert third.content.startswith("error: not executed: only 2 calls")
    assert third.fault is Fault.POLICY


def test_bad_calls_beside_good_ones_are_answered_in_order_and_run_nothing() -> None:
    bad = "<tool_call>\n{bad json\n</tool_call>"
    text = call("nope") + call("wait", n=4) + bad + call("wait", n='"x"') + call("wait", n=5)
    env, trace = lab(text, "five")
    assert env.ran == [4, 5]
    asked = trace.graph.messages[int(trace.policy_nodes[0])].tool_calls
    assert [each.status for each in asked] == [
        ParseStatus.UNKNOWN_TOOL,
        ParseStatus.OK,
        ParseStatus.INVALID_JSON,
        ParseStatus.BAD_ARGUMENTS,
        ParseStatus.OK,
    ]
    answers = results(trace)
    assert [each.call_id for each in answers] == [each.id for each in asked]
    assert [each.content.startswith("error: ") for each in answers] == [True, False, True, True, False]


def test_calls_inside_reasoning_are_counted_and_nothing_more() -> None:
    env, trace = lab(f"<think>{call('wait', n=1)}</think>five")
    assert env.ran == []
    assert results(trace) == []
    assert why(trace) is Reason.FINAL_ANSWER
    assert env.log.count("step") == 1
    (asked,) = trace.graph.messages[-1].tool_calls
    assert asked.status is ParseStatus.INSIDE_REASONING

    env, trace = lab(f"<think>{call('wait', n=1)}</think>{call('wait', n=2)}", "five")
    assert env.ran == [2]
    assert [each.content for each in results(trace)] == ["waited 2"]


@pytest.mark.parametrize(("limit", "ran"), [(2, [1, 2]), (4, [1, 2, 3, 4]), (3, [1, 2])])
def test_a_reply_beyond_the_call_budget_executes_nothing(limit: int, ran: list[int]) -> None:
    two = call("wait", n=1) + call("wait", n=2)
    more = call("wait", n=3) + call("wait", n=4)
    env, trace = lab(two, more, "five", limits=Limits(max_tool_calls=limit))
    assert env.ran == ran
    assert why(trace) is (Reason.FINAL_ANSWER if limit == 4 else Reason.MAX_TOOL_CALLS)
    assert trace.reward == 1.0


def test_refused_calls_do_not_use_the_budget_up() -> None:
    env, trace = lab(call("nope") + call("wait", n=1), "five", limits=Limits(max_tool_calls=1))
    assert (env.ran, why(trace)) == ([1], Reason.FINAL_ANSWER)


@pytest.mark.parametrize(
    ("name", "starts"), [("raises", "error: raises: ValueError: no such file"), ("slow", "error: slow: did not return")]
)
def test_a_tool_that_breaks_is_an_observation(name: str, starts: str) -> None:
    _, trace = lab(call(name), "five")
    (answer,) = results(trace)
    assert answer.content.startswith(starts)
    assert answer.fault is Fault.ENVIRONMENT
    assert why(trace) is Reason.FINAL_ANSWER


@pytest.mark.parametrize(
    ("n", "content", "kind"),
    [(0, '{"a": [1, null]}', "dict"), (1, "null", "NoneType"), (2, "\\xffab", "bytes"), (4, "x", "bytes")],
)
def test_any_value_goes_through_the_one_conversion(n: int, content: str, kind: str) -> None:
    _, trace = lab(call("gives", n=n), "five")
    (answer,) = results(trace)
    assert (answer.content, answer.value_type, answer.fault) == (content, kind, None)
    assert answer.raw == (b"\xffab" if n == 2 else None)


def test_a_value_without_text_is_the_tools_fault() -> None:
    _, trace = lab(call("gives", n=3), "five")
    assert results(trace)[0].fault is Fault.ENVIRONMENT


def test_a_stop_tool_ends_it_and_its_result_is_recorded_first() -> None:
    env, trace = lab(call("wait", n=9) + call("submit", n=1), "never asked")
    assert (why(trace), len(trace.calls)) == (Reason.STOP_TOOL, 1)
    assert [each.content for each in results(trace)] == ["waited 9", "got 1"]
    assert env.log.count("step") == 0


def test_a_stop_tool_that_was_refused_ends_nothing() -> None:
    _, trace = lab(call("submit", n='"x"'), "five")
    assert why(trace) is Reason.FINAL_ANSWER


def test_of_two_endings_the_first_call_decides() -> None:
    _, trace = lab(call("found", n=1) + call("submit", n=1))
    assert why(trace) is Reason.GOAL_REACHED
    assert len(results(trace)) == 2


def test_step_rewards_go_to_the_turn_that_caused_them() -> None:
    _, trace = lab(call("earns", n=1) + call("earns", n=2), "hm", call("found", n=3), env=Lab("go on"))
    first, _, third = trace.policy_nodes.tolist()
    assert [(each.node, each.value) for each in trace.tail.turn_rewards] == [(first, 0.25), (first, 0.5), (third, 3.0)]


def test_a_lost_sandbox_ends_it_and_the_other_calls_are_cancelled() -> None:
    env, trace = lab(call("hangs") + call("loses") + call("wait", n=1), limits=Limits(wall=2.0))
    assert why(trace) is Reason.SANDBOX_LOST
    assert env.cancelled == ["hangs"]
    assert results(trace) == []
    assert trace.reward is None


@pytest.mark.parametrize("name", ["hangs", "deaf"])
def test_a_deadline_in_a_tool_is_measured_and_ends_the_tool(name: str) -> None:
    env, trace = lab(call(name), limits=Limits(deadline=0.05))
    assert why(trace) is Reason.DEADLINE
    assert results(trace) == []
    assert env.cancelled == (["hangs"] if name == "hangs" else [])


# Replies that the environment answers


def stepping(result: Any) -> Talk:
    class Steps(Talk):
        async def step(self, reply: Message) -> Any:
            if isinstance(result, BaseException):
                raise result
            return result

    return Steps()


@pytest.mark.parametrize("result", ["text", 7, {"observation": "x"}, StepResult(object()), ValueError("broke")])
def test_a_step_that_breaks_is_the_environments_error(result: Any) -> None:
    trace = play(stepping(result), says("five"))
    assert why(trace) is Reason.TOOL_SERVER
    assert trace.tail.turn_rewards == ()


def test_a_step_that_is_no_coroutine_is_the_environments_error() -> None:
    class Plain(Talk):
        def step(self, reply: Message) -> Any:  # type: ignore[override]
            raise ValueError("at once")

    assert why(play(Plain(), says("five"))) is Reason.TOOL_SERVER


def test_a_failure_from_a_step_keeps_its_reason() -> None:
    assert why(play(stepping(RolloutFailure(Reason.SANDBOX_LOST, "gone")), says("x"))) is Reason.SANDBOX_LOST


@pytest.mark.parametrize("shown", ["you won", ""])
def test_a_detected_ending_is_recorded_with_what_was_shown(shown: str) -> None:
    trace = play(stepping(StepResult(shown, 2.0, Ending(Reason.UNRECOVERABLE, "dead"))), says("five"))
    assert why(trace) is Reason.UNRECOVERABLE
    assert [each.value for each in trace.tail.turn_rewards] == [2.0]
    assert trace.graph.messages[-1].content == (shown or "five")


def test_a_step_behind_the_deadline_does_not_count() -> None:
    class Deaf(Talk):
        async def step(self, reply: Message) -> StepResult | None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            return None

    assert why(play(Deaf(), says("five"), limits=Limits(deadline=0.02))) is Reason.DEADLINE


def test_ids_of_calls_are_unique_in_a_trace() -> None:
    _, trace = lab(call("wait", n=9) + call("wait", n=9), call("wait", n=9), "five")
    made: list[ToolCall] = [each for node in trace.turns() for each in node.message.tool_calls]
    assert len({each.id for each in made}) == 3


def test_a_complete_call_in_a_turn_that_was_aborted_and_then_failed_executes_nothing() -> None:
    """What was sampled stands in the record; that the policy was done with it nobody knows."""
    aborted = completion(ids_of(call("wait", n=1), stop=False), Finish.ABORT)
    env = Lab()
    trace = play(env, aborted, RolloutFailure(Reason.ENGINE_UNREACHABLE, "connection reset"), limits=NO_RETRIES)
    assert why(trace) is Reason.ENGINE_UNREACHABLE
    (turn,) = trace.policy_nodes
    assert [each.name for each in trace.graph[turn].message.tool_calls] == ["wait"], "it is a whole call"
    assert trace.graph[turn].sampled_ids.tolist() == aborted.token_ids.tolist()
    assert (env.ran, results(trace)) == ([], [])
