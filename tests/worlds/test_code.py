"""The code world: its tasks, its tools, and a scorer that cannot be fooled."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from rollbook.envs.protocol import Rewards
from rollbook.envs.sandbox import Cause, ExecResult, NotIsolated, sandbox
from rollbook.envs.toolset import ToolSet
from rollbook.errors import UsageError
from rollbook.rewards.code_tests import SolutionResult, TimeBounds, run_hidden_tests
from rollbook.rollout import group
from rollbook.trace.ending import Ending, Reason, RolloutFailure
from rollbook.trace.message import Fault, Message, Role, ToolCall
from rollbook.trace.task import Task
from rollbook.worlds.code import FAMILIES, LIMITS, Code
from rollbook.worlds.code_families import Family, draw
from tests.cases.case import Script, calls
from tests.worlds.made import played, rewards

ALL = [(level, family) for level, families in FAMILIES.items() for family in families]
NAMES = [f"{level}-{family.name}" for level, family in ALL]


def task(level: int = 1, **changes: Any) -> Task:
    return msgspec.structs.replace(Code(level).tasks(1, seed=3)[0], **changes)


def doubling(*numbers: int) -> Task:
    return task(
        target={"name": "double", "tests": [[[n], 2 * n] for n in numbers]}, data={"family": "double", "difficulty": 1}
    )


DOUBLE, SHORT = doubling(0, 1, -3, 8), doubling(0, 8)


def scored(code: str, *, given: Task = DOUBLE, graded: bool = False) -> Rewards:
    return rewards(Code(graded=graded), played(given, f"Here it is:\n```python\n{code}\n```\n"))


def submitted(code: str, fault: Fault | None = None) -> list[Message]:
    call = ToolCall(id="c", name="submit", arguments={"code": code}, raw="")
    return [
        Message(role=Role.ASSISTANT, tool_calls=(call,)),
        Message(role=Role.TOOL, content="submitted", call_id="c", name="submit", fault=fault),
    ]


# Tasks.


def test_there_are_three_difficulties_of_many_families_each_with_its_name() -> None:
    assert {level: len(families) for level, families in FAMILIES.items()} == {1: 14, 2: 15, 3: 13}
    assert len({family.name for _, family in ALL}) == len(ALL)


@pytest.mark.parametrize(("level", "family"), ALL, ids=NAMES)
def test_what_is_right_is_plain_json_and_tells_solutions_apart(level: int, family: Family) -> None:
    for seed in range(30):
        drawn = draw(family, random.Random(seed))
        rights = [json.dumps(right) for _, right in drawn.hidden]
        assert json.loads(json.dumps(drawn.hidden)) == drawn.hidden
        assert len(drawn.hidden) >= 8
        assert len(drawn.examples) == 3
        assert not [given for given, _ in drawn.examples if given in [hidden for hidden, _ in drawn.hidden]]
        assert max(rights.count(each) for each in rights) < len(rights), "a constant would pass"
        assert drawn.signature.startswith(f"def {drawn.name}(")
        assert "$" not in drawn.text + drawn.source


def test_one_run_goes_through_all_families_and_another_seed_differs() -> None:
    for level, families in FAMILIES.items():
        tasks = Code(level).tasks(2 * len(families), seed=1)
        assert {each.data["family"] for each in tasks[: len(families)]} == {family.name for family in families}
        assert len({each.prompt for each in tasks}) > 1.5 * len(families)
        assert [each.prompt for each in Code(level).tasks(4, seed=2)] != [each.prompt for each in tasks[:4]]


def test_the_prompt_shows_no_hidden_test() -> None:
    for each in Code(2).tasks(30):
        assert isinstance(each.prompt, str)
        assert each.data["gold"] not in each.prompt
        assert each.prompt.count(">>> ") == 3


def test_an_unknown_difficulty_is_refused() -> None:
    with pytest.raises(UsageError, match="difficulty is 1, 2 or 3"):
        Code(4)


def test_an_unknown_kind_of_sandbox_is_refused_before_a_run_begins() -> None:
    with pytest.raises(UsageError, match="code: kind is bubblewrap, unshare, plain, not docker"):
        Code(kind="docker")
    assert Code(kind="unshare").kind == "unshare"


# Gold and nothing.


@pytest.mark.parametrize("level", FAMILIES)
def test_the_references_pass_and_nothing_does_not(level: int) -> None:
    async def check(family: Family, limit: asyncio.Semaphore) -> None:
        drawn = draw(family, random.Random(7))
        nothing = f"def {drawn.name}(*given):\n    pass\n"
        async with limit, sandbox() as box:
            tests = drawn.hidden[::8]
            result = await run_hidden_tests(box, drawn.source, drawn.name, tests, LIMITS)
            assert (result.passed, result.run, result.first) == (len(tests), len(tests), None), family
            assert (await run_hidden_tests(box, nothing, drawn.name, tests[:1], LIMITS)).passed == 0, family

    async def check_all() -> None:
        limit = asyncio.Semaphore(3)
        async with asyncio.TaskGroup() as tasks:
            for family in FAMILIES[level]:
                tasks.create_task(check(family, limit))

    asyncio.run(check_all())


# Scores.


def test_a_right_answer_scores_one_and_a_partly_right_one_its_share_if_graded() -> None:
    right = scored("def double(n):\n    return n + n")
    assert (right.total, right.parts) == (1.0, {"passed": 1.0})
    assert right.metrics == {"answered": 1.0, "tests": 4.0, "run": 4.0, "out_of_time": 0.0}
    partly = "def double(n):\n    return abs(n + n)"
    assert (scored(partly).total, scored(partly).parts) == (0.0, {"passed": 0.75})
    assert scored(partly, graded=True).total == 0.75


TRICKS = {
    "equal to everything": "class Any(int):\n def __eq__(self, other): return True\ndef double(n): return Any(5)",
    "prints the examples": "print(0, 2, -6, 16)\ndef double(n): print(2 * n)",
    "leaves with status 0": "import os\nprint('[[0], 0]')\nos._exit(0)",
    "leaves in the function": "import os\ndef double(n): os._exit(0)",
    "writes what it guesses": "import os\ndef double(n):\n for fd in range(3, 20):\n  try: os.write(fd, b'0')\n"
    "  except OSError: pass\n os._exit(0)",
    "patches json": "import json\njson.dumps = lambda *a, **k: 'true'\ndef double(n): return None",
    "patches builtins": "import builtins\nbuiltins.len = builtins.sorted = lambda *a: True\n"
    "def double(n): raise SystemExit(0)",
    "returns another type": "def double(n): return float(2 * n)",
    "returns a bool for 0": "def double(n): return 2 * n if n else False",
    "nests without end": "def double(n):\n value = []\n for _ in range(100000): value = [value]\n return value",
    "looks for the tests": "import gc\ndef double(n):\n return [o for o in gc.get_objects() if type(o) is dict "
    "and 'tests' in o][0]['tests'][0][1]",
    "reads what is there": "import glob\ndef double(n):\n"
    " return ''.join(open(f).read() for f in glob.glob('/workspace/*') + glob.glob('/tmp/*'))",
    "floods": "def double(n):\n while True: print('x' * 100000)",
    "is no Python": "def double(n) return 2",
    "half a pair": "def double(n): return '\ud800'",
    "has another name": "def twice(n): return 2 * n",
    "is empty": "",
}


LUCK = {"writes what it guesses": 0.5, "returns a bool for 0": 0.5}
"""Tricks that hit some of the values by themselves."""


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_get_nothing(trick: str) -> None:
    given = scored(TRICKS[trick], given=SHORT, graded=True)
    assert given.total == LUCK.get(trick, 0.0)


def test_an_endless_loop_is_the_solutions_fault_and_ends_the_tests() -> None:
    result = result_of("def double(n):\n    while n >= 0:\n        pass\n    return 2 * n", TimeBounds(cpu=1))
    assert (result.passed, result.run, result.out_of_time) == (0, 1, True)
    assert "out of processor time" in str(result.first)


@pytest.mark.parametrize(
    "times",
    [TimeBounds(wall_in_all=0.5, idle=9.0), TimeBounds(wall=0.3, idle=9.0), TimeBounds(cpu_in_all=0.01)],
)
def test_what_is_slow_without_an_end_is_bounded_in_all(times: TimeBounds) -> None:
    result = result_of("import time\ndef double(n):\n    time.sleep(0.3)\n    return 2 * n", times)
    assert result.run < 4
    assert result.out_of_time


def result_of(code: str, times: TimeBounds) -> SolutionResult:
    async def work() -> SolutionResult:
        async with sandbox() as box:
            return await run_hidden_tests(box, code, "double", DOUBLE.target["tests"], LIMITS, times)

    return asyncio.run(work())


class Machine:
    """A sandbox on a machine where everything takes as long as is said: wall time, and whether that was too long."""

    def __init__(self, *runs: tuple[float, bool]) -> None:
        self.runs = list(runs)

    async def exec(self, argv: Any, *, stdin: bytes = b"", seconds: float = 0.0, **_more: Any) -> ExecResult:
        wall, late = self.runs.pop(0)
        assert late == (wall >= seconds), "what is given is wall time enough for a slow start"
        number = json.loads(stdin)["arguments"]
        shown = b"" if late or not number else str(2 * number[0]).encode()
        return ExecResult(Cause.TIME if late else Cause.EXITED, None if late else 0, None, shown, b"", 0, 0, wall, 0.05)


def on(machine: Machine) -> SolutionResult:
    return asyncio.run(run_hidden_tests(machine, "", "double", [[[n], 2 * n] for n in (1, 2, 3)], LIMITS))  # pyright: ignore[reportArgumentType]


def test_a_machine_with_other_work_fails_no_solution() -> None:
    assert on(Machine((9.0, False), (14.0, False), (8.0, False))).passed == 3
    with pytest.raises(RolloutFailure, match="a function that does nothing took 4") as caught:
        on(Machine((0.1, False), (15.0, True), (4.0, False)))
    assert caught.value.reason is Reason.SANDBOX_LOST
    with pytest.raises(RolloutFailure, match="no solution can be judged"):
        on(Machine((14.0, False), (14.0, False), (14.0, False), (3.0, False)))


def test_who_sleeps_on_a_machine_that_is_well_is_out_of_time() -> None:
    result = on(Machine((0.1, False), (15.0, True), (0.1, False)))
    assert (result.passed, result.run, result.out_of_time) == (1, 2, True)


def test_who_breaks_its_sandbox_is_out_of_time_all_the_same() -> None:
    result = result_of(
        "import os, time\nos.chmod('/workspace', 0)\ndef double(n): time.sleep(9)", TimeBounds(wall=0.5, idle=9.0)
    )
    assert (result.passed, result.run, result.out_of_time) == (0, 1, True)


def test_no_test_changes_what_the_next_one_sees() -> None:
    code = "import os\ndef double(n):\n    seen = os.path.exists('/workspace/x')\n"
    code += "    open('/workspace/x', 'w')\n    return 2 * n"
    assert scored(code).total == 1.0
    counting = "calls = []\ndef double(n):\n    calls.append(n)\n    return 2 * n if len(calls) == 1 else None"
    assert scored(counting).total == 1.0


# What counts as the answer.

GOOD = "def double(n):\n    return 2 * n\n"
BAD = "def double(n):\n    return 3\n"


def total(*messages: Message | str, reason: Reason = Reason.FINAL_ANSWER) -> float | None:
    return rewards(Code(), played(SHORT, *messages, reason=reason)).total


def test_what_was_submitted_counts() -> None:
    assert total(*submitted(GOOD), reason=Reason.STOP_TOOL) == 1.0
    assert total(*submitted(BAD), reason=Reason.STOP_TOOL) == 0.0
    assert total(*submitted(GOOD, Fault.POLICY), "never mind") == 0.0
    assert total(*submitted(GOOD), f"```python\n{BAD}```") == 1.0


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (f"```python\n{GOOD}```", 1.0),
        (f"```\n{GOOD}```", 1.0),
        (f"```Python\n{BAD}```\nNo:\n```py\n{GOOD}```", 1.0),
        (f"```python\n{GOOD}```\nor\n```python\n{BAD}```", 0.0),
        (GOOD, 0.0),
        (f"```python\n{GOOD}", 0.0),
        ("", 0.0),
        (f"```python\n{GOOD}{'#' * 200_000}\n```", 0.0),
    ],
)
def test_the_last_block_of_the_answer_counts(answer: str, right: float) -> None:
    assert total(answer) == right


def test_a_rollout_without_a_reply_scores_nothing() -> None:
    assert total(reason=Reason.CONTEXT_OVERFLOW) == 0.0


# Tools.


def use(*codes: str) -> list[Message]:
    async def work() -> list[Message]:
        env = Code()
        await env.setup(DOUBLE)
        try:
            tools = ToolSet.of(env)
            calls = [ToolCall(id="c", name="run_python", arguments={"code": code}) for code in codes]
            return [(await tools.invoke(call)).message for call in calls]
        finally:
            await env.cleanup()

    return asyncio.run(work())


def test_programs_run_and_files_stay() -> None:
    first, second = use("open('f', 'w').write('x' * 3); print('hi')", "print(open('f').read()); 1 / 0")
    assert (first.content, first.fault) == ("hi\n", None)
    assert second.content.startswith("xxx\nTraceback")
    assert second.content.endswith("ZeroDivisionError: division by zero\n\n[exit status 1]")
    assert use("pass")[0].content == "(nothing was printed)"


def test_bytes_that_are_no_text_are_kept() -> None:
    (shown,) = use("import sys; sys.stdout.buffer.write(b'km\\xb2')")
    assert (shown.content, shown.raw) == ("km\\xb2", b"km\xb2")


def test_what_blows_up_is_the_policys_fault() -> None:
    bomb, flood = use("x = bytearray(2 << 30)", "while True: print('x' * 100000)")
    assert (bomb.fault, flood.fault) == (Fault.POLICY, Fault.POLICY) or "MemoryError" in bomb.content
    assert "too much output" in flood.content


def test_half_a_pair_of_surrogates_is_a_syntax_error_of_the_policy() -> None:
    (shown,) = use("print('\ud800')")
    assert "SyntaxError" in shown.content


def test_the_sandbox_is_in_the_record_and_a_plain_one_says_so() -> None:
    async def work(kind: str | None) -> Any:
        env = Code(kind=kind)
        assert await env.final_state() is None
        await env.setup(DOUBLE)
        try:
            state = await env.final_state()
            assert state is not None
            return state.data
        finally:
            await env.cleanup()

    assert asyncio.run(work(None))["isolates"] is True
    with pytest.warns(NotIsolated):
        assert asyncio.run(work("plain")) == {"sandbox": "plain", "isolates": False, "groups": False}


class Listening:
    """Keeps what a sandbox is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    async def exec(self, argv: Any, *, stdin: bytes = b"", **_more: Any) -> ExecResult:
        self.told.append(" ".join(argv).encode() + stdin)
        return ExecResult(Cause.EXITED, 0, None, b"123456789", b"", 0, 0, 0.0)


def test_a_process_is_told_its_own_arguments_and_never_what_is_right() -> None:
    box, tests = Listening(), [[[f"given-{n}"], f"right-{n}"] for n in range(3)]
    result = asyncio.run(run_hidden_tests(box, "code", "f", tests, LIMITS))  # pyright: ignore[reportArgumentType]
    assert result.passed == 0
    for place, told in enumerate(box.told):
        assert [f"given-{n}".encode() in told for n in range(3)] == [n == place for n in range(3)]
        assert b"right" not in told


def test_a_whole_rollout() -> None:
    given = Code(2).tasks(1, seed=5)[0]
    gold, tried = json.dumps({"code": given.data["gold"]}), json.dumps({"code": "print(6 * 7)"})
    script = Script([calls("run_python", tried), calls("submit", gold)])
    (trace,) = asyncio.run(group(lambda: Code(2), given, script.loaded(), 1))
    assert trace.ending == Ending(Reason.STOP_TOOL, "submit")
    assert (trace.reward, trace.tail.reward_parts) == (1.0, {"passed": 1.0})
    assert [each.content for each in trace.graph.messages if each.role is Role.TOOL] == ["42\n", "submitted"]
    assert trace.tail.final_state is not None
    assert trace.tail.final_state.data["isolates"] is True
