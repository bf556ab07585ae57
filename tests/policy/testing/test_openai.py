"""A text-only endpoint's words, without a socket."""

from __future__ import annotations

from typing import Any

from rollbook.policy.testing import Dialect, FakeEngine, Fault, FaultPlan, TextAnswer
from tests.policy.testing.asking import asked

ROUTE = "/v1/chat/completions"
USER = [{"role": "user", "content": "what is it"}]


def chat(fake: FakeEngine, **body: Any) -> tuple[int, Any]:
    return asked(fake, ROUTE, {"model": "fake", "messages": USER, **body}, session="s")


def test_a_script_says_what_and_calls_tools() -> None:
    def script(messages: list[dict[str, Any]], tools: list[dict[str, Any]], session: str) -> TextAnswer:
        return TextAnswer(content=f"{session} {len(tools)}", tool_calls=[("look", '{"at": 1')])

    status, reply = chat(FakeEngine(Dialect.OPENAI, text_script=script), tools=[{}])
    (choice,) = reply["choices"]
    assert (status, choice["finish_reason"], choice["message"]["content"]) == (200, "tool_calls", "s 1")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1'}


def test_a_limit_cuts() -> None:
    _, reply = chat(FakeEngine(Dialect.OPENAI), max_completion_tokens=1)
    assert (reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]) == ("1", "length")
    assert reply["usage"]["completion_tokens"] == 1


def test_unknown_fields_and_models_are_refused() -> None:
    fake = FakeEngine(Dialect.OPENAI)
    assert chat(fake, top_k=4)[0] == 400
    assert chat(fake, model="other")[0] == 404
    assert chat(fake, messages=[])[0] == 400
    assert chat(fake, stream=True)[0] == 400
    assert asked(fake, "/v1/models")[1]["data"][0]["id"] == "fake"


def test_wrong_counts() -> None:
    fake = FakeEngine(Dialect.OPENAI, faults=FaultPlan(requests={0: Fault.WRONG_COUNT}))
    assert [chat(fake)[1]["usage"]["completion_tokens"] for _ in range(2)] == [3, 2]
