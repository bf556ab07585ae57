"""One turn: what was sent is what is stored, a cut executes nothing, a broken contract commits nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.envs import StepResult, tool
from rollbook.errors import ConfigError
from rollbook.policy import Completion
from rollbook.render.protocol import Renderer, Rendering
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings, head_for, run_rollout
from rollbook.rollout.turn import LONG
from rollbook.trace import (
    ROOT,
    Ending,
    EndingKind,
    Finish,
    LogprobKind,
    MemorySink,
    Message,
    Origin,
    Reason,
    Role,
    RolloutFailure,
    RunKind,
    Sampling,
    ToolSpec,
    Trace,
    expand_runs,
    samples,
)
from tests.render.families import SMALL, family
from tests.rollout.made import (
    NO_LIMITS,
    SMOLLM,
    TASK,
    Engine,
    Talk,
    after,
    attempt,
    call,
    completion,
    cut,
    detail,
    ids_of,
    never,
    play,
    says,
    why,
)


class Adds(Talk):
    def __init__(self, *answers: str) -> None:
        super().__init__(*answers)
        self.ran: list[tuple[int, int]] = []

    @tool
    async def add(self, a: int, b: int) -> str:
        """Adds two numbers."""
        self.ran.append((a, b))
        return f"{a + b} <|im_end|>"


# What was sent is what is stored


def check_prompts(trace: Trace, engine: Engine) -> None:
    """Invariant 1: each prompt is the path's stored ids plus the generation scaffold of the node that followed."""
    graph = trace.graph
    assert len(trace.calls) == len(engine.requests)
    for made, asked in zip(trace.calls, engine.requests, strict=True):
        path = graph.path_ids(made.after).tolist()
        assert asked.prompt[: len(path)] == path
        scaffold = asked.prompt[len(path) :]
        if made.node is None:
            continue
        node = graph[made.node]
        assert node.parent == made.after
        kinds = expand_runs(node.runs)
        assert node.token_ids[kinds == RunKind.SCAFFOLD].tolist() == scaffold
        assert node.token_ids.tolist()[: len(scaffold)] == scaffold
        assert node.sampled_ids.tolist() == node.token_ids.tolist()[len(scaffold) :]


words = st.sampled_from(["the sum", "five", " ", "\n", "数学", "🙂", "<|im_end|>", "<think>", "A1"])
texts = st.lists(words, max_size=4).map("".join)
calls = st.sampled_from([call(), call(arguments='{"a": 1}'), call("nope"), "<tool_call>{", call() + call()])
replies = st.lists(texts | calls, min_size=1, max_size=3).map("".join)
endings = st.sampled_from(["stop", "string", "id"])


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=25, deadline=None)
@given(
    said=st.lists(st.tuples(replies, endings), min_size=1, max_size=5), last=endings | st.just("cut"), data=st.data()
)
def test_a_prompt_is_the_stored_path_and_the_scaffold(
    name: str, said: list[tuple[str, str]], last: str, data: st.DataObject
) -> None:
    chosen = family(name)
    said = [*said[:-1], (said[-1][0], last)]
    end_id = chosen.renderer.encode("Z").tolist()[-1]
    made: list[Completion] = []
    for text, how in said:
        ids = ids_of(text, chosen, stop=how == "stop")
        match how:
            case "id":
                made.append(completion([*ids, end_id]))
            case "string" if ids and ids[-1] not in (chosen.stop, end_id):
                made.append(completion(ids, Finish.STOP_STRING))
            case "cut" if ids:
                made.append(completion((ids * 40)[:40], Finish.LENGTH))
            case _:
                made.append(completion([*ids, chosen.stop] if how != "stop" else ids))
    answers = data.draw(st.lists(texts, min_size=len(said), max_size=len(said)))
    env, engine = Adds(*answers), Engine(made)
    sampling = Sampling(stop=("END",), stop_token_ids=(end_id,))
    limits = Limits(max_turns=len(made), max_generation=None if last != "cut" else 40)
    short = [each for each in made if len(each.token_ids) <= 40]
    trace = asyncio.run(attempt(env, engine, limits=limits, sampling=sampling, chosen=chosen))
    if last != "cut" or len(short) == len(made):
        check_prompts(trace, engine)
        assert trace.sealed
        assert sum(len(sample.token_ids[sample.sampled]) for sample in samples(trace)) == trace.graph.sampled_count


def test_a_turn_that_a_stop_string_ended_is_closed_by_force_before_the_next_message() -> None:
    engine = Engine([completion(ids_of("say STOP", stop=False), Finish.STOP_STRING), says("five")])
    env = Talk("go on")
    trace = asyncio.run(attempt(env, engine, sampling=Sampling(stop=("STOP",))))
    assert why(trace) is Reason.FINAL_ANSWER
    check_prompts(trace, engine)
    shown = trace.graph[trace.calls[1].after]
    assert expand_runs(shown.runs)[0] == RunKind.FORCED
    assert shown.token_ids[0] == SMOLLM.stop


def test_what_the_tool_prompt_adds_is_synthetic_and_never_trained() -> None:
    from_us = [node for node in play(Adds(), says("five")).graph if node.origin is Origin.SYNTHETIC]
    assert [node.message.role for node in from_us] == [Role.SYSTEM]


# Order: observations first


@pytest.mark.parametrize(
    ("limits", "context", "reason"),
    [
        (Limits(max_turns=1), 1 << 20, Reason.MAX_TURNS),
        (Limits(max_tokens=2), 1 << 20, Reason.MAX_TOKENS),
        (Limits(), 200, Reason.CONTEXT_OVERFLOW),
    ],
)
def test_the_last_observation_is_recorded_before_the_limit_ends_it(
    limits: Limits, context: int, reason: Reason
) -> None:
    two = ids_of("e")
    assert len(two) == 2
    env, engine = Talk("the last thing shown " * 40), Engine([completion(two)], context)
    trace = asyncio.run(attempt(env, engine, limits=limits))
    assert why(trace) is reason
    assert trace.graph.messages[-1].content == "the last thing shown " * 40
    assert len(engine.requests) == len(trace.calls) == 1


class Counted:
    """A renderer that tells what it extends, and in which thread."""

    def __init__(self, renderer: Renderer) -> None:
        self.extended: list[tuple[str, bool]] = []
        self.info, self.open, self.rerender = renderer.info, renderer.open, renderer.rerender
        self.parse, self.encode, self.decode = renderer.parse, renderer.encode, renderer.decode
        self._extend = renderer.extend

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        on_loop = threading.current_thread() is threading.main_thread()
        self.extended += [(message.content[:5], on_loop) for message in messages]
        return self._extend(last_id, messages, tools)


@pytest.mark.parametrize("long", [False, True])
def test_the_last_observation_is_rendered_once_and_a_long_one_never_on_the_loop(long: bool) -> None:
    renderer = Counted(SMOLLM.renderer)
    shown = "again" + " and again" * (LONG if long else 1)

    class Ends(Talk):
        async def step(self, reply: Message) -> StepResult | None:
            return StepResult(shown, ending=Ending(Reason.GOAL_REACHED))

    for env, limits in ((Talk(shown), Limits(max_turns=1)), (Ends(), Limits())):
        loaded = LoadedPolicy(Engine([says("five")]), renderer)
        head = head_for(env, TASK, loaded, group="g")
        trace = asyncio.run(run_rollout(env, head, loaded, RolloutSettings(limits=limits), seed=0))
        assert trace.graph.messages[-1].content == shown
        assert renderer.extended == [("again", not long)]
        renderer.extended.clear()


def test_a_prompt_without_room_sends_no_request() -> None:
    engine = Engine([says("five")], context_length=3)
    trace = asyncio.run(attempt(Talk(), engine))
    assert (why(trace), engine.requests, trace.calls) == (Reason.CONTEXT_OVERFLOW, [], [])
    assert trace.graph.messages[0].content == TASK.prompt


# The broken contract


def broken(**more: Any) -> Completion:
    return completion(ids_of("five"), **more)


COUNT = len(ids_of("five"))
ODD = {
    "too few logprobs": broken(logprobs=np.full(COUNT - 1, -1, np.float32)),
    "NaN": broken(logprobs=np.full(COUNT, np.nan, np.float32)),
    "minus infinity": broken(logprobs=np.full(COUNT, -np.inf, np.float32)),
    "above zero": broken(logprobs=np.full(COUNT, 0.5, np.float32)),
    "float64 logprobs": broken(logprobs=np.full(COUNT, -0.5, np.float64)),
    "int64 ids": broken(token_ids=np.array(ids_of("five"), np.int64)),
    "negative id": broken(token_ids=np.array([-1, *ids_of("five")[1:]], np.int32)),
    "beyond the vocabulary": broken(token_ids=np.array([10**6, *ids_of("five")[1:]], np.int32)),
    "prompt count": broken(prompt_tokens=1),
    "versions too short": broken(versions=((3, COUNT - 1),)),
    "negative versions": broken(versions=((3, COUNT + 1), (4, -1))),
    "rescored beyond": broken(rescored=np.array([COUNT], np.int32)),
    "rescored falls": broken(rescored=np.array([1, 0], np.int32)),
    "int64 rescored": broken(rescored=np.array([0], np.int64)),
    "nothing": completion([]),
    "no stop token": completion(ids_of("five", stop=False)),
    "a stop string nobody asked for": completion(ids_of("five", stop=False), Finish.STOP_STRING),
    "short of the limit": completion(ids_of("five", stop=False), Finish.LENGTH),
    "more than asked": completion(ids_of("five " * 600)),
    "an error as a reply": completion([], Finish.ERROR),
    "an error with tokens": completion(ids_of("five"), Finish.ERROR),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("first", [True, False], ids=["first turn", "second turn"])
def test_a_broken_contract_is_an_error_and_commits_nothing(name: str, first: bool) -> None:
    sink = MemorySink()
    said = [ODD[name]] if first else [says("two"), ODD[name]]
    trace = play(Talk("go on"), *said, sink=sink, limits=Limits(max_generation=512))
    assert why(trace) is Reason.ENGINE_CONTRACT
    *fine, failed = trace.calls
    assert (failed.node, failed.finish) == (None, Finish.ERROR)
    assert failed.error
    assert failed.after == len(trace.graph) - 1
    assert len(trace.policy_nodes) == len(fine) == (0 if first else 1)
    assert trace.sealed
    assert trace.id in sink.sealed
    assert trace.reward is None


def test_the_sampling_is_kept_as_it_was_sent() -> None:
    engine = Engine([says("a"), says("b")])
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=3, stop=("X",))
    limits = Limits(max_generation=50, max_tokens=52)
    trace = asyncio.run(attempt(Talk("go on"), engine, sampling=sampling, limits=limits))
    assert [made.sampling for made in trace.calls] == [asked.sampling for asked in engine.requests]
    assert {made.sampling.transform for made in trace.calls} == {sampling.transform}
    used = len(ids_of("a"))
    assert [made.sampling.max_tokens for made in trace.calls] == [50, 52 - used]
    assert {asked.session for asked in engine.requests} == {trace.id}


# Cuts and aborts


@pytest.mark.parametrize(
    ("limits", "context", "reason"),
    [
        (Limits(max_generation=9), 1 << 20, Reason.GENERATION_LIMIT),
        (Limits(max_generation=9, max_tokens=9), 1 << 20, Reason.GENERATION_LIMIT),
        (Limits(max_generation=10, max_tokens=9), 1 << 20, Reason.MAX_TOKENS),
        (Limits(max_generation=10), None, Reason.CONTEXT_OVERFLOW),
    ],
)
@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
def test_a_cut_is_named_by_the_limit_that_was_binding(
    limits: Limits, context: int | None, reason: Reason, finish: Finish
) -> None:
    prompt = len(SMOLLM.renderer.open(TASK.messages(), ()).messages[0].token_ids)
    prompt += len(SMOLLM.renderer.open(TASK.messages(), ()).prompt_ids)
    said = completion(cut(9).token_ids.tolist(), finish)
    trace = play(Talk("more"), said, limits=limits, context_length=context or prompt + 9)
    assert why(trace) is reason
    assert trace.ending is not None
    assert trace.ending.kind is (EndingKind.LENGTH_CUT if reason is Reason.GENERATION_LIMIT else EndingKind.TRUNCATED)
    assert trace.graph.sampled_count == 9
    assert trace.calls[0].finish is Finish.LENGTH
    assert trace.reward == 1.0, "the normal scorer ran on the final state"


def test_a_turn_that_ends_itself_at_the_very_limit_is_whole() -> None:
    ids = ids_of("five")
    trace = play(Talk(), completion(ids, Finish.LENGTH), limits=Limits(max_generation=len(ids)))
    assert (why(trace), trace.calls[0].finish) == (Reason.FINAL_ANSWER, Finish.STOP)


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.ABORT])
def test_a_cut_turn_executes_nothing_not_even_complete_calls(finish: Finish) -> None:
    ids = ids_of(f"{call()}\n{call()[:30]}", stop=False)
    env = Adds()
    trace = play(env, completion(ids, finish), limits=Limits(max_generation=len(ids)))
    assert env.ran == []
    assert env.log.count("step") == 0
    (turn,) = trace.turns()
    assert [str(each.status) for each in turn.message.tool_calls] == ["ok", "cut"]
    assert why(trace) is Reason.GENERATION_LIMIT, "an abort right at the limit is a cut by the limit"
    assert len(turn.sampled_ids) == len(ids)


def test_an_abort_keeps_partial_tokens_even_behind_a_stop_token() -> None:
    trace = play(Talk(), completion(ids_of("five"), Finish.ABORT, engine_finish="shutdown"))
    assert why(trace) is Reason.ENGINE_UNREACHABLE
    assert "shutdown" in detail(trace)
    assert trace.graph.sampled_count == COUNT
    assert (trace.calls[0].node, trace.calls[0].finish) == (1, Finish.ABORT)


def test_an_abort_before_the_first_token_leaves_a_call_without_a_node() -> None:
    trace = play(Talk(), completion([], Finish.ABORT), RolloutFailure(Reason.ENGINE_CONTRACT, "NaN"))
    assert why(trace) is Reason.ENGINE_CONTRACT
    assert (trace.calls[0].node, trace.calls[1].node, len(trace.policy_nodes)) == (None, None, 0)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("HTTP 400"), "HTTP 400"),
        (ValueError("broke"), "the policy: ValueError: broke"),
        (TimeoutError("late"), "the policy: TimeoutError: late"),
    ],
)
def test_what_was_sampled_is_kept_where_the_engine_refuses_to_go_on(error: Exception, told: str) -> None:
    """Also where one's own policy breaks."""
    partial = completion(ids_of("fi", stop=False), Finish.ABORT)
    trace = play(Talk(), partial, error)
    assert why(trace) is Reason.INTERNAL
    assert told in detail(trace)
    assert trace.graph.sampled_count == len(partial.token_ids)
    assert [(call.finish, call.error) for call in trace.calls] == [(Finish.ERROR, told), (Finish.ABORT, None)]


def test_aborts_under_a_stop_string_are_calls_of_the_record_each() -> None:
    """Also where one before the first token came first and the budget ends behind it."""
    aborted = completion(ids_of("fi", stop=False), Finish.ABORT)
    limits = Limits(request_retries=1)
    trace = play(Talk(), completion([], Finish.ABORT), aborted, aborted, limits=limits, sampling=Sampling(stop=("x",)))
    assert (why(trace), trace.graph.sampled_count) == (Reason.ENGINE_UNREACHABLE, 0)
    assert [call.finish for call in trace.calls] == [Finish.ERROR, Finish.ERROR, Finish.ABORT]


@pytest.mark.parametrize("reason", [Reason.ENGINE_TIMEOUT, Reason.RATE_LIMITED, Reason.ENGINE_UNREACHABLE])
def test_a_failing_engine_is_that_error_with_its_call(reason: Reason) -> None:
    trace = play(Talk(), RolloutFailure(reason, "HTTP 503"))
    assert (why(trace), detail(trace)) == (reason, "HTTP 503")
    assert "HTTP 503" in (trace.calls[0].error or "")


def test_a_request_that_the_engine_refuses_is_loud_and_kept() -> None:
    trace = play(Talk(), ConfigError("no such grammar"))
    assert why(trace) is Reason.INTERNAL
    assert "Traceback" in trace.tail.errors[0].text
    assert trace.calls[0].error == "no such grammar"


@pytest.mark.parametrize("bug", [ZeroDivisionError("oops"), TimeoutError("oops")])
def test_a_bug_in_a_policy_is_loud(bug: Exception) -> None:
    trace = play(Talk(), bug, limits=Limits())
    assert why(trace) is Reason.INTERNAL
    (note,) = trace.tail.errors
    assert "Traceback" in note.text
    assert f"{type(bug).__name__}: oops" in note.text


# Time


def test_a_deadline_in_a_call_is_measured_and_the_call_is_kept() -> None:
    trace = play(Talk(), never, limits=Limits(deadline=0.05))
    assert why(trace) is Reason.DEADLINE
    measured = float(detail(trace).split()[0])
    assert 0.05 <= measured < 20
    assert "limit 0.05 s" in detail(trace)
    assert (trace.calls[0].node, trace.calls[0].finish) == (None, Finish.ERROR)


def test_an_engine_that_swallows_its_cancellation_answers_too_late() -> None:
    async def deaf() -> Completion:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)
        return says("five")

    trace = play(Talk(), deaf, limits=Limits(deadline=0.02))
    assert (why(trace), len(trace.policy_nodes)) == (Reason.DEADLINE, 0)


def test_an_engine_that_fails_because_it_was_cancelled_did_not_fail() -> None:
    async def sulks() -> Completion:
        try:
            return await never()
        except asyncio.CancelledError:
            raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "cancelled") from None

    assert why(play(Talk(), sulks, limits=Limits(deadline=0.02))) is Reason.DEADLINE


@pytest.mark.parametrize("queue", [0.4, None])
def test_the_engines_queue_is_not_charged(queue: float | None) -> None:
    slow = after(0.2, says("go", queue=queue))
    trace = play(Talk("a", "b"), slow, limits=Limits(deadline=0.5))
    assert why(trace) is (Reason.FINAL_ANSWER if queue else Reason.DEADLINE)
    assert (len(trace.policy_nodes) == 3) is (queue is not None)


def test_a_queue_longer_than_the_call_gives_no_time_back() -> None:
    slow = after(0.03, says("go", queue=1000.0))
    trace = play(Talk("a"), slow, never, limits=Limits(deadline=0.1, wall=2.0))
    assert why(trace) is Reason.DEADLINE


def test_what_the_engine_reports_goes_into_the_split() -> None:
    trace = play(Talk("a"), says("x", prefill=0.5, decode=1.0), says("y", prefill=0.25, decode=None))
    times = trace.tail.times
    assert times is not None
    assert (times.engine_queue, times.engine_prefill, times.engine_decode) == (None, 0.75, 1.0)


# Seeds


def seeds(seed: int) -> list[int | None]:
    engine = Engine([says("x")])
    asyncio.run(attempt(Talk("a", "b", "c"), engine, seed=seed))
    return [asked.sampling.seed for asked in engine.requests]


def test_each_call_has_its_own_seed_and_the_same_one_again() -> None:
    assert seeds(1) == seeds(1)
    found = seeds(1) + seeds(2)
    assert len(set(found)) == len(found) == 8
    assert all(seed is not None and 0 <= seed < 2**31 for seed in found)


def test_logprobs_and_versions_are_the_engines_own() -> None:
    said = says("five", versions=((3, 1), (4, COUNT - 1)), cached_tokens=7, prompt_tokens=None, tries=2)
    trace = play(Talk(), said)
    (turn,) = trace.turns()
    assert turn.logprobs is not None
    assert turn.logprobs.tobytes() == said.logprobs.tobytes()
    assert turn.versions.tolist() == [[3, 1], [4, COUNT - 1]]
    (made,) = trace.calls
    assert (made.cached_tokens, made.prompt_tokens, made.tries) == (7, None, 2)
    assert (made.logprob_kind, made.engine_finish, made.after) == (LogprobKind.RAW, said.engine_finish, turn.parent)
    assert made.after != ROOT


def test_a_message_that_the_template_cannot_write_ends_the_rollout_as_refused() -> None:
    class Shows(Talk):
        async def step(self, reply: Message) -> StepResult | None:
            raise AssertionError("not reached")

        async def setup(self, task: Any) -> Sequence[Message]:
            bad = Message(role=Role.ASSISTANT, tool_calls=says_call())
            return [bad]

    trace = play(Shows(), says("x"))
    assert why(trace) is Reason.TEMPLATE_REFUSED
    assert "did not parse" in detail(trace)
    assert (trace.reward, trace.calls) == (None, [])
    assert [len(node.token_ids) for node in trace.graph] == [0], "what was shown is kept, without tokens"


def says_call() -> Any:
    parsed = SMOLLM.renderer.parse(
        np.array(ids_of("<tool_call>{"), np.int32), (), inside_reasoning=False, cut=False, call_prefix="c"
    )
    return parsed.message.tool_calls


def test_without_limits_the_context_alone_decides() -> None:
    engine = Engine([says("x")], context_length=500)
    asyncio.run(attempt(Talk(), engine, limits=NO_LIMITS))
    (asked,) = engine.requests
    assert asked.sampling.max_tokens == 500 - len(asked.prompt)
