"""Endings: the typed cause and the measured numbers decide, never an engine's or a harness's own word."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.envs import Environment, Rewards, StepResult, register
from rollbook.errors import RecordError, RollbookError
from rollbook.policy import Completion, ScriptedFailure, ScriptedPolicy, TokenIds
from rollbook.rewards import advantages, decide
from rollbook.rollout import Agent, Limits, LoadedPolicy, Session
from rollbook.run import RunConfig, run
from rollbook.store import RunReader, RunWriter
from rollbook.trace import (
    EndingKind,
    EndingRules,
    Fate,
    Finish,
    LogprobKind,
    Message,
    Origin,
    Reason,
    Retry,
    Role,
    RolloutFailure,
    RunKind,
    Sampling,
    Summary,
    Task,
    Trace,
    make_runs,
    samples,
    summarise,
)
from tests.cases.case import (
    CALL,
    PAD,
    REPORTS,
    STOP,
    THINK,
    Script,
    Talk,
    attempt,
    byte_ids,
    bytes_renderer,
    reply,
    report,
    run_one,
    says,
)

ASKED = Limits(max_generation=None)


def why(trace: Trace) -> Reason:
    assert trace.ending is not None
    return trace.ending.reason


# D03


@report("D03")
def test_an_agent_that_dies_without_a_call_is_an_error_with_its_measured_time(given: dict[str, Any]) -> None:
    seconds = given["elapsed_s"] / 1000

    async def dies(session: Session) -> None:
        await asyncio.sleep(seconds)
        raise TimeoutError(given["signal"])

    limit = float(given["configured_timeout_s"])
    trace = run_one(Talk, Script([says("never")]), agent=dies, limits=Limits(deadline=limit, wall=2 * limit))
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.ERROR, Reason.HARNESS)
    assert given["signal"] in trace.ending.detail
    assert (len(trace.calls), len(trace.policy_nodes)) == (given["n_model_calls"], 0)
    assert isinstance(EndingRules().rule(trace.ending.reason), Retry)
    assert decide(trace, earlier=[]).fate is Fate.RETRIED
    assert trace.reward is None, "nothing was graded"
    wall = summarise(trace).wall
    assert wall is not None
    assert seconds <= wall < 100 * seconds
    assert str(given["configured_timeout_s"]) not in trace.ending.detail


def test_a_silent_agent_has_no_vote_and_can_be_retried_by_rule() -> None:
    """`no_activity` is kept apart from `deadline`; without a sampled token it never votes, whatever it was scored."""
    silent = attempt("silent", 0.0, reason=Reason.NO_ACTIVITY, ids=())
    assert decide(silent).fate is Fate.DROPPED
    rules = EndingRules().override({Reason.NO_ACTIVITY: Retry(2)})
    assert decide(silent, rules, earlier=[]).fate is Fate.RETRIED
    good = [attempt(f"r{place}", reward, member=place) for place, reward in enumerate([1.0, 0.0], 1)]
    assert advantages([silent, *good]).values == {"r1": 0.5, "r2": -0.5}


@pytest.mark.parametrize("reason", [Reason.ENGINE_TIMEOUT, Reason.ENGINE_UNREACHABLE, Reason.RATE_LIMITED])
def test_an_engine_that_never_answers_is_an_error(reason: Reason) -> None:
    limits = Limits(request_retries=1)
    trace = run_one(Talk, Script([ScriptedFailure(reason=reason, detail="prompt timeout")]), limits=limits)
    assert why(trace) is reason
    assert {(call.node, call.finish) for call in trace.calls} == {(None, Finish.ERROR)}
    assert len(trace.calls) == (1 if reason is Reason.RATE_LIMITED else 2), "each request is in the record"
    assert trace.reward is None


def test_a_used_up_deadline_says_what_was_measured_beside_the_limit() -> None:
    class Slow(Talk):
        async def step(self, reply: Message) -> StepResult | None:
            await asyncio.sleep(60)
            return None

    trace = run_one(Slow, Script([says("hm")]), limits=Limits(deadline=0.05))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.DEADLINE
    measured = float(trace.ending.detail.split()[0])
    assert 0.05 <= measured < 30
    assert "limit 0.05 s" in trace.ending.detail


# D04


def padded_prompt(tokens: int) -> str:
    """A prompt with which the first request has this many tokens."""
    script = Script([says("x")])
    run_one(Talk, script, prompt="")
    return "x" * (tokens - len(script.prompts[0]))


@report("D04")
def test_a_prompt_without_room_is_truncated_before_the_request(given: dict[str, Any]) -> None:
    script = Script([ScriptedFailure(reason=Reason.ENGINE_CONTRACT, detail=given["server_error"])])
    trace = run_one(
        Talk, script, prompt=padded_prompt(given["prompt_len"]), context_length=given["max_model_len"], limits=ASKED
    )
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.TRUNCATED, Reason.CONTEXT_OVERFLOW)
    assert (script.prompts, trace.calls) == ([], []), "no request went out"
    assert str(given["prompt_len"]) in trace.ending.detail
    assert trace.graph.messages[-1].role is Role.USER, "what the agent was shown is kept"


@pytest.mark.parametrize(("prompt", "room"), [(256, 0), (255, 1), (250, 6), (200, 56)])
def test_room_is_what_is_asked_for_and_never_less_than_one(prompt: int, room: int) -> None:
    script = Script([reply(byte_ids("y" * max(room, 1)), Finish.LENGTH)])
    trace = run_one(Talk, script, prompt=padded_prompt(prompt), context_length=256, limits=ASKED)
    assert why(trace) is Reason.CONTEXT_OVERFLOW
    assert [sampling.max_tokens for sampling in script.samplings] == ([room] if room else [])
    assert trace.graph.sampled_count == room


def test_room_is_checked_again_before_each_request() -> None:
    script = Script([says("fine")])
    trace = run_one(lambda: Talk(["x" * 300]), script, context_length=256, limits=ASKED)
    assert why(trace) is Reason.CONTEXT_OVERFLOW
    assert len(script.prompts) == 1
    assert trace.text == "fine"


def test_an_error_that_talks_of_length_is_still_an_error() -> None:
    trace = run_one(Talk, Script([ScriptedFailure(reason=Reason.ENGINE_CONTRACT, detail="max_tokens is -17, context")]))
    assert why(trace) is Reason.ENGINE_CONTRACT


# D08


@report("D08")
def test_a_reply_that_hits_the_cap_is_a_length_cut_whatever_the_engine_says(given: dict[str, Any]) -> None:
    ids = [THINK, *byte_ids("\n" * (given["output_tokens"] - 1))]
    script = Script([reply(ids)], words=given["reported_state"])
    trace = run_one(Talk, script, limits=Limits(max_generation=given["cap"]))
    assert trace.ending is not None
    assert trace.ending.kind is EndingKind.LENGTH_CUT
    (turn,) = trace.turns()
    assert (turn.message.content, list(turn.message.tool_calls)) == (given["content"], given["tool_calls"])
    assert len(turn.sampled_ids) == given["output_tokens"]
    row = summarise(trace)
    assert (row.sampled, row.truncated) == (given["output_tokens"], True)
    assert trace.calls[0].engine_finish == given["reported_state"]


CAP = 8


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.STOP_STRING, Finish.LENGTH])
@pytest.mark.parametrize("ids", [byte_ids("x" * CAP), [CALL, *byte_ids("{}" * 3), 0]], ids=["text", "call"])
def test_at_the_cap_no_word_of_the_engine_makes_an_answer(finish: Finish, ids: list[int]) -> None:
    trace = run_one(Talk, Script([reply(ids, finish)]), limits=Limits(max_generation=CAP))
    assert why(trace) is Reason.GENERATION_LIMIT
    assert trace.graph.sampled_count == CAP
    assert [node.message.role for node in trace.graph] == [Role.USER, Role.ASSISTANT], "nothing was executed"


@pytest.mark.parametrize("stop", [STOP, PAD])
def test_a_turn_that_ends_itself_at_the_cap_is_whole(stop: int) -> None:
    trace = run_one(Talk, Script([reply([*byte_ids("x" * (CAP - 1)), stop])]), limits=Limits(max_generation=CAP))
    assert why(trace) is Reason.FINAL_ANSWER


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.STOP_STRING])
def test_a_stop_that_no_token_explains_is_a_broken_contract(finish: Finish) -> None:
    trace = run_one(Talk, Script([reply(byte_ids("x" * (CAP - 1)), finish)]), limits=Limits(max_generation=CAP))
    assert why(trace) is Reason.ENGINE_CONTRACT


def test_an_abort_is_never_a_normal_end() -> None:
    gone = ScriptedFailure(reason=Reason.ENGINE_UNREACHABLE, detail="it does not come back")
    limits = Limits(request_retries=0)
    trace = run_one(Talk, Script([reply(byte_ids("half a sen"), Finish.ABORT), gone]), limits=limits)
    assert trace.ending is not None
    assert trace.ending.kind is EndingKind.ERROR
    assert trace.graph.sampled_count == 10, "what was sampled is kept"


def test_a_budget_that_is_smaller_than_the_cap_explains_the_cut() -> None:
    trace = run_one(
        Talk, Script([reply(byte_ids("x" * 5), Finish.STOP)]), limits=Limits(max_tokens=5, max_generation=CAP)
    )
    assert why(trace) is Reason.MAX_TOKENS


# D09


class Counts(Environment):
    """Never done; scores what the state came to."""

    def __init__(self) -> None:
        self.steps = 0

    async def step(self, reply: Message) -> StepResult | None:
        self.steps += 1
        return StepResult(f"step {self.steps}")

    async def score(self, trace: Trace) -> Rewards:
        return Rewards(float(self.steps))


@report("D09")
def test_running_out_of_turns_is_no_answer_and_state_is_scored(given: dict[str, Any]) -> None:
    said: list[str] = []

    async def canned(session: Session) -> None:
        """A harness that swallows what stops it and reports success."""
        observation: Sequence[Message] = session.observation
        try:
            for _ in range(given["iterations"] + 1):
                observation = await session.answer(await session.reply(observation))
        except Exception:  # noqa: BLE001 (this is the harness of the report)
            said.append(given["returned_text"])

    limits = Limits(max_turns=given["max_iterations"])
    trace = run_one(Counts, Script([says("go on")]), limits=limits, agent=canned)
    assert said, "the harness saw the limit"
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.TRUNCATED, Reason.MAX_TURNS)
    assert len(trace.turns()) == given["iterations"]
    assert trace.text == "go on"
    assert trace.reward == float(given["iterations"]), "the scorer ran on the state"
    assert decide(trace).votes


@pytest.mark.parametrize("role", [Role.ASSISTANT, Role.USER, Role.SYSTEM])
@pytest.mark.parametrize("origin", [Origin.HARNESS, Origin.SYNTHETIC, Origin.ENVIRONMENT])
def test_text_that_a_harness_made_is_never_the_answer_and_never_trained(origin: Origin, role: Role) -> None:
    canned: str = REPORTS["D09"]["input"]["returned_text"]
    trace, ids = attempt("r", None), np.array(byte_ids(canned), np.int32)

    def put(kind: RunKind) -> None:
        message, runs = Message(role=role, content=canned), make_runs((kind, len(ids)))
        trace.graph.add(message, parent=1, origin=origin, token_ids=ids, runs=runs)

    with pytest.raises(RecordError, match="only the policy samples"):
        put(RunKind.SAMPLED)
    put(RunKind.CONTENT)
    assert trace.text == "answer"
    (sample,) = samples(trace)
    assert sample.token_ids[sample.loss_mask].tolist() == [7, 8, 9]
    assert not sample.sampled[-len(ids) :].any()
    assert np.isnan(sample.logprobs[-len(ids) :]).all()


def swallowing(error: type[BaseException]) -> Agent:
    async def agent(session: Session) -> None:
        with suppress(error):
            await session.answer(await session.reply(session.observation))

    return agent


@pytest.mark.parametrize("reason", [Reason.ENGINE_TIMEOUT, Reason.ENGINE_CONTRACT, Reason.RATE_LIMITED])
def test_a_harness_that_swallows_a_failure_has_not_answered(reason: Reason) -> None:
    trace = run_one(Talk, Script([ScriptedFailure(reason=reason)]), agent=swallowing(RolloutFailure))
    assert why(trace) is reason


def test_a_harness_that_swallows_a_cut_has_not_answered() -> None:
    script = Script([reply(byte_ids("x" * CAP), Finish.LENGTH)])
    trace = run_one(Talk, script, limits=Limits(max_generation=CAP), agent=swallowing(RollbookError))
    assert why(trace) is Reason.GENERATION_LIMIT


def test_a_harness_that_swallows_the_wall_cap_has_not_answered() -> None:
    async def deaf(session: Session) -> None:
        await session.reply(session.observation)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    trace = run_one(Talk, Script([says("hi")]), limits=Limits(wall=0.05), agent=deaf)
    assert why(trace) is Reason.HARNESS


# D13


def told(folder: Path) -> tuple[list[Summary], Counter[bool]]:
    reader = RunReader(folder, strict=True)
    rows = list(reader.summaries())
    assert rows == [summarise(trace) for trace in reader.traces()], "a summary is what its trace says"
    return rows, Counter(row.truncated for row in rows)


@report("D13")
def test_what_a_run_tells_is_the_same_after_a_restart(given: dict[str, Any], tmp_path: Path) -> None:
    count, cut = given["before"]["n"], given["before"]["truncated"]
    reasons = [*([Reason.MAX_TURNS, Reason.GENERATION_LIMIT] * cut)[:cut], *[Reason.FINAL_ANSWER] * (count - cut)]
    killed, sealed = tmp_path / "killed", tmp_path / "run"
    with RunWriter.create(sealed) as writer:
        for place, reason in enumerate(reasons):
            writer.seal(attempt(f"r{place}", float(place), group=f"g{place}", reason=reason))
        before = told(sealed)
        shutil.copytree(sealed, killed)  # as it stands when the process dies here
    assert before[1] == {True: cut, False: count - cut}
    assert told(sealed) == before
    for _ in range(2):
        RunWriter.open(killed).close()
        assert told(killed) == before


def test_a_run_that_is_resumed_tells_the_same(tmp_path: Path) -> None:
    """Through the run itself: endings, rewards, dispositions and advantages."""
    config = RunConfig(environment="case-d13", tasks=3, group=2, limits=Limits(max_generation=CAP))

    def speak(prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        ids = byte_ids("x" * CAP) if session.endswith("-1") else [*byte_ids("done"), STOP]
        logprobs = np.full(len(ids), -0.5, np.float32)
        return Completion(
            token_ids=np.array(ids, np.int32), logprobs=logprobs, logprob_kind=LogprobKind.RAW, finish=Finish.STOP
        )

    loaded = LoadedPolicy(ScriptedPolicy(speak), bytes_renderer())
    asyncio.run(run(config, tmp_path / "run", policy=loaded))
    before, notes = told(tmp_path / "run"), RunReader(tmp_path / "run").annotations()
    assert before[1] == {True: 3, False: 3}
    asyncio.run(run(config, tmp_path / "run", policy=loaded, resume=True))
    assert told(tmp_path / "run") == before
    assert RunReader(tmp_path / "run").annotations() == notes


class Two(Talk):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"t{place}", prompt=f"task {place}") for place in range(count)]


register("case-d13", Two)
