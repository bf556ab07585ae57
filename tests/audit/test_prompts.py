import numpy as np
import pytest

from rollbook.audit import Status
from rollbook.trace import (
    ROOT,
    Call,
    Finish,
    Fork,
    ForkReason,
    LogprobKind,
    Message,
    Origin,
    Role,
    RunKind,
    Sampling,
    make_runs,
    redact,
)
from tests.audit.build import Build, check


def test_a_prompt_that_the_record_gives_back_is_fine_on_every_branch() -> None:
    build = Build().observe().turn().observe().turn(scaffold=5)
    build.turn(parent=0, fork=Fork(reason=ForkReason.RETRY))
    row = check("prompt_tokens", build.end())
    assert (row.status, row.value, row.n) == (Status.OK, 0, 3)


@pytest.mark.parametrize("off", [1, -1])
def test_a_count_that_is_off_is_found(off: int) -> None:
    trace = Build().observe().turn().observe().turn(prompt_off=off).end()
    row = check("prompt_tokens", trace)
    assert (row.status, row.value) == (Status.BROKE, 1)
    assert (row.findings[0].node, row.findings[0].token) == (3, 2)
    assert f"counted {4 + 5 + 4 + 2 + off} prompt tokens for call 1, the path 15" in row.findings[0].text


def test_a_reply_that_stands_behind_another_prompt_is_found() -> None:
    trace = Build().observe().turn().end()
    call = trace.calls[0]
    trace.calls[0] = Call(
        node=1, after=ROOT, sampling=call.sampling, finish=call.finish, prompt_tokens=call.prompt_tokens
    )
    assert "stands elsewhere" in check("prompt_tokens", trace).findings[0].text


def test_the_prompt_of_a_continued_turn_holds_its_earlier_segments() -> None:
    build = Build().observe()
    counts = ((6, Finish.ABORT), (8, Finish.STOP))
    for prompt, finish in counts:
        call = Call(
            node=1, after=0, sampling=Sampling(), logprob_kind=LogprobKind.RAW, finish=finish, prompt_tokens=prompt
        )
        build.trace.add_call(call)
    build.trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=0,
        origin=Origin.POLICY,
        token_ids=np.arange(5, dtype=np.int32),
        runs=make_runs((RunKind.SCAFFOLD, 2), (RunKind.SAMPLED, 3)),
        segments=make_runs((0, 2), (1, 1)),
    )
    row = check("prompt_tokens", build.end())
    assert (row.value, row.n) == (0, 2)


def test_an_engine_that_does_not_count_leaves_it_unjudged() -> None:
    row = check("prompt_tokens", Build().observe().turn(prompt_off=None).end())
    assert (row.status, row.details["calls_without_count"]) == (Status.NOT_JUDGED, 1)


def test_a_prompt_behind_a_redaction_cannot_be_told() -> None:
    trace = Build().observe().turn().observe().turn().end()
    row = check("prompt_tokens", redact(trace, 2))
    assert (row.status, row.n, row.details["turns_behind_redaction"]) == (Status.OK, 1, 1)
