import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError, StoreError, UsageError
from rollbook.export import ExportReport, export
from rollbook.export.report import snapshot
from rollbook.trace import (
    Annotation,
    Disposition,
    Drop,
    EndingRules,
    Fate,
    LogprobKind,
    Mark,
    Mask,
    Message,
    MessageGraph,
    Origin,
    Penalize,
    Reason,
    Role,
    RunKind,
    Sampling,
    Score,
    Trace,
    TurnReward,
    make_runs,
)
from rollbook.trace.disposition import decide
from rollbook.trace.facts import ADVANTAGE, DISPOSITION, Advantage
from tests.export.build import batch, end, names, sound, start, turn


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_ids(rollout: str) -> Trace:
    return replace(start(rollout, tokens=False), graph=MessageGraph())


def decided(rollout: str, fate: Fate) -> Annotation:
    return Annotation(
        producer="rules", name=DISPOSITION, rollout=rollout, value=msgspec.to_builtins(Disposition(fate, "x"))
    )


def valued(rollout: str, value: float) -> Annotation:
    fact = Advantage(
        advantage=value,
        group="g0",
        seat="solver",
        values={rollout: value},
        members=(rollout,),
        baseline=0.0,
        scheduled=1,
        used=1,
        estimator="mean",
        rules="h",
    )
    return Annotation(producer="advantages", name=ADVANTAGE, rollout=rollout, value=msgspec.to_builtins(fact))


def test_the_account_stands_beside_the_file(tmp_path: Path) -> None:
    report = export(batch([sound()]), "jsonl", tmp_path / "out.jsonl")
    assert names(tmp_path) == ["out.jsonl", "out.jsonl.report.json"]
    assert json.loads((tmp_path / "out.jsonl.report.json").read_text()) == report.to_dict()
    assert (report.form, report.rollouts, report.samples, report.out) == ("jsonl", 1, 1, str(tmp_path / "out.jsonl"))


def test_recorded_facts_go_with_the_rows_and_are_named(tmp_path: Path) -> None:
    source = batch([sound("a"), sound("b"), sound("c")])
    source.annotate([valued("a", 0.5), decided("b", Fate.DROPPED), decided("c", Fate.USED)])
    report = export(source, "jsonl", tmp_path / "out")
    assert [(row["rollout"], row["advantage"]) for row in rows(tmp_path / "out")] == [("a", 0.5), ("c", None)]
    assert (report.lost, report.without_samples) == ({"no_vote": 2}, {"no_vote": 1})
    assert report.dispositions == {"recorded": 2, "rules": 1}
    assert report.snapshot == snapshot(source.annotations())


def test_an_older_snapshot_makes_the_export_again(tmp_path: Path) -> None:
    source = batch([sound("a"), sound("b")])
    then = [valued("a", 0.5)]
    source.annotate(then)
    first = export(source, "jsonl", tmp_path / "first")
    source.annotate([valued("a", 9.0), decided("b", Fate.DROPPED)])
    again = export(source, "jsonl", tmp_path / "again", annotations=then)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()
    assert first.snapshot == again.snapshot


def test_the_caller_comes_before_the_record(tmp_path: Path) -> None:
    source = batch([sound("a")])
    source.annotate([valued("a", 0.5), decided("a", Fate.DROPPED)])
    export(
        source,
        "jsonl",
        tmp_path / "out",
        advantages={"a": 2.0},
        dispositions={"a": Disposition(Fate.USED, "mine")},
    )
    assert rows(tmp_path / "out")[0]["advantage"] == 2.0


@pytest.mark.parametrize("reason", Reason)
def test_without_a_decision_the_rules_decide(reason: Reason) -> None:
    trace = end(turn(start()), reason)
    assert decide(trace, EndingRules()).votes == (reason.kind != "error")


def test_what_nobody_decided_goes_by_the_rules(tmp_path: Path) -> None:
    lost, cut = end(turn(start("lost")), Reason.HARNESS), end(turn(start("cut")), Reason.MAX_TURNS)
    for rules, kept in ((EndingRules(), ["r", "cut"]), (EndingRules({Reason.MAX_TURNS: Mask()}), ["r"])):
        export(batch([sound("r"), lost, cut]), "jsonl", tmp_path / "out", rules=rules, overwrite=True)
        assert [row["rollout"] for row in rows(tmp_path / "out")] == kept


@pytest.mark.parametrize(
    ("rule", "fate"),
    [(Score(), Fate.USED), (Mask(), Fate.MASKED), (Drop(), Fate.DROPPED), (Penalize(-1.0), Fate.PENALISED)],
)
def test_each_rule_has_its_fate(rule: object, fate: Fate) -> None:
    rules = EndingRules({Reason.MAX_TURNS: rule})
    decision = decide(end(turn(start()), Reason.MAX_TURNS), rules)
    assert (decision.fate, decision.rule.partition(":")[0]) == (fate, "max_turns")


def test_without_an_ending_a_reward_or_a_score_there_is_no_vote() -> None:
    failed = turn(start())
    failed.score_failed("boom")
    assert decide(end(failed, reward=None), EndingRules()) == Disposition(Fate.DROPPED, "scoring failed")
    assert decide(end(turn(start()), reward=None), EndingRules()) == Disposition(Fate.DROPPED, "no reward")
    with pytest.raises(RecordError, match="no ending"):
        decide(start(), EndingRules())


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [(LogprobKind.RAW, Sampling(temperature=0.7)), (LogprobKind.UNKNOWN, Sampling()), (None, Sampling())],
)
def test_logprobs_of_another_distribution_stop_the_export_unless_allowed(
    tmp_path: Path, kind: LogprobKind | None, sampling: Sampling
) -> None:
    source = batch([sound("a"), end(turn(start("b"), kind=kind, sampling=sampling))])
    with pytest.raises(UsageError, match=r"rollout 'b', branch 0: its logprobs .* are not of the distribution"):
        export(source, "jsonl", tmp_path / "out")
    assert names(tmp_path) == []
    report = export(source, "jsonl", tmp_path / "out", allow_unfit_logprobs=True)
    assert (report.unfit_logprobs_allowed, report.unfit_samples, report.samples) == (True, 1, 2)


def test_logprobs_that_no_call_vouches_for_do_not_fit(tmp_path: Path) -> None:
    trace = start()
    trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=0,
        origin=Origin.POLICY,
        token_ids=np.array([1], np.int32),
        runs=make_runs((RunKind.SAMPLED, 1)),
        logprobs=np.array([-1.0], np.float32),
    )
    with pytest.raises(UsageError, match="absent"):
        export(batch([end(trace)]), "jsonl", tmp_path / "out")


def test_a_rollout_without_trained_tokens_gives_no_row(tmp_path: Path) -> None:
    source = batch([sound("a"), end(start("b")), end(turn(start("c", trainable=False))), end(without_ids("d"))])
    report = export(source, "jsonl", tmp_path / "out")
    assert [row["rollout"] for row in rows(tmp_path / "out")] == ["a"]
    assert report.without_samples == {"no_sampled_tokens": 1, "untrainable_seat": 1}
    assert (report.refused, report.rollouts) == ({"no_token_ids": 1}, 4)


@pytest.mark.parametrize(("traces", "why"), [([], "there are no traces"), ([end(start())], "1 no_sampled_tokens")])
def test_an_export_without_rows_writes_nothing(tmp_path: Path, traces: list[Trace], why: str) -> None:
    with pytest.raises(UsageError, match=f"no rollout of this batch gives a sample: {why}"):
        export(batch(traces), "jsonl", tmp_path / "out")
    assert names(tmp_path) == []


def test_branches_that_are_too_long_are_lost_with_their_reason(tmp_path: Path) -> None:
    source = batch([sound("a"), sound("b", ids=range(50))])
    report = export(source, "jsonl", tmp_path / "out", max_tokens=10)
    assert (report.lost, report.max_tokens) == ({"over_length": 50}, 10)


def test_turn_rewards_that_go_with_no_row_are_counted(tmp_path: Path) -> None:
    trace = turn(turn(start()))
    trace.score(1.0, {}, (TurnReward(1, 0.5), TurnReward(2, 0.5)))
    trace.graph.mark(1, Mark.DEMOTED)
    report = export(batch([end(trace, reward=None)]), "jsonl", tmp_path / "out")
    assert report.unbound_turn_rewards == 1


def test_samples_without_an_advantage_are_counted(tmp_path: Path) -> None:
    report = export(batch([sound("a"), sound("b")]), "jsonl", tmp_path / "out", advantages={"a": 0.5})
    assert (report.samples, report.without_advantage) == (2, 1)


def test_an_existing_export_is_refused_unless_told(tmp_path: Path) -> None:
    export(batch([sound("a")]), "jsonl", tmp_path / "out")
    with pytest.raises(UsageError, match=r"/out exists.*--overwrite"):
        export(batch([sound("b")]), "jsonl", tmp_path / "out")
    assert rows(tmp_path / "out")[0]["rollout"] == "a"
    export(batch([sound("b")]), "jsonl", tmp_path / "out", overwrite=True)
    assert rows(tmp_path / "out")[0]["rollout"] == "b"


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make it first"):
        export(batch([sound()]), "jsonl", tmp_path / "no" / "out")


def test_an_advantage_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the advantage is nan"):
        export(batch([sound("a")]), "jsonl", tmp_path / "out", advantages={"a": float("nan")})
    assert names(tmp_path) == []


@st.composite
def traces(draw: st.DrawFn) -> list[Trace]:
    made: list[Trace] = []
    for place in range(draw(st.integers(1, 4))):
        trace = start(f"r{place}", trainable=draw(st.integers(0, 4)) > 0)
        for _ in range(draw(st.integers(0, 4))):
            parent = draw(st.integers(0, len(trace.graph) - 1))
            turn(trace, range(draw(st.integers(1, 6))), parent=parent)
            if draw(st.integers(0, 3)) == 0:
                trace.graph.mark(len(trace.graph) - 1, draw(st.sampled_from([Mark.REJECTED, Mark.DEMOTED])))
        made.append(end(trace, draw(st.sampled_from(Reason))))
    return made


@given(traces(), st.none() | st.integers(5, 20))
def test_every_sampled_token_is_trained_in_one_row_or_lost_for_a_reason(
    tmp_path_factory: pytest.TempPathFactory, made: list[Trace], max_tokens: int | None
) -> None:
    path = tmp_path_factory.mktemp("export") / "out"
    # a first rollout that always trains, so that there is a file
    report: ExportReport = export(batch([sound("first", ids=(1,)), *made]), "jsonl", path, max_tokens=max_tokens)
    captured = 1 + sum(trace.graph.sampled_count for trace in made)
    assert report.captured == captured == report.trained + sum(report.lost.values())
    written = rows(path)
    assert report.trained == sum(sum(row["loss_mask"]) for row in written)
    assert report.samples == len(written)
    with_rows = {row["rollout"] for row in written}
    assert report.rollouts == len(with_rows) + sum(report.without_samples.values())
    assert all(any(row["loss_mask"]) for row in written)
