"""Nothing pays for history twice: not a turn, not a look for its parent, not the disk."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

from rollbook.policy import Completion, TokenIds
from rollbook.rollout import Limits
from rollbook.store import RunWriter
from rollbook.trace import (
    Ending,
    Message,
    Reason,
    Role,
    Sampling,
    Trace,
    message_key,
)
from tests.cases.case import (
    Script,
    Talk,
    add_turn,
    add_user,
    bits,
    head,
    report,
    run_one,
    says,
)

# I07


class Counter:
    """Counts what Python calls while it is on: functions, and hashes by themselves."""

    def __init__(self) -> None:
        self.calls = self.hashes = self.keys = 0
        self._key: CodeType = message_key.__code__

    def __enter__(self) -> Counter:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.calls += 1
            self.keys += frame.f_code is self._key
        elif event == "c_call" and arg.__name__ in ("blake2b", "sha256", "md5", "sha1", "update", "digest"):
            self.hashes += 1


@report("I07")
def test_the_last_turn_costs_what_the_others_cost(given: dict[str, Any], tmp_path: Path) -> None:
    turns, per_turn = given["model_calls"], given["messages"] // given["model_calls"] + 1
    text = "x" * (given["bytes_per_message"] // 500)
    counter, at, sizes = Counter(), [], []
    run = tmp_path / "run"

    class Counting(Script):
        def __call__(self, prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
            at.append((counter.calls, counter.hashes))
            sizes.append(sum(path.stat().st_size for path in run.glob("journal/*")))
            return super().__call__(prompt, sampling, session)

    assert per_turn == 4
    script = Counting([says(text)])
    with RunWriter.create(run) as writer, counter:
        trace = run_one(lambda: Talk([text] * turns), script, limits=Limits(max_turns=turns), sink=writer)
    assert len(trace.turns()) == turns
    half = turns // 2
    work = np.diff(np.array(at), axis=0)
    early, late = np.median(work[half - 100 : half], axis=0), np.median(work[-100:], axis=0)
    assert late[0] <= early[0] * 1.05, "Python calls of one turn"
    assert late[1] <= early[1], "hashes of one turn"
    assert counter.keys == 0, "nothing hashes messages while a rollout runs"
    written = np.diff(sizes)
    assert np.median(written[-100:]) <= np.median(written[half - 100 : half]) * 1.05, "bytes of one turn"
    assert sizes[-1] < 2 * sizes[half] * 1.2


def test_finding_the_parent_hashes_new_messages_only() -> None:
    trace = Trace(head())
    add_user(trace, "?", [1])
    known, costs = 0, []
    for place in range(300):
        fresh = [Message(role=Role.ASSISTANT, content=f"turn {place}"), Message(role=Role.TOOL, content="OK")]
        with Counter() as counter:
            assert trace.graph.locate(fresh, known=known) == (known, 0)
        costs.append(counter.keys)
        add_turn(trace, fresh[0], [2])
        known = add_user(trace, "OK", [3], role=Role.TOOL)
    assert max(costs) <= 4, "two messages that came since, and the first new one"


# I08


@report("I08")
def test_equal_messages_are_each_their_own_node(given: dict[str, Any]) -> None:
    trace = Trace(head())
    for text in given["messages"]:
        if text == "OK":
            add_turn(trace, text, [9])
        else:
            add_user(trace, text, [1])
    assert len(trace.calls) == given["calls"]
    assert [(call.after, call.node) for call in trace.calls] == [(0, 1), (2, 3), (4, 5)], "one id a call"
    said = [Message(role=Role.ASSISTANT if text == "OK" else Role.USER, content=text) for text in given["messages"]]
    assert trace.graph.locate(said) == (5, 6)
    for place, refs in enumerate(given["by_content_refs"]):
        path = trace.graph.path(2 * place + 1).tolist()
        assert path == list(range(2 * place + 2))
        assert (path == refs) == (place == 0), "by content the third call's history would not be contiguous"
    assert trace.graph.stretches(5) == [(0, 6)]


@pytest.mark.parametrize("texts", [("OK",), ("OK", "no"), ("OK", "u1", "u2")])
def test_storage_is_linear_in_messages_however_they_repeat(texts: tuple[str, ...]) -> None:
    def size(count: int) -> int:
        trace = Trace(head())
        for place in range(count):
            add_user(trace, texts[place % len(texts)], [1])
            add_turn(trace, texts[(place + 1) % len(texts)], [9])
        trace.end(Ending(Reason.FINAL_ANSWER))
        return sum(map(len, bits(trace)))

    assert size(400) - size(200) <= 2 * 1.1 * (size(200) - size(100))


def test_equal_messages_under_one_parent_are_one_place() -> None:
    trace = Trace(head())
    add_user(trace, "u", [1])
    add_turn(trace, "OK", [9])
    ok = Message(role=Role.ASSISTANT, content="OK")
    user = Message(role=Role.USER, content="u")
    assert trace.graph.locate([user, ok, ok]) == (1, 2), "the second OK has another parent"
