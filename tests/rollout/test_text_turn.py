"""Whole rollouts over a text-only endpoint."""

import asyncio
import io
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from rollbook.audit import audit_traces
from rollbook.cli.trace_view import show_trace
from rollbook.envs import Environment, StepResult, tool
from rollbook.errors import RecordError, UsageError
from rollbook.export import export
from rollbook.policy import EngineBusy, PolicyInfo
from rollbook.policy.endpoint import TextCall, TextEndpoint, TextReply
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings, rollout
from rollbook.rollout.text_turn import read_calls
from rollbook.store import RunReader, RunWriter
from rollbook.trace import (
    Finish,
    LogprobKind,
    MemorySink,
    Message,
    Origin,
    ParseStatus,
    Reason,
    Role,
    RolloutFailure,
    Sampling,
    Task,
    ToolSpec,
    samples,
)
from rollbook.trace.wire import encode_head, encode_part, encode_tail
from tests.policy.text_server import Endpoint, connected, said
from tests.rollout.made import SMOLLM, Engine, says


def reply(text="ok", *, calls=(), finish=Finish.STOP, tokens=3, prompt=7, reasoning=None):
    return TextReply(
        message=Message(role=Role.ASSISTANT, content=text, reasoning=reasoning),
        calls=tuple(TextCall(f"c{at}", name, text) for at, (name, text) in enumerate(calls)),
        finish=finish, engine_finish=str(finish), prompt_tokens=prompt, completion_tokens=tokens,
    )  # fmt: skip


@dataclass
class Speaker(TextEndpoint):
    """Says what it is told to, in order."""

    script: list
    context_length: int | None = None
    asked: list = field(default_factory=list)

    @property
    def info(self):
        return PolicyInfo(
            name="text:x#m", engine="e", context_length=self.context_length, logprob_kind=LogprobKind.UNKNOWN
        )

    async def start(self):
        pass

    async def close(self):
        pass

    async def reply(self, messages, tools, sampling, session):
        self.asked.append((tuple(messages), tuple(tools), sampling, session))
        answer = self.script.pop(0)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Adding(Environment):
    """Has one tool."""

    name = "adding"

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def score(self, trace):
        return 1.0


class Asking(Environment):
    """Asks on, so many times."""

    def __init__(self, times=2):
        self.times = times

    async def step(self, reply):
        self.times -= 1
        return StepResult("go on") if self.times >= 0 else None

    async def score(self, trace):
        return 0.5


def play(env, *script, limits=None, context_length=None, sampling=None, sink=None):
    speaker = Speaker(list(script), context_length)
    settings = RolloutSettings(limits=limits or Limits(), sampling=sampling or Sampling())
    task = Task(id="t", prompt="what is 1 + 2?")
    trace = asyncio.run(rollout(lambda: env, task, LoadedPolicy(speaker), settings=settings, sink=sink))
    return trace, speaker


def test_a_whole_rollout_with_tools_holds_messages_and_no_ids():
    call = reply("", calls=[("add", '{"a": 1, "b": 2}'), ("add", "{"), ("fly", "{}")], reasoning="add them")
    trace, speaker = play(Adding(), call, reply("3", prompt=20, tokens=4))
    assert (trace.ending.reason, trace.reward) == (Reason.FINAL_ANSWER, 1.0)
    assert (trace.head.tokens, trace.head.tools_rendered, len(trace.graph.tokens)) == (False, None, 0)
    assert not trace.head.policies[0].trainable
    statuses = [made.status for made in trace.graph.messages[1].tool_calls]
    assert statuses == [ParseStatus.OK, ParseStatus.INVALID_JSON, ParseStatus.UNKNOWN_TOOL]
    assert trace.graph.messages[1].reasoning == "add them"
    results = trace.graph.messages[2:5]
    assert [(message.call_id, message.role) for message in results] == [(f"c{at}", Role.TOOL) for at in range(3)]
    assert results[0].content == "3"
    assert [trace.graph.origin(node) for node in range(3)] == [Origin.USER, Origin.POLICY, Origin.ENVIRONMENT]
    messages, tools, sampling, session = speaker.asked[1]
    assert (len(messages), tools[0].name, session) == (5, "add", trace.id)
    assert sampling.max_tokens == Limits().max_generation
    calls = [(made.node, made.after, made.logprob_kind, made.prompt_tokens) for made in trace.calls]
    assert calls == [(1, 0, None, 7), (5, 4, None, 20)]
    assert [made.completion_tokens for made in trace.calls] == [3, 4]
    assert speaker.asked[0][2].seed != sampling.seed


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_turns=1), Reason.MAX_TURNS),
        (Limits(max_tokens=3), Reason.MAX_TOKENS),
        (Limits(deadline=1e-9), Reason.DEADLINE),
    ],
)
def test_limits_count_what_the_endpoint_counted(limits, reason):
    trace, _ = play(Asking(), reply(), reply(), reply(), limits=limits)
    assert trace.ending.reason is reason
    assert trace.graph.messages[-1].content in ("go on", "what is 1 + 2?")  # the last observation is never lost


def test_the_last_prompt_says_what_the_next_has_at_least():
    trace, _ = play(Asking(), reply(prompt=50), context_length=50)
    assert trace.ending.reason is Reason.CONTEXT_OVERFLOW
    trace, _ = play(Asking(), reply(), RolloutFailure(Reason.CONTEXT_OVERFLOW, "too long"))
    assert trace.ending.reason is Reason.CONTEXT_OVERFLOW
    assert (trace.calls[1].node, trace.calls[1].finish) == (None, Finish.ERROR)


def test_a_cut_reply_executes_nothing():
    trace, speaker = play(Adding(), reply("", calls=[("add", '{"a": 1'), ("add", "{}")], finish=Finish.LENGTH))
    assert trace.ending.reason is Reason.GENERATION_LIMIT
    assert [made.status for made in trace.answer.tool_calls] == [ParseStatus.CUT, ParseStatus.BAD_ARGUMENTS]
    assert len(speaker.asked) == 1


def test_tokens_that_nobody_counts_cannot_be_limited():
    trace, _ = play(Asking(0), reply(tokens=None), limits=Limits(max_tokens=5))
    assert trace.ending.reason is Reason.ENGINE_CONTRACT
    trace, _ = play(Asking(0), reply(tokens=None, prompt=None))
    assert (trace.ending.reason, trace.calls[0].completion_tokens) == (Reason.FINAL_ANSWER, None)


def test_a_filtered_reply_is_no_turn_and_an_aborted_one_is_asked_again():
    trace, _ = play(Asking(0), reply("half", finish=Finish.ERROR))
    assert (trace.ending.reason, len(trace.policy_nodes)) == (Reason.ENGINE_CONTRACT, 0)
    trace, _ = play(Asking(0), reply("half", finish=Finish.ABORT), reply("whole"))
    assert (trace.ending.reason, trace.text) == (Reason.FINAL_ANSWER, "whole")
    assert [made.node for made in trace.calls] == [None, 1]


def test_an_error_of_the_endpoints_own_code_is_a_call_of_the_record():
    trace, _ = play(Environment(), ValueError("broke"))
    assert trace.ending.reason is Reason.INTERNAL
    assert [(call.node, call.error) for call in trace.calls] == [(None, "the policy: ValueError: broke")]


def test_a_busy_endpoint_is_waited_for_and_counted():
    busy = EngineBusy(Reason.RATE_LIMITED, "later", 0.01)
    trace, _ = play(Asking(0), busy, busy, reply())
    assert (trace.ending.reason, trace.calls[0].tries, len(trace.calls)) == (Reason.FINAL_ANSWER, 3, 1)
    assert trace.tail.times.limiter > 0.0


def test_a_deadline_ends_the_request():
    trace, _ = play(Asking(0), 5.0, limits=Limits(deadline=0.1))
    assert (trace.ending.reason, trace.calls[0].node) == (Reason.DEADLINE, None)


def test_the_record_of_it_trains_nothing_and_reads_back(tmp_path):
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        trace, _ = play(Adding(), reply("", calls=[("add", '{"a": 1, "b": 2}')]), reply("3"), sink=writer)
    reader = RunReader(run)
    (back,) = reader.traces()
    assert (encode_head(back), encode_part(back), encode_tail(back)) == (
        encode_head(trace), encode_part(trace), encode_tail(trace),
    )  # fmt: skip
    with pytest.raises(RecordError, match="no token ids"):
        samples(back)
    with pytest.raises(UsageError, match="no_token_ids"):
        export(reader, "jsonl", tmp_path / "out.jsonl")
    report = audit_traces([back])
    assert not report.broke
    page = io.StringIO()
    show_trace(Console(file=page, width=120), back, None, None, full=True)
    assert "tokens absent" in page.getvalue()


def test_over_http_it_is_the_same():
    async def run():
        script = [said(None, "tool_calls", [("add", '{"a": 1, "b": 2}')]), said("3")]
        async with connected(Endpoint(*script)) as policy:
            sink = MemorySink()
            loaded = LoadedPolicy(policy)
            await rollout(Adding, Task(id="t", prompt="1 + 2?"), loaded, sink=sink)
            return next(iter(sink.sealed.values()))

    trace = asyncio.run(run())
    assert (trace.ending.reason, trace.text, trace.head.policies[0].name) == (Reason.FINAL_ANSWER, "3", "text:x#m")


def test_a_call_without_an_id_or_a_name_is_kept():
    spec = ToolSpec(name="add", description="", parameters={"type": "object", "properties": {}})
    first, second = read_calls(
        (TextCall(None, "add", "{}"), TextCall("own", None, "{}")), (spec,), cut=False, prefix="p"
    )
    assert (first.id, first.status, first.arguments, first.raw) == ("p0", ParseStatus.OK, {}, "{}")
    assert (second.id, second.status, second.name) == ("own", ParseStatus.MISSING_NAME, None)


def test_a_renderer_goes_with_an_engine_of_tokens_only():
    with pytest.raises(UsageError, match="needs its renderer"):
        LoadedPolicy(Engine([says("x")]))
    with pytest.raises(UsageError, match="needs its renderer"):
        LoadedPolicy(Speaker([]), SMOLLM.renderer)
    loaded = LoadedPolicy(Speaker([]))
    with pytest.raises(UsageError, match="no renderer"):
        assert loaded.renderer
    assert not loaded.trainable
