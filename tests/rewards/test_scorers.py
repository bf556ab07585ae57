"""Scorers: what each one says, and that what it cannot tell is a failure and never 0."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.envs import Environment, Rewards, close_processes
from rollbook.envs.sandbox import Kind
from rollbook.errors import ConfigError, RollbookError, UsageError
from rollbook.rewards import score_trace
from rollbook.rewards.scorers import Scorer, ScoringFailed, each_turn, exact, math_equal, weighted
from rollbook.rewards.scorers.code import code_passes
from rollbook.rewards.scorers.verifier import read_reward, verifier
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Origin, Role, ToolCall
from rollbook.trace.record import ScoringStatus, TurnReward
from rollbook.trace.trace import Trace
from tests.rewards.made import ended


def with_target(said: str | None, target: Any, **options: Any) -> Trace:
    trace = ended("r", said=said, **options)
    trace.head = msgspec.structs.replace(trace.head, task=msgspec.structs.replace(trace.head.task, target=target))
    return trace


def scored(scorer: Callable[[Trace], Awaitable[Any]], trace: Trace) -> Rewards:
    async def go() -> Rewards:
        try:
            given = await scorer(trace)
        finally:
            await close_processes()
        return given if isinstance(given, Rewards) else Rewards(given)

    return asyncio.run(go())


def kept(scorer: Scorer, trace: Trace) -> Trace:
    """The trace, scored as a rollout scores it."""

    class Judged(Environment):
        async def score(self, trace: Trace) -> float | Rewards | None:
            return await scorer(trace)

    asyncio.run(score_trace(Judged(), trace, turn_rewards=[TurnReward(1, 0.25)]))
    return trace


async def half(trace: Trace, /) -> float:
    return 0.5


async def silent(trace: Trace, /) -> None:
    return None


async def broken(trace: Trace, /) -> float:
    raise OSError("the judge is down")


# exact


@pytest.mark.parametrize(
    ("said", "target", "fold", "reward"),
    [
        ("Paris", "Paris", False, 1.0),
        (" Paris\n", "Paris", False, 1.0),
        ("paris", "Paris", False, 0.0),
        ("paris  on\tSeine", "Paris on Seine", True, 1.0),
        ("Paris.", "Paris", True, 0.0),
        ("7", 7, False, 1.0),
        ("", "Paris", False, 0.0),
        (None, "Paris", False, 0.0),
    ],
)
def test_exact(said: str | None, target: Any, fold: bool, reward: float) -> None:
    assert scored(exact(fold=fold), with_target(said, target)).total == reward


@pytest.mark.parametrize("target", [None, "", "  "])
def test_without_a_target_nothing_is_right_or_wrong(target: str | None) -> None:
    with pytest.raises(ScoringFailed, match="no target"):
        scored(exact(), with_target("", target))


def test_targets_and_answers_can_be_read_from_the_trace() -> None:
    trace = with_target("I say: 4", {"right": 4})
    scorer = exact(lambda trace: trace.task.target["right"], answer=lambda trace: trace.text.rpartition(":")[2])
    assert scored(scorer, trace).total == 1.0
    assert scored(exact("5"), trace).total == 0.0


def test_a_message_that_calls_a_tool_is_no_answer() -> None:
    trace = with_target(None, "4", reason=None)
    call = ToolCall(id="c", name="t", arguments={})
    message = Message(role=Role.ASSISTANT, content="4", tool_calls=(call,))
    trace.graph.add(message, parent=0, origin=Origin.POLICY)
    trace.end(Ending(Reason.MAX_TURNS))
    assert scored(exact(), trace).total == 0.0


# math


@pytest.mark.parametrize(
    ("said", "target", "reward"),
    [
        (r"so it is \boxed{\frac{1}{2}}", "0.5", 1.0),
        ("$\\frac{2}{4}$", "1/2", 1.0),
        ("The answer is 3", "1/2", 0.0),
        ("nothing here", "1/2", 0.0),
        ("", "1/2", 0.0),
        ("1/2 " * 6000, "1/2", 0.0),
    ],
)
def test_math_equal(said: str, target: str, reward: float) -> None:
    assert scored(math_equal(), with_target(said, target)).total == reward


def test_an_answer_that_takes_too_long_is_wrong_and_says_so() -> None:
    found = scored(math_equal(seconds=0.3), with_target("9**9**9**9**9", "1/2"))
    assert (found.total, found.metrics["out_of_time"]) == (0.0, 1.0)


def test_a_target_that_is_no_mathematics_fails() -> None:
    with pytest.raises(ScoringFailed, match="not readable as mathematics"):
        scored(math_equal(), with_target("1/2", "no idea"))


def test_without_the_extra_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['math_verify'] = None\n"
        "from rollbook.rewards.scorers import math_equal\n"
        "from rollbook.errors import UsageError\n"
        "try: math_equal()\nexcept UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[math]'" in done.stdout


def test_importing_scorers_imports_no_sandbox_and_no_mathematics() -> None:
    code = "import sys, rollbook.rewards.scorers; sys.exit(bool({'sympy', 'rollbook.envs.sandbox'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# weighted


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-3, 3)), min_size=1, max_size=5))
def test_a_weighted_reward_is_the_sum_of_its_parts(rows: list[tuple[float, float]]) -> None:
    def constant(value: float) -> Scorer:
        async def score(trace: Trace, /) -> float:
            return value

        return score

    found = scored(weighted({f"p{n}": (constant(value), weight) for n, (value, weight) in enumerate(rows)}), ended("r"))
    assert found.total == pytest.approx(math.fsum(value * weight for value, weight in rows))
    assert found.parts == {f"p{n}": value for n, (value, _) in enumerate(rows)}


def test_parts_of_parts_keep_their_names_and_turn_rewards_their_turns() -> None:
    turns = each_turn(lambda message: 1.0)
    inner = weighted({"right": (exact("an answer"), 2.0), "turns": (turns, 0.5)})
    found = scored(weighted({"all": (inner, 0.5), "half": (half, 1.0)}), ended("r"))
    assert found.total == 0.5 * 2.5 + 0.5
    assert found.parts == {"all": 2.5, "all.right": 1.0, "all.turns": 1.0, "half": 0.5}
    assert found.turns == (TurnReward(1, 1.0),)


def test_a_part_that_fails_fails_the_whole_and_a_silent_one_leaves_no_total() -> None:
    trace = kept(weighted({"a": (half, 1.0), "b": (broken, 0.0)}), ended("r"))
    assert (trace.reward, trace.tail.reward_parts, trace.tail.scoring.status) == (None, {}, ScoringStatus.FAILED)
    assert "the judge is down" in trace.tail.scoring.reason
    trace = kept(weighted({"a": (half, 1.0), "b": (silent, 1.0)}), ended("r"))
    assert (trace.reward, trace.tail.reward_parts) == (None, {"a": 0.5})


def test_weights_are_finite_and_parts_are_named() -> None:
    with pytest.raises(ConfigError, match="at least one part"):
        weighted({})
    with pytest.raises(ConfigError, match="weight of 'a'"):
        weighted({"a": (half, math.nan)})


# turns


def talk(*said: str) -> Trace:
    trace = ended("r", said=said[0], reason=None)
    for text in said[1:]:
        asked = trace.graph.add(
            Message(role=Role.USER, content="go on"), parent=len(trace.graph) - 1, origin=Origin.USER
        )
        trace.graph.add(Message(role=Role.ASSISTANT, content=text), parent=asked, origin=Origin.POLICY)
    trace.end(Ending(Reason.FINAL_ANSWER))
    return trace


def test_turn_rewards_are_bound_to_their_turns_behind_the_step_rewards() -> None:
    trace = kept(each_turn(lambda message: {"good": 1.0, "bad": -1.0}.get(message.content)), talk("good", "?", "bad"))
    assert trace.tail.turn_rewards == (TurnReward(1, 0.25), TurnReward(1, 1.0), TurnReward(5, -1.0))
    assert trace.reward == 0.0


def test_turns_alone_leave_the_rollout_without_a_reward() -> None:
    found = scored(each_turn(lambda message: 1.0, total=False), talk("a", "b"))
    assert (found.total, len(found.turns)) == (None, 2)
    with pytest.raises(ScoringFailed, match="node 1 is not finite"):
        scored(each_turn(lambda message: math.inf), talk("a"))


@pytest.mark.parametrize(
    "turns",
    [(TurnReward(0, 1.0),), (TurnReward(9, 1.0),), (TurnReward(1, math.nan),), [1.0], 3, (TurnReward(1.0, 1.0),)],  # pyright: ignore[reportArgumentType]
)
def test_a_turn_reward_that_no_turn_bears_fails_the_scoring(turns: Any) -> None:
    async def score(trace: Trace, /) -> Rewards:
        return Rewards(1.0, turns=turns)

    trace = kept(score, ended("r"))
    assert (trace.reward, trace.tail.turn_rewards) == (None, ())
    assert trace.tail.scoring.status is ScoringStatus.FAILED


# verifier


def verified(script: str, **options: Any) -> Rewards:
    scorer = verifier(
        ["/bin/sh", "verify.sh"], lambda trace: {"verify.sh": script.encode()}, kind=Kind.PLAIN, **options
    )
    return scored(scorer, ended("r"))


plain = pytest.mark.filterwarnings("ignore::rollbook.envs.sandbox.NotIsolated")


@plain
def test_a_verifier_gives_the_number_in_its_file() -> None:
    assert verified("echo 0.75 > reward.txt") == Rewards(0.75)
    assert verified('echo \'{"reward": 1, "style": 0.5}\' > r.json', reward_file="r.json") == Rewards(
        1.0, parts={"style": 0.5}
    )


@plain
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 1 > reward.txt; exit 1", "exit status 1"),
        ("echo -1 > reward.txt", "outside of 0 to 1"),
        ("echo 2 > reward.txt", "outside of 0 to 1"),
        ("true", "left no reward"),
        ("echo nan > reward.txt", "no number"),
        ("echo 1e999 > reward.txt", "outside of"),
        ("echo 1 0 > reward.txt", "no number"),
        (": > reward.txt", "no number"),
        ("ln -s /etc/hostname reward.txt", "left no reward"),
        ("echo 1 > reward.txt; kill -9 $$", "signal 9"),
        ("echo 1 > reward.txt; sleep 9", "out of time"),
    ],
)
def test_anything_else_of_a_verifier_is_no_reward(script: str, why: str) -> None:
    with pytest.raises(ScoringFailed, match=why):
        verified(script, seconds=0.7)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40))
def test_bytes_of_a_reward_file_are_a_reward_in_range_or_a_failure(data: bytes) -> None:
    try:
        found = read_reward(data, (0.0, 1.0))
    except ScoringFailed:
        return
    assert found.total is not None
    assert 0.0 <= found.total <= 1.0


@pytest.mark.parametrize(
    "text", [b'{"reward": true}', b'{"reward": 1, "a": null}', b'{"a": 1}', b"[1]", b'"1"', b"\xff"]
)
def test_a_reward_object_holds_numbers_only(text: bytes) -> None:
    with pytest.raises(ScoringFailed):
        read_reward(text, (0.0, 1.0))


@pytest.mark.parametrize("bad", [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)])
def test_a_range_that_is_none_is_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="the range"):
        verifier(["true"], lambda trace: {}, reward_range=bad)


# code


@plain
def test_code_is_tried_on_hidden_tests() -> None:
    def tests(trace: Trace) -> tuple[str, list[list[Any]]]:
        return "double", [[[1], 2], [[2], 4]]

    right = code_passes(lambda trace: "def double(n): return 2 * n", tests, kind=Kind.PLAIN)
    partly = code_passes(lambda trace: "def double(n): return 2", tests, kind=Kind.PLAIN, graded=True)
    assert scored(right, ended("r")).total == 1.0
    assert scored(partly, ended("r")).total == 0.5
    assert scored(code_passes(lambda trace: None, tests), ended("r")).total == 0.0
    with pytest.raises(ScoringFailed, match="no hidden tests"):
        scored(code_passes(lambda trace: "", lambda trace: ("f", [])), ended("r"))


def test_errors_of_scorers_are_ours() -> None:
    assert issubclass(ScoringFailed, RollbookError)
    assert not issubclass(ScoringFailed, UsageError)
