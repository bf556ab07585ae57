"""Samples: what was not sampled is never trained, has no logprob, and never stands in for what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from rollbook.errors import RecordError, UsageError
from rollbook.export import export
from rollbook.rewards import advantages, dispositions
from rollbook.trace import (
    Ending,
    Fate,
    Finish,
    MemorySink,
    Message,
    Origin,
    Reason,
    Role,
    RunKind,
    Trace,
    make_runs,
    samples,
)
from tests.cases.case import (
    STOP,
    Script,
    Talk,
    add_turn,
    add_user,
    attempt,
    byte_ids,
    head,
    reply,
    report,
    run_one,
    says,
)


def add_mixed(
    trace: Trace, ids: list[int], runs: list[tuple[int, int]], logprobs: list[float], origin: Origin = Origin.POLICY
) -> int:
    """A turn in which tokens of several kinds follow each other."""
    return trace.graph.add(
        Message(role=Role.ASSISTANT, content="mixed"),
        parent=len(trace.graph) - 1,
        origin=origin,
        token_ids=np.array(ids, np.int32),
        runs=make_runs(*runs),
        logprobs=np.array(logprobs, np.float32),
    )


def rows(trace: Trace, folder: Path) -> list[dict[str, Any]]:
    sink = MemorySink()
    sink.seal(trace)
    export(sink, "jsonl", folder / "out.jsonl", allow_unfit_logprobs=True)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def floats(values: list[float]) -> list[float]:
    return np.array(values, np.float32).tolist()


# E03


@report("E03")
def test_a_forced_end_of_turn_has_no_logprob_and_no_loss(given: dict[str, Any], tmp_path: Path) -> None:
    ids, forced = given["sampled_ids"], given["appended"]
    kinds = [(RunKind.SAMPLED, len(ids)), (RunKind.FORCED, len(forced))]
    trace = Trace(head())
    add_mixed(trace, [*ids, *forced], kinds, given["logprobs"])
    (sample,) = samples(trace)
    assert sample.token_ids.tolist() == [*ids, *forced]
    assert sample.sampled.tolist() == sample.loss_mask.tolist() == [True] * len(ids) + [False] * len(forced)
    assert sample.logprobs[sample.sampled].tolist() == floats(given["logprobs"])
    assert np.isnan(sample.logprobs[~sample.sampled]).all()

    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(1.0)
    (row,) = rows(trace, tmp_path)
    assert row["logprobs"][-len(forced) :] == [None] * len(forced)
    assert (len(row["token_ids"]), row["sampled"]) == (4, [1, 1, 1, 0])

    with pytest.raises(RecordError, match="4 logprobs"):
        add_mixed(Trace(head()), [*ids, *forced], kinds, [*given["logprobs"], 0.0])


KINDS = st.lists(st.tuples(st.sampled_from(RunKind), st.integers(1, 4)), min_size=1, max_size=8)


@examples(KINDS)
@settings(max_examples=50, deadline=None)
def test_forced_tokens_anywhere(runs: list[tuple[RunKind, int]]) -> None:
    kinds = [kind for kind, count in runs for _ in range(count)]
    sampled = [kind is RunKind.SAMPLED for kind in kinds]
    logprobs = [-(place + 1) / 8 for place in range(sum(sampled))]
    trace = Trace(head())
    add_mixed(trace, list(range(len(kinds))), [(int(kind), count) for kind, count in runs], logprobs)
    built = samples(trace)
    assert (built.ledger.captured, built.ledger.trained) == (sum(sampled), sum(sampled))
    if not any(sampled):
        assert len(built) == 0
        return
    (sample,) = built
    assert sample.loss_mask.tolist() == sample.sampled.tolist() == sampled
    assert sample.logprobs[sample.sampled].tolist() == logprobs
    assert np.isnan(sample.logprobs).tolist() == [not each for each in sampled]
    for count in (len(kinds), len(logprobs) + 1):
        if count != len(logprobs):
            with pytest.raises(RecordError, match="logprobs"):
                add_mixed(Trace(head()), list(range(len(kinds))), [(int(k), n) for k, n in runs], [-1.0] * count)


def test_what_closes_a_turn_in_a_rollout_is_forced_and_stands_in_the_next_message() -> None:
    """The report's own situation: a stop string ends a generation, and the conversation goes on."""
    script = Script([reply(byte_ids("half\n\n"), Finish.STOP_STRING), says("done")])
    trace = run_one(lambda: Talk(["go on"]), script, stop=("\n\n",))
    (sample,) = samples(trace)
    observation = trace.graph[2]
    assert observation.token_ids[0] == STOP
    assert observation.runs[0].tolist() == [RunKind.FORCED, 1]
    assert sample.token_ids[sample.loss_mask].tolist() == [*byte_ids("half\n\n"), *byte_ids("done"), STOP]
    assert np.isnan(sample.logprobs[~sample.sampled]).all()
    sent = script.prompts[1].tolist()
    assert sample.token_ids[: len(sent)].tolist() == sent, "what was sent is what is trained on"


# E12


@report("E12")
def test_a_rollout_that_never_ran_gives_no_row(given: dict[str, Any], tmp_path: Path) -> None:
    lost = attempt("lost", given["synthetic_row"]["reward"], ids=(), reason=Reason.ENV_SETUP)
    assert lost.calls == given["trace_calls"]
    built = samples(lost)
    assert (len(built), built.ledger.captured) == (0, 0)

    real = [attempt(f"r{place}", reward, member=place) for place, reward in enumerate([1.0, 0.0], 1)]
    found = advantages([lost, *real])
    assert found.values == {"r1": 0.5, "r2": -0.5}
    (group,) = found.groups
    assert (group.used, group.baseline) == (2, 0.5)

    sink = MemorySink()
    for trace in [lost, *real]:
        sink.seal(trace)
    outcome = export(sink, "jsonl", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["rollout"] for line in lines] == ["r1", "r2"]
    assert outcome.without_samples == {"no_sampled_tokens": 1}


@report("E12")
def test_a_placeholder_cannot_be_made(given: dict[str, Any]) -> None:
    row = given["synthetic_row"]
    for origin in set(Origin) - {Origin.POLICY}:
        with pytest.raises(RecordError, match="only the policy samples"):
            add_mixed(Trace(head()), row["ids"], [(RunKind.SAMPLED, 1)], row["logprob"], origin)


@pytest.mark.parametrize("reason", [Reason.FINAL_ANSWER, Reason.NO_ACTIVITY, Reason.DEADLINE, Reason.HARNESS])
def test_without_a_sampled_token_no_ending_gives_a_vote(reason: Reason, tmp_path: Path) -> None:
    empty = attempt("empty", 0.0, ids=(), reason=reason)
    assert dispositions([empty])["empty"].fate is Fate.DROPPED
    assert advantages([empty]).values == {}
    sink = MemorySink()
    sink.seal(empty)
    with pytest.raises(UsageError, match="no_sampled_tokens"):
        export(sink, "jsonl", tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == [], "an export without rows writes no file"


# E15


@report("E15")
def test_the_sampled_end_of_turn_trains_though_it_equals_the_pad(given: dict[str, Any], tmp_path: Path) -> None:
    ids, prompt = given["generated_ids"], given["prompt_len"]
    trace = Trace(head())
    add_user(trace, "?", ids[:prompt])
    add_turn(trace, "answer", ids[prompt:])
    (sample,) = samples(trace)
    assert ids[-1] == given["pad_id"] == ids[1]
    assert sample.loss_mask.tolist() == [place >= prompt for place in range(len(ids))]
    assert (sample.token_ids.tolist(), sample.prompt_len) == (ids, prompt)
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(1.0)
    (row,) = rows(trace, tmp_path)
    assert (row["token_ids"], row["loss_mask"]) == (ids, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("tail", [[STOP], [STOP, STOP], [STOP, STOP, STOP], [0, STOP]])
def test_every_sampled_token_trains_whatever_its_id(tail: list[int]) -> None:
    """A second end-of-turn id is odd output of the policy; it stays visible and trains."""
    trace = run_one(lambda: Talk(["and?"]), Script([reply([*byte_ids("hi"), *tail])]))
    (sample,) = samples(trace)
    assert sample.token_ids[sample.loss_mask].tolist() == [*byte_ids("hi"), *tail] * 2
    assert trace.graph.sampled_count == sample.loss_mask.sum()
