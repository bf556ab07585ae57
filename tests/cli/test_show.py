"""`rollbook show`: one line per rollout, one trace as text, and that hostile text stays text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from rollbook.cli.trace_view import FOLD
from rollbook.rewards import annotate, dispositions
from rollbook.run import open_run
from rollbook.store import AnnotationWriter, RunWriter
from rollbook.trace import (
    Annotation,
    ContextPolicy,
    Edge,
    EdgeLabel,
    Ending,
    ErrorNote,
    Fork,
    ForkReason,
    Message,
    NodeRef,
    Origin,
    Reason,
    Role,
    RunKind,
    Trace,
    make_runs,
)
from tests.cli.cli_made import dated_template, dated_words, document, made_run, refused, rollbook
from tests.run.run_made import BAD_CALL, CALL, script, small_trace

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold]markup[/bold] :smile: \ud800 \u202edrawkcab"


def stored(tmp_path: Path, trace: Trace) -> Path:
    with RunWriter.create(tmp_path / "run") as writer:
        trace.end(trace.tail.ending or Ending(Reason.FINAL_ANSWER))
        writer.seal(trace)
    return tmp_path / "run"


def test_one_line_a_rollout(tmp_path: Path) -> None:
    folder = made_run(tmp_path, said=(BAD_CALL, CALL, "It is 8."))
    lines = [line.split() for line in rollbook("show", folder).stdout.splitlines() if "submitted" in line]
    assert [line[0] for line in lines] == ["0000-0", "0000-1", "0001-0", "0001-1"]
    assert lines[0][1:5] == ["submitted/final_answer", "1.00", "used", "3"]
    assert " ".join(lines[0][6:-1]) == "1 invalid_json, 1 ok"
    assert max(map(len, rollbook("show", folder).stdout.splitlines())) <= 100


def test_many_kinds_of_calls_do_not_break_the_other_columns(tmp_path: Path) -> None:
    unknown = CALL.replace("double", "treble")
    reasoned = CALL.replace('"arguments"', '"parameters"')
    nameless = CALL.replace('"name"', '"nom"')
    folder = made_run(tmp_path, said=(BAD_CALL, unknown, reasoned, nameless, CALL, "It is 8."))
    lines = rollbook("show", folder).stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("submitted/final_answer" in line for line in lines) == 4


def test_a_missing_reward_is_not_shown_as_zero(tmp_path: Path) -> None:
    folder = stored(tmp_path, small_trace("a"))
    (line,) = [line for line in rollbook("show", folder).stdout.splitlines() if "submitted" in line]
    assert line.split()[:4] == ["a", "submitted/final_answer", "-", "undecided"]


def test_json_gives_each_rollout_with_its_disposition_and_advantage(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    rows = document(rollbook("show", folder, "--json"))["rollouts"]
    assert [row["rollout"] for row in rows] == sorted(open_run(folder).rollouts())
    assert {(row["disposition"]["fate"], row["advantage"], row["reward"]) for row in rows} == {("used", 0.0, 1.0)}


def test_one_trace_tells_what_happened(tmp_path: Path) -> None:
    folder = made_run(tmp_path, said=(BAD_CALL, CALL, "It is 8."))
    text = rollbook("show", folder, "0001-1").stdout
    for part in (
        "member 1, attempt 0",
        "tools double (in the prompt)",
        "ending submitted/final_answer",
        "reward 1.000",
        "disposition used by 'final_answer: score', advantage 0.000",
        "3 turns, 3 calls to the engine",
        "branch 0: 7 messages",
        "invalid_json: the tool call is not valid JSON",
        'tool call call_1_0: double {"number": 4}',
        "answers call_1_0 double",
        "call 2: stop, 7 sampled, logprobs raw, temperature 1, seed ",
        "It is 8.",
    ):
        assert part in text


def test_what_was_set_of_the_template_is_told(tmp_path: Path) -> None:
    folder = made_run(tmp_path, *dated_words(dated_template(tmp_path)))
    text = " ".join(rollbook("show", folder, "0001-1").stdout.split())
    assert "date 2026-01-31, variables {'place': 'Rome'}" in text


def test_the_context_policy_is_told_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    for policy in ContextPolicy:
        trace = Trace(msgspec.structs.replace(small_trace("r").head, context_policy=policy))
        trace.end(Ending(Reason.FINAL_ANSWER))
        (tmp_path / policy).mkdir()
        shown = rollbook("show", stored(tmp_path / policy, trace), "r").stdout
        assert ("context template" in shown) is (policy is ContextPolicy.TEMPLATE)


def test_messages_that_the_prompt_adds_are_one_line_unless_all_are_asked_for(tmp_path: Path) -> None:
    trace, parent = small_trace("a"), 2 - 1
    for text in ("example one", "example two", "example three"):
        message = Message(role=Role.USER, content=text)
        parent = trace.graph.add(message, parent=parent, origin=Origin.SYNTHETIC, token_ids=np.array([5, 6], np.int32),
                                 runs=make_runs((RunKind.CONTENT, 2)))  # fmt: skip
    folder = stored(tmp_path, trace)
    text = rollbook("show", folder, "a").stdout
    assert "[2..4] 3 messages that the prompt adds (3 user), 6 tokens; --full shows them" in text
    assert "example" not in text
    assert "example two" in rollbook("show", folder, "a", "--full").stdout


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_screen_keeps_heads_ids_and_numbers_whole(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_run(tmp_path, said=(BAD_CALL, CALL, "It is 8."))
    monkeypatch.setenv("COLUMNS", str(width))
    lines = rollbook("show", folder).stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    if width >= 80:
        assert max(map(len, lines)) <= width
        (heads,) = [line.split() for line in lines if " rollout " in line and " fate " in line]
        assert heads[:6] == ["rollout", "ending", "reward", "fate", "turns", "tokens"]
        rows = [line.split() for line in lines if "final_answer" in line]
        assert [row[0] for row in rows] == ["0000-0", "0000-1", "0001-0", "0001-1"]
        assert all(row[5].count("/") == 1 for row in rows)


def test_one_trace_as_json(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    found = document(rollbook("show", folder, "0000-0", "--json"))
    assert found["head"]["rollout"] == next(each for each in open_run(folder).rollouts() if each.endswith("0000-0"))
    assert [node["message"]["role"] for node in found["nodes"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert found["branches"] == [[0, 1, 2, 3, 4]]
    assert sum(node["sampled"] for node in found["nodes"]) == sum(call["completion_tokens"] for call in found["calls"])


@pytest.mark.parametrize(
    ("part", "says"), [("nothing", "has 'nothing' in its id"), ("0000", "fits 2 rollouts: "), ("-", "fits 4 rollouts")]
)
def test_a_part_must_name_one_rollout(tmp_path: Path, part: str, says: str) -> None:
    assert says in refused(rollbook("show", made_run(tmp_path), part))


def test_a_whole_id_wins_over_parts(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        for rollout in ("a", "ab"):
            trace = small_trace(rollout)
            trace.end(Ending(Reason.FINAL_ANSWER))
            writer.seal(trace)
    assert "rollout a\n" in rollbook("show", tmp_path / "run", "a").stdout


def test_each_id_that_the_table_lists_opens_its_own_rollout(tmp_path: Path) -> None:
    ids = ("0000-1", "0000-1.1", "0000-10", "0000-11", "10000-1")
    with RunWriter.create(tmp_path / "run") as writer:
        for each in ids:
            trace = small_trace(f"run-{each}")
            trace.head = msgspec.structs.replace(trace.head, run="run")
            trace.end(Ending(Reason.FINAL_ANSWER))
            writer.seal(trace)
    listed = [line.split()[0] for line in rollbook("show", tmp_path / "run").stdout.splitlines() if "final" in line]
    assert sorted(listed) == sorted(ids)
    for each in listed:
        assert f"rollout run-{each}\n" in rollbook("show", tmp_path / "run", each).stdout


@pytest.mark.parametrize("words", [(), ("a",), ("--json",), ("a", "--json"), ("a", "--full")], ids=str)
def test_hostile_text_is_shown_and_does_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    trace = small_trace("a")
    trace.graph.add(Message(role=Role.TOOL, content=HOSTILE, name=HOSTILE), parent=1, origin=Origin.ENVIRONMENT)
    trace.end(Ending(Reason.HARNESS, HOSTILE))
    trace.update(errors=(ErrorNote(HOSTILE, HOSTILE),), metrics={HOSTILE: 1.0})
    result = rollbook("show", stored(tmp_path, trace), *words)
    assert result.exit_code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)
    if words in {("a",), ("a", "--full")}:
        assert "\\x1b[2J\\x1b]0;owned\\x07 [bold]markup[/bold] :smile: \\ud800 \\u202edrawkcab" in result.stdout


def test_reasoning_stands_apart_from_what_was_said(tmp_path: Path) -> None:
    trace = small_trace("a")
    thought = Message(role=Role.ASSISTANT, reasoning="first this", content="then that")
    trace.graph.add(thought, parent=1, origin=Origin.HARNESS)
    text = rollbook("show", stored(tmp_path, trace), "a").stdout
    assert "    reasoning:\n      first this\n    then that\n" in text


def test_long_texts_fold_and_say_so(tmp_path: Path) -> None:
    trace = small_trace("a")
    trace.graph.add(Message(role=Role.USER, content=f"{'x' * 3000}END"), parent=1, origin=Origin.USER)
    folder = stored(tmp_path, trace)
    folded = rollbook("show", folder, "a").stdout
    assert f"[... {3003 - FOLD} characters left out; --full shows them ...]" in folded
    assert "END" in folded
    assert "x" * 3000 in rollbook("show", folder, "a", "--full").stdout


def test_branches_edges_and_failed_calls_are_told(tmp_path: Path) -> None:
    trace = small_trace("a")
    fork = Fork(reason=ForkReason.EDITED_HISTORY, detail="somebody changed it")
    trace.graph.add(Message(role=Role.ASSISTANT, content="again"), parent=0, origin=Origin.HARNESS, fork=fork)
    trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(2), target=NodeRef(1)))
    failed = trace.calls[0]
    trace.add_call(type(failed)(after=2, sampling=failed.sampling, finish="error", error="down for now"))  # type: ignore[arg-type]
    text = rollbook("show", stored(tmp_path, trace), "a").stdout
    assert "branch 1: 2 messages, the first 1 as above" in text
    assert "fork from node 0: edited_history somebody changed it" in text
    assert "edge rewrite_of: [2] -> [1]" in text
    assert "call 1 gave no message: error" in text
    assert "down for now" in text
    assert "- prompt" not in text


def test_what_cannot_be_read_is_told_on_stderr(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    (segment,) = folder.glob("segments/*.seg")
    segment.write_bytes(segment.read_bytes()[:-200])
    result = rollbook("show", folder)
    assert result.exit_code == 0
    assert "Not everything could be read" in result.stderr


def test_an_annotation_of_another_shape_is_a_message(tmp_path: Path) -> None:
    folder = stored(tmp_path, small_trace("r"))
    with AnnotationWriter(folder, "trainer") as stream:
        stream.write([Annotation(producer="trainer", name="advantage", rollout="r", value=0.5)])
    assert "'trainer', can write it again" in " ".join(refused(rollbook("show", folder)).split())


@pytest.mark.parametrize("words", [("show",), ("audit",), ("run", "test-double", "--out")])
def test_a_path_that_cannot_be_one_is_a_message(words: tuple[str, ...]) -> None:
    assert "File name too long" in refused(rollbook(*words, "a" * 300))


def test_a_copy_in_a_store_is_named_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    policy, url = script(tmp_path / "m", CALL, "It is 8."), f"file://{tmp_path}/bucket/demo"
    words = ("run", "test-double", "--policy", policy, "--tasks", "1", "--group", "1", "--out", tmp_path / "run")
    assert rollbook(*words, "--store", url).exit_code == 0
    assert rollbook("show", url).stdout.replace("\n", "").startswith(f"{url}: 1"), "a long URL is wrapped"


def test_values_of_a_facet_stand_in_their_order(tmp_path: Path) -> None:
    folder, traces = tmp_path / "run", [small_trace(name, task=name) for name in ("t-10", "t-9", "t-2")]
    with RunWriter.create(folder, {}) as writer:
        for trace in traces:
            trace.end(Ending(Reason.FINAL_ANSWER))
            trace.score(1.0)
            writer.seal(trace)
        writer.annotate(annotate(dispositions(traces)))
    lines = rollbook("show", folder, "--selection").stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith(" task")] == ["t-2", "t-9", "t-10"]


def test_what_was_selected_is_a_table(tmp_path: Path) -> None:
    folder = made_run(tmp_path, said=(CALL, "It is 8."))
    shown = rollbook("show", folder, "--selection").stdout
    assert "2 of 2 groups closed, 2 without a signal (all votes equal)" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["all", "4", "4", "0.0", "%", "-"] in lines
    assert ["tool", "double", "4", "4", "0.0", "%", "-"] in lines
    assert max(map(len, shown.splitlines())) <= 100
    found = document(rollbook("show", folder, "--selection", "--json"))["selection"]
    assert (found["groups"]["zero_variance"], found["whole"]["used"]) == (2, 4)
    assert "leave TRACE out" in refused(rollbook("show", folder, "0000-0", "--selection"))
