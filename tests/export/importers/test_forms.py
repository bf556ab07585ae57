"""What each form becomes, on real files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from rollbook.audit import audit
from rollbook.export.importers.archive import opened_archive
from rollbook.trace import MemorySink, ParseStatus, Trace, samples, total_runs
from tests.export.importers.imported import DATA, FORMS, data, endings, first_row, lines, read, said


@pytest.mark.parametrize("name", FORMS)
def test_every_file_holds_together(name: str) -> None:
    traces = data(name)
    assert len({trace.id for trace in traces}) == len(traces)
    for trace in traces:
        trace.check()
        assert trace.head.config["imported"]["form"] == FORMS[name]
        assert not trace.calls, "what was asked of the engine is not in these files"


@pytest.mark.parametrize("name", FORMS)
def test_without_ids_the_record_says_so(name: str) -> None:
    for trace in data(name):
        assert trace.head.tokens == (len(trace.graph.tokens) > 0)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_not_recorded_is_not_judged(name: str) -> None:
    sink = MemorySink()
    for trace in data(name):
        sink.seal(trace)
    report = audit(sink)
    exact = any(trace.head.tokens for trace in sink.traces())
    lost = name == "verifiers_legacy.jsonl"  # a quarter of its rows are errors, which is too many
    assert report.exit_code == (1 if lost else 0 if exact else 2)
    assert [check.name for check in report.broke] == (["error_rate"] if lost else [])
    assert {report[check].value for check in ("logprob_kind", "tools_unrendered")} <= {None, 0}


def test_slime_samples_of_one_turn() -> None:
    traces = data("slime.pt")
    first = traces[0]
    assert said(first) == [("user", "user", "What is 1 + 2?"), ("assistant", "policy", "3")]
    assert first.graph.path_ids(1).tolist() == [5, 6, 7, 10, 2]
    assert first.graph[1].logprobs is not None
    assert first.graph[1].logprobs.tolist() == [-0.25, -1.5]
    assert first.graph[1].versions.tolist() == [[4, 2]]
    assert (first.task.target, first.reward) == ("3", 1.0)
    assert [trace.head.group for trace in traces[:3]] == [first.head.group] * 3
    assert [trace.head.member for trace in traces[:3]] == [0, 1, 2]


def test_slime_endings_and_rewards() -> None:
    traces = data("slime.pt")
    assert endings(traces) == [
        "submitted/final_answer",
        "submitted/final_answer",
        "length_cut/generation_limit",
        "submitted/final_answer",
        "submitted/final_answer",
        "error/cancelled",
        "submitted/final_answer",
    ]
    assert [trace.reward for trace in traces] == [1.0, 0.0, 0.0, None, 0.5, None, 0.0]
    assert traces[3].tail.reward_parts == {"format": 1.0, "answer": 0.5}


def test_slime_masked_tokens_are_context_and_the_text_is_not_divided() -> None:
    tool = data("slime.pt")[3]
    assert [(origin, text) for _, origin, text in said(tool)] == [
        ("user", "What is 1 + 2?"),
        ("policy", ""),
        ("environment", ""),
        ("policy", ""),
    ]
    assert tool.tail.final_state is not None
    assert tool.tail.final_state.text == "call result 3"
    assert tool.graph[2].token_ids.tolist() == [20, 21, 22]
    assert [len(node.versions) for node in tool.graph] == [0, 0, 0, 0], "two versions, and not whose"
    (sample,) = samples(tool)
    assert sample.loss_mask.tolist() == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 2


def test_slime_siblings_are_branches_of_one_rollout() -> None:
    trace = data("slime.pt")[4]
    assert [sample.token_ids.tolist() for sample in samples(trace)] == [[5, 6, 7, 14, 2], [5, 6, 7, 15, 2]]
    assert trace.graph[2].fork is not None
    assert trace.head.config["imported"]["rollout_id"] == 40


def test_slime_removed_samples_do_not_train() -> None:
    trace = data("slime.pt")[6]
    assert samples(trace).ledger.lost == {"demoted": 2}


def test_verl_rows() -> None:
    traces = data("verl.jsonl")
    assert said(traces[0]) == [
        ("user", "user", "user\nWhat is 1 + 2?\nassistant\n"),
        ("assistant", "policy", "3"),
    ]
    assert [trace.reward for trace in traces] == [1.0, 0.0, 1.0, 0.0]
    assert set(endings(traces)) == {"unknown/not_recorded"}
    assert [(trace.head.group, trace.head.member) for trace in traces] == [
        (traces[0].head.group, 0),
        (traces[0].head.group, 1),
        (traces[2].head.group, 0),
        (traces[2].head.group, 1),
    ]
    assert traces[0].tail.metrics == {"acc": 1.0}
    assert traces[0].task.target == "3"


def test_verl_rows_without_a_uid_are_grouped_by_what_was_asked(tmp_path: Path) -> None:
    row = {"input": "q", "output": "a", "gts": "1", "score": 0.5, "step": 1}
    path = lines(tmp_path / "d", row, {**row, "output": "b"}, {**row, "step": 2}, {**row, "gts": "2"})
    groups = [trace.head.group for trace in read(path)]
    assert groups[0] == groups[1]
    assert len(set(groups)) == 3


def test_verl_without_a_score_has_no_reward(tmp_path: Path) -> None:
    row = {"input": "q", "output": "a", "gts": None, "score": None, "step": 1}
    (trace,) = read(lines(tmp_path / "d", row))
    assert trace.reward is None


def test_prime_rl_token_exports() -> None:
    one, two = data("prime_rl.jsonl")
    assert (one.reward, str(one.ending), one.head.environment) == (None, "unknown/not_recorded", "sums")
    assert [node.token_ids.tolist() for node in two.graph] == [[40], [41], [42, 43], [44]]
    assert two.graph[3].logprobs is not None
    assert two.graph[3].logprobs.tolist() == [-0.125]
    (sample,) = samples(two)
    assert sample.loss_mask.tolist() == first_row_mask(1)


def first_row_mask(number: int) -> list[bool]:
    return json.loads((DATA / "prime_rl.jsonl").read_text().splitlines()[number])["loss_mask"]


def test_prime_rl_reads_the_orchestrators_episodes_too() -> None:
    assert len(read(DATA / "verifiers.jsonl", "prime_rl")) == 5


def test_verifiers_nodes_stay_nodes() -> None:
    traces = data("verifiers.jsonl")
    first = traces[0]
    assert said(first) == [
        ("system", "harness", "Use the tool."),
        ("user", "user", "What is 1 + 2?"),
        ("assistant", "policy", ""),
        ("tool", "environment", "3"),
        ("assistant", "policy", "3"),
    ]
    assert first.graph.messages[2].tool_calls[0].arguments == {"x": 1}
    assert first.graph.messages[4].reasoning == "so"
    assert total_runs(first.graph[2].runs) == ((0, 1), (2, 2))
    assert first.graph.path_ids(4).tolist() == list(range(1, 14))
    assert [message.content for message in first.task.messages()] == ["Use the tool.", "What is 1 + 2?"]
    assert (first.reward, first.tail.reward_parts) == (1.0, {"right": 1.0, "short": 0.0})
    assert first.tail.metrics == {"prompt_tokens": 10.0, "completion_tokens": 4.0, "turns": 2.0}


def test_verifiers_groups_episodes_and_seats() -> None:
    traces = data("verifiers.jsonl")
    assert [trace.head.member for trace in traces] == [0, 1, 2, 0, 0]
    assert [trace.head.agent.seat for trace in traces] == ["solver"] * 4 + ["judge"]
    assert traces[3].head.episode == traces[4].head.episode != ""
    assert not traces[4].head.agent.trainable
    assert endings(traces[:3]) == ["submitted/final_answer", "truncated/max_turns", "error/harness"]
    assert (traces[2].reward, traces[2].tail.errors[0].text) == (None, "gone")


def test_verifiers_forks_are_retries_of_one_prompt() -> None:
    forked = data("verifiers.jsonl")[3]
    fork = forked.graph[5].fork
    assert fork is not None
    assert fork.reason == "retry"
    assert [int(sample.sampled.sum()) for sample in samples(forked)] == [4, 4]
    assert samples(forked).ledger.trained == 6


def test_verifiers_calls_are_never_repaired(tmp_path: Path) -> None:
    row = first_row("verifiers.jsonl")
    row["traces"][0]["nodes"][2]["message"]["tool_calls"][0]["arguments"] = '{"x": 1'
    (trace,) = read(lines(tmp_path / "d", row))
    call = trace.graph.messages[2].tool_calls[0]
    assert (call.status, call.arguments, call.raw) == (ParseStatus.INVALID_JSON, None, '{"x": 1')
    sink = MemorySink()
    sink.seal(trace)
    assert audit(sink)["executed_after_fault"].value == 1, "others ran it: that is what the audit is for"


def test_verifiers_without_rewards_have_none(tmp_path: Path) -> None:
    row = first_row("verifiers.jsonl")
    row["traces"][0]["rewards"] = {}
    one = read(lines(tmp_path / "d", row))[0]
    row["traces"][0]["rewards"] = {"a": None, "b": {"score": 1.0, "weight": 0.5}}
    two = read(lines(tmp_path / "e", row))[0]
    assert (one.reward, two.reward, two.tail.reward_parts) == (None, None, {"b": 0.5})


def test_verifiers_a_task_s_own_stop_says_nothing(tmp_path: Path) -> None:
    row = first_row("verifiers.jsonl")
    row["traces"][0]["stop_condition"] = "game_won"
    (trace,) = read(lines(tmp_path / "d", row))
    assert trace.ending is not None
    assert (str(trace.ending), trace.ending.detail) == ("unknown/not_recorded", "stop condition game_won")


def test_verifiers_a_cut_reply_is_a_cut(tmp_path: Path) -> None:
    row = first_row("verifiers.jsonl")
    row["traces"][0]["calls"][-1]["finish_reason"] = "length"
    assert endings(read(lines(tmp_path / "d", row))) == ["length_cut/generation_limit"]


def test_verifiers_rows_before_version_one() -> None:
    traces = data("verifiers_legacy.jsonl")
    assert endings(traces) == [
        "submitted/final_answer",
        "truncated/max_turns",
        "error/harness",
        "unknown/not_recorded",
    ]
    assert [trace.head.member for trace in traces] == [0, 1, 0, 1]
    assert traces[0].graph.messages[1].tool_calls[0].arguments == {"x": 1, "y": 2}
    assert [trace.reward for trace in traces] == [1.0, 0.0, 0.0, 1.0]


def test_atif_text() -> None:
    root, helper = data("atif.json")
    assert said(root) == [
        ("system", "harness", "You are an agent."),
        ("user", "user", "Which file is there?"),
        ("assistant", "policy", "I look."),
        ("tool", "environment", "a.txt"),
        ("assistant", "policy", "a.txt"),
    ]
    assert root.graph.messages[2].tool_calls[0].arguments == {"command": "ls"}
    assert (root.graph.messages[3].call_id, root.graph.messages[3].name) == ("c0", "bash")
    assert root.graph.messages[2].reasoning == "ls tells"
    assert (root.head.episode, root.head.agent.seat) == (helper.head.episode, "solver")
    assert (helper.head.agent.seat, root.reward, str(root.ending)) == ("helper", None, "unknown/not_recorded")
    assert root.head.tools[0].name == "bash"


def test_atif_with_ids_is_token_exact() -> None:
    (trace,) = data("atif_ids.json")
    assert trace.graph.path_ids(4).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [node.token_ids.tolist() for node in trace.graph] == [[], [1, 2, 3], [4, 5], [6, 7], [8, 9]]
    (sample,) = samples(trace)
    assert sample.logprobs[sample.sampled].tolist() == [-0.5] * 4


def test_atif_a_prompt_that_does_not_go_on_begins_anew(tmp_path: Path) -> None:
    plain = json.loads((DATA / "atif_ids.json").read_text())
    plain["steps"][3]["metrics"]["prompt_token_ids"] = [1, 2, 3, 4, 99, 6, 7]
    (trace,) = read(lines(tmp_path / "d", plain))
    fork = trace.graph[3].fork
    assert fork is not None
    assert (fork.reason, "at position 4" in fork.detail) == ("edited_history", True)
    assert trace.graph.path_ids(len(trace.graph) - 1).tolist() == [1, 2, 3, 4, 99, 6, 7, 8, 9]
    assert [int(sample.sampled.sum()) for sample in samples(trace)] == [2, 2]


@pytest.mark.parametrize(("field", "value"), [("is_copied_context", True), ("llm_call_count", 0), ("source", "user")])
def test_atif_what_no_model_said_here_is_not_sampled(tmp_path: Path, field: str, value: object) -> None:
    plain = json.loads((DATA / "atif.json").read_text())
    plain["steps"][2][field] = value
    trace = read(lines(tmp_path / "d", plain))[0]
    assert [origin for _, origin, _ in said(trace)].count("policy") == 1


def test_inspect_samples() -> None:
    traces = data("inspect.eval")
    assert endings(traces) == [
        "submitted/final_answer",
        "submitted/final_answer",
        "length_cut/generation_limit",
        "truncated/max_turns",
    ]
    assert [trace.reward for trace in traces] == [1.0, 0.0, 0.0, 0.0]
    assert [(trace.task.id, trace.head.member) for trace in traces] == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
    assert said(traces[0])[2:] == [
        ("assistant", "policy", "tool call for tool add"),
        ("tool", "environment", "3"),
        ("assistant", "policy", "3"),
    ]
    assert traces[0].graph.messages[2].tool_calls[0].arguments == {"x": 1, "y": 2}
    assert (traces[0].head.policies[0].name, traces[0].head.environment) == ("mockllm/model", "sums")
    assert traces[0].head.tools[0].name == "add"


def inspect_log(path: Path, **changes: object) -> Path:
    """The archive as one JSON log, its samples changed."""
    with opened_archive(DATA / "inspect.eval") as archive:
        log = json.loads(archive.read("header.json"))
        found = [json.loads(archive.read(name)) for name in archive.names if name.startswith("samples/")]
    log["samples"] = [{**sample, **changes} for sample in found]
    path.write_text(json.dumps(log))
    return path


def test_inspect_logs_of_one_document(tmp_path: Path) -> None:
    assert endings(read(inspect_log(tmp_path / "log.json"))) == endings(data("inspect.eval"))


@pytest.mark.parametrize(
    ("scores", "reward"),
    [
        ({"m": {"value": "P"}}, 0.5),
        ({"m": {"value": True}}, 1.0),
        ({"m": {"value": "rather good"}}, None),
        ({"m": {"value": 1}, "n": {"value": 0}}, None),
        ({"m": {"value": {"a": 1}}}, None),
        (None, None),
    ],
)
def test_inspect_scores(tmp_path: Path, scores: object, reward: float | None) -> None:
    assert read(inspect_log(tmp_path / "log.json", scores=scores))[0].reward == reward


@pytest.mark.parametrize(
    ("changes", "ending"),
    [
        ({"error": {"message": "broke"}}, "error/harness"),
        ({"limit": {"type": "token"}}, "truncated/max_tokens"),
        ({"limit": {"type": "operator"}}, "error/cancelled"),
        ({"limit": {"type": "custom"}}, "unknown/not_recorded"),
        ({"limit": None, "output": {"choices": [{"stop_reason": "model_length"}]}}, "truncated/context_overflow"),
        ({"limit": None, "output": {"choices": []}}, "unknown/not_recorded"),
    ],
)
def test_inspect_endings(tmp_path: Path, changes: dict[str, object], ending: str) -> None:
    assert endings(read(inspect_log(tmp_path / "log.json", **changes)))[0] == ending


def test_inspect_replies_that_nobody_generated_are_the_harness_s(tmp_path: Path) -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}],
    }
    (first, *_) = read(inspect_log(tmp_path / "log.json", messages=[message, {**message, "source": "generate"}]))
    assert [origin for _, origin, _ in said(first)] == ["harness", "policy"]
    assert first.graph.messages[1].reasoning == "hm"
    assert first.graph.messages[1].content == "a"


def test_an_archive_of_inspect_may_be_deflated(tmp_path: Path) -> None:
    with opened_archive(DATA / "inspect.eval") as archive, zipfile.ZipFile(tmp_path / "x.eval", "w") as made:
        for name in archive.names:
            made.writestr(name, archive.read(name), zipfile.ZIP_DEFLATED)
    assert ids(read(tmp_path / "x.eval")) == ids(data("inspect.eval"))


def ids(traces: list[Trace]) -> list[str]:
    return [trace.id for trace in traces]
