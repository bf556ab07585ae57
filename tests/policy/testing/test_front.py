"""The log, the counts and the plan, without a socket."""

from __future__ import annotations

from typing import Any

from rollbook.policy.testing import Dialect, FakeEngine, Fault, FaultPlan
from tests.policy.testing.asking import asked

BODY = {"input_ids": [1], "sampling_params": {"max_new_tokens": 3}}


def ask(fake: FakeEngine, session: str = "s", body: Any = None) -> int:
    return asked(fake, "/generate", body or BODY, session=session)[0]


def test_requests_are_counted_by_session() -> None:
    fake = FakeEngine(Dialect.SGLANG, faults=FaultPlan(requests={1: Fault.BUSY, 2: Fault.SERVER_ERROR}))
    assert [ask(fake, session) for session in "aabab"] == [200, 429, 200, 500, 429]
    assert [(entry.session, entry.number, entry.fault) for entry in fake.log] == [
        ("a", 0, None), ("a", 1, Fault.BUSY), ("b", 0, None), ("a", 2, Fault.SERVER_ERROR), ("b", 1, Fault.BUSY),
    ]  # fmt: skip


def test_the_log_is_served_and_can_be_read_on() -> None:
    fake = FakeEngine(Dialect.SGLANG)
    for _ in range(3):
        ask(fake)
    status, entries = asked(fake, "/_fake/log?from=1")
    assert (status, len(entries)) == (200, 2)
    assert entries[0]["token_ids"] == fake.log[1].token_ids
    assert entries[0]["status"] == 200
    assert asked(fake, "/_fake/state")[1] == {"running": 0, "paused": False, "version": "default"}
    assert asked(fake, "/_fake/other")[0] == 404


def test_a_reset_begins_anew() -> None:
    fake = FakeEngine(Dialect.SGLANG, faults=FaultPlan(requests={0: Fault.UPDATE}))
    ask(fake)
    assert asked(fake, "/_fake/state")[1]["version"] == "step-1"
    assert asked(fake, "/_fake/reset", {})[0] == 200
    assert fake.log == []
    assert asked(fake, "/_fake/state")[1]["version"] == "default"
    ask(fake)
    assert fake.log[0].number == 0


def test_what_is_refused_is_logged_with_its_status() -> None:
    fake = FakeEngine(Dialect.SGLANG)
    assert ask(fake, body={"input_ids": []}) == 400
    assert asked(fake, "/generate", method="POST")[0] == 400
    assert [entry.status for entry in fake.log] == [400, 400]


def test_the_prompt_is_not_kept_but_its_digest_is() -> None:
    fake = FakeEngine(Dialect.SGLANG)
    ask(fake)
    (entry,) = fake.log
    assert "input_ids" not in entry.fields
    assert (entry.prompt_tokens, len(entry.prompt_digest)) == (1, 16)


def test_a_request_without_a_session_is_neither_scripted_nor_struck() -> None:
    plan = FaultPlan(requests={0: Fault.BUSY}, rates={Fault.RESET: 1.0})
    fake = FakeEngine(Dialect.SGLANG, script={"s": [[5]]}, faults=plan)
    assert [ask(fake, session) for session in ("", "", "s")] == [200, 200, 429]
    greeted = FakeEngine(Dialect.SGLANG, faults=FaultPlan(sessions={"": [Fault.BUSY]}))
    assert [ask(greeted, "") for _ in range(2)] == [429, 200]
