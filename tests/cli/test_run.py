"""`rollbook run`: what it prints, what it refuses, and that it can be stopped and gone on with."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollbook.cli.run import _again, command
from rollbook.run import RunConfig, open_run, open_stream, read_resources, report
from rollbook.store import RunWriter
from rollbook.trace import ContextPolicy, Reason, Task, Trace
from tests.cli.cli_made import SAID, dated_template, dated_words, document, made_run, refused, rollbook
from tests.run.run_made import Double, script

ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
SMALL = ("--tasks", "2", "--group", "2")


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return script(tmp_path / "m", *SAID)


def run_here(tmp_path: Path, policy: str, *words: str | Path) -> str:
    """The message of a refused `run test-double`."""
    return refused(rollbook("run", "test-double", "--policy", policy, "--out", tmp_path / "run", *words))


def test_a_run_prints_what_came_out_and_what_comes_next(tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "my run"
    result = rollbook("run", "test-double", "--policy", policy, *SMALL, "--out", folder)
    assert result.exit_code == 0, result.output
    for title in ("Endings", "Dispositions", "Rewards by group", "Time split", "Totals", "Audit of 4 rollouts"):
        assert title in result.stdout
    assert "submitted   final_answer" in result.stdout
    assert f"rollbook show '{folder}'" in result.stdout
    tables = result.stdout.partition("Next:")[0]
    assert max(map(len, tables.splitlines())) <= 100
    assert "4 of 4 rollouts" in result.stderr


def test_a_limit_that_bound_nothing_is_said(tmp_path: Path, policy: str) -> None:
    words = ("run", "test-double", "--policy", policy, *SMALL)
    assert "bound nothing" not in rollbook(*words, "--limit", "tool:double=1", "--out", tmp_path / "a").stderr
    said = " ".join(rollbook(*words, "--limit", "tool:doubel=1", "--out", tmp_path / "b").stderr.split())
    assert "Nothing used tool:doubel, so the limit bound nothing; used: engine, sandbox, scoring, tool:double." in said


def test_an_open_breaker_says_how_to_go_on(tmp_path: Path) -> None:
    policy = script(tmp_path / "m", Reason.ENGINE_TIMEOUT)
    said = run_here(tmp_path, policy, "--tasks", "20", "--group", "2")
    assert "more than a share of 0.5" in said
    assert said.rstrip().endswith(f"--out {tmp_path / 'run'} --resume")


def test_json_is_one_document_and_the_rest_goes_to_stderr(tmp_path: Path, policy: str) -> None:
    result = rollbook("run", "test-double", "--policy", policy, *SMALL, "--out", tmp_path / "run", "--json")
    found = document(result)
    assert found["run"] == str(tmp_path / "run")
    assert found["report"] == json.loads(
        json.dumps(report(open_run(tmp_path / "run"), read_resources(tmp_path / "run")).to_dict())
    )
    assert found["audit"]["rollouts"] == 4


class Talker(Double):
    """Prints all the time."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        print("tasks")  # noqa: T201
        return super().tasks(count, seed)

    async def score(self, trace: Trace) -> float:
        print("scored")  # noqa: T201
        return await super().score(trace)


def test_what_an_environment_prints_is_no_part_of_the_document(tmp_path: Path, policy: str) -> None:
    place = f"{__name__}:Talker"
    result = rollbook("run", place, "--policy", policy, *SMALL, "--out", tmp_path / "run", "--json")
    assert document(result)["audit"]["rollouts"] == 4
    assert result.stderr.count("scored") == 4


def test_the_folder_is_named_after_environment_and_day(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert rollbook("run", "test-double", "--policy", policy, *SMALL).exit_code == 0
        assert len(list((tmp_path / "runs").glob(f"test-double-*-{number}"))) == 1


def test_an_environment_in_the_working_folder_runs_by_its_place(tmp_path: Path, policy: str) -> None:
    (tmp_path / "my_world.py").write_text("from tests.run.run_made import Double as MyWorld\n")
    words = ["run", "my_world:MyWorld", "--policy", policy, *SMALL, "--option", "right=It", "--out", "mine"]
    subprocess.run([sys.executable, "-m", "rollbook.cli", *words], cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert len(open_run(tmp_path / "mine")) == 4


def test_a_changed_distribution_is_said_and_the_audit_breaks(tmp_path: Path, policy: str) -> None:
    out = ("--out", tmp_path / "run")
    result = rollbook("run", "test-double", "--policy", policy, *SMALL, *out, "--temperature", "0.7", "--top-k", "5")
    assert "temperature 0.7, top-k 5: tokens are not drawn from the model's own distribution" in result.stderr
    assert result.exit_code == 1
    assert "broke" in result.stdout
    assert "rollbook export" not in result.stdout


def test_an_export_is_offered_only_where_there_is_a_vote(tmp_path: Path, policy: str) -> None:
    for world, votes in (("test-double", True), ("test-raises", False)):
        result = rollbook("run", world, "--policy", policy, *SMALL, "--out", tmp_path / world)
        assert ("rollbook export" in result.stdout) is votes
        assert ("No rollout has a vote" in result.stdout) is not votes


def test_options_are_read_as_json_or_text(tmp_path: Path, policy: str) -> None:
    found = document(rollbook("run", "test-double", "--policy", policy, *SMALL, "--out", tmp_path / "run", "--json",
                              "--option", "right=nine"))  # fmt: skip
    assert {member["reward"] for group in found["report"]["groups"] for member in group["members"]} == {0.0}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--option", "right"), "write KEY=VALUE"),
        (("--option", "right=1", "--option", "right=2"), "given twice"),
        (("--option", "wrong=1"), "no option 'wrong'"),
        (("--allow-changed",), "--allow-changed goes with --resume only"),
        (("--option", "right=" + "[" * 100_000), "nested too deep"),
        (("--temperature", "-1"), "temperature must be"),
        (("--top-p", "0"), "top_p must be"),
        (("--top-k", "-1"), "top_k must be"),
        (("--deadline", "0"), "deadline must be above 0"),
        (("--start-jitter", "inf"), "a finite time"),
        (("--start-jitter", "nan"), "a finite time"),
        (("--tasks", "0"), "0 is not in the range"),
        (("--group", "x"), "'x' is not a valid integer"),
        (("--policy", "gpt"), "is not a policy"),
        (("--policy", "scripted:none.json"), "none.json"),
    ],
)
def test_bad_values_say_what_is_wrong_and_make_nothing(
    tmp_path: Path, policy: str, words: tuple[str, ...], says: str
) -> None:
    assert says in run_here(tmp_path, policy, *words)
    assert not (tmp_path / "run").exists()


def test_an_unknown_environment_names_the_nearest(tmp_path: Path) -> None:
    says = refused(rollbook("run", "calculater", "--out", tmp_path / "run", "--cache", tmp_path / "cache"))
    assert "did you mean 'calculator'?" in says
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("place", ["no_such_module:World", "json:World", "json:loads"])
def test_a_place_that_holds_no_environment_is_refused(tmp_path: Path, place: str, policy: str) -> None:
    says = refused(rollbook("run", place, "--policy", policy, "--out", tmp_path / "run"))
    assert place.partition(":")[0] in says


def test_a_folder_that_is_taken_says_how_to_go_on(tmp_path: Path, policy: str) -> None:
    made_run(tmp_path)
    assert "--resume" in run_here(tmp_path, policy)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    assert "is not empty" in run_here(tmp_path, policy, "--out", tmp_path / "other")


def test_resume_needs_a_run_and_its_folder(tmp_path: Path, policy: str) -> None:
    assert "--out" in refused(rollbook("run", "test-double", "--policy", policy, "--resume"))
    assert "does not exist" in run_here(tmp_path, policy, "--resume")


def test_a_run_whose_groups_a_trainer_takes_does_not_go_on_without_it(tmp_path: Path, policy: str) -> None:
    async def take_one() -> None:
        config = RunConfig(environment="test-double", policy=policy, tasks=2, group=2)
        async with open_stream(config, tmp_path / "run") as stream:
            await anext(aiter(stream))

    asyncio.run(take_one())
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    says = run_here(tmp_path, policy, *SMALL, "--resume")
    assert "go on with open_stream(..., resume=True), or start a new run" in " ".join(says.split())
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_resume_that_is_asked_for_something_else_lists_it(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    policy = script(tmp_path / "model-run", *SAID)
    says = refused(rollbook("run", "test-double", "--policy", policy, *SMALL, "--out", folder, "--resume",
                            "--max-turns", "3", "--temperature", "0.5"))  # fmt: skip
    assert "limits.max_turns: 16 -> 3\n" in says
    assert "sampling.temperature: 1.0 -> 0.5\n" in says
    assert "--allow-changed" in says


def test_the_context_policy_is_recorded_and_kept_by_a_resume(tmp_path: Path) -> None:
    folder = made_run(tmp_path, "--context", "template")
    assert {trace.head.context_policy for trace in open_run(folder).traces()} == {ContextPolicy.TEMPLATE}
    again = ("run", "test-double", "--policy", script(tmp_path / "model-run", *SAID), *SMALL, "--out", folder)
    assert "context: 'template' -> 'keep'\n" in refused(rollbook(*again, "--resume"))
    assert rollbook(*again, "--context", "template", "--resume").exit_code == 0
    assert "'keep', 'template'" in refused(rollbook(*again, "--context", "none"))


def test_a_run_that_was_stored_before_there_was_a_choice_kept(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    manifest = json.loads((folder / "run.json").read_text())
    del manifest["config"]["asked"]["context"]
    (folder / "run.json").write_text(json.dumps(manifest))
    again = ("run", "test-double", "--policy", script(tmp_path / "model-run", *SAID), *SMALL, "--out", folder)
    assert "context: 'keep' -> 'template'\n" in refused(rollbook(*again, "--context", "template", "--resume"))
    assert rollbook(*again, "--resume").exit_code == 0


def test_a_template_is_told_what_was_set_and_a_resume_asks_for_the_same(tmp_path: Path) -> None:
    words = dated_words(dated_template(tmp_path))
    folder = made_run(tmp_path, *words)
    for trace in open_run(folder).traces():
        (policy,) = trace.head.policies
        assert policy.template_settings == {"date": "2026-01-31", "variables": {"place": "Rome"}}
        assert trace.head.config["template"] == str(tmp_path / "dated.jinja")
    again = ("run", "test-double", "--policy", script(tmp_path / "model-run", *SAID), *SMALL, "--out", folder)
    says = refused(rollbook(*again, "--resume"))
    assert f"template: {str(tmp_path / 'dated.jinja')!r} -> None\n" in says
    assert "template_date: '2026-01-31' -> None\n" in says
    assert "template_variables.place: 'Rome' -> None\n" in says
    assert rollbook(*again, *words, "--resume").exit_code == 0


def test_a_run_that_was_stored_before_a_template_could_be_set_set_nothing(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    manifest = json.loads((folder / "run.json").read_text())
    for name in ("template", "template_date", "template_variables"):
        del manifest["config"]["asked"][name]
    (folder / "run.json").write_text(json.dumps(manifest))
    again = ("run", "test-double", "--policy", script(tmp_path / "model-run", *SAID), *SMALL, "--out", folder)
    assert "template_variables.place: None -> 'Rome'\n" in refused(rollbook(*again, "--set", "place=Rome", "--resume"))
    assert rollbook(*again, "--resume").exit_code == 0


def test_the_command_that_goes_on_sets_the_same(tmp_path: Path) -> None:
    words = dated_words(dated_template(tmp_path))
    given = ["test-double", *words]
    with command.make_context("run", list(given)) as ctx:
        assert shlex.split(_again(ctx, tmp_path))[1:] == [*given, "--out", str(tmp_path), "--resume"]


def test_a_template_that_cannot_be_used_is_refused_before_a_folder_is_made(tmp_path: Path, policy: str) -> None:
    assert "cannot read" in run_here(tmp_path, policy, "--template", tmp_path / "none.jinja")
    assert "give a fixed one (date, or --date" in run_here(tmp_path, policy, "--template", dated_template(tmp_path))
    assert "messages: the renderer itself gives" in run_here(tmp_path, policy, "--set", "messages=1")
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    policy = script(tmp_path / "model-run", *SAID)
    with RunWriter.open(folder):
        says = refused(rollbook("run", "test-double", "--policy", policy, *SMALL, "--out", folder, "--resume"))
    assert "is being written by another process" in says


class Leaver(Double):
    """Its tool starts a task of its own, which leaves the process."""

    async def cleanup(self) -> None:
        async def leave() -> None:
            sys.exit(0)

        await asyncio.create_task(leave())


def test_a_run_that_is_ended_from_inside_is_no_success(tmp_path: Path, policy: str) -> None:
    place = f"{__name__}:Leaver"
    one = ("--tasks", "1", "--group", "1")  # each would leave again while the loop cancels the others
    message = refused(rollbook("run", place, "--policy", policy, *one, "--out", tmp_path / "run"))
    assert "stopped from inside, by code that it ran (SystemExit)" in message
    assert "--resume" in message


def knowing_test_worlds(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that knows the environments of the tests."""
    (tmp_path / "sitecustomize.py").write_text("import tests.run.run_made\n")
    return {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{ENVIRONMENT['PYTHONPATH']}"}


def command_of(message: str) -> list[str]:
    """The words of the command that a message tells to run."""
    words = shlex.split(message.strip().splitlines()[-1])
    assert words[:3] == ["python", "-m", "rollbook.cli"]
    return words[3:]


def test_a_full_disk_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    policy = script(tmp_path / "m", *SAID)
    run = ["run", "test-double", "--policy", policy, "--tasks", "8", "--group", "4", "--out", str(tmp_path / "run")]
    limited = f"ulimit -f 60; exec {shlex.join([sys.executable, '-m', 'rollbook.cli', *run])}"
    done = subprocess.run(
        ["bash", "-c", limited], env=knowing_test_worlds(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "Mend that" in done.stderr
    kept = [row.rollout for row in open_run(tmp_path / "run").summaries() if row.reward is not None]
    assert 0 < len(kept) < 32
    again = rollbook(*command_of(done.stderr))
    assert again.exit_code in (0, 1), again.output
    scored = [row.rollout for row in open_run(tmp_path / "run").summaries() if row.reward is not None]
    assert len(scored) == 32
    assert set(kept) <= set(scored)


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    policy = script(tmp_path / "m", *SAID)
    file = tmp_path / "m" / "script.json"
    steps = json.loads(file.read_text())
    for step in steps["replies"]:
        step["delay"] = 0.05
    file.write_text(json.dumps(steps))
    folder = tmp_path / "run"
    words = ["run", "test-double", "--policy", policy, "--tasks", "20", "--concurrency", "2", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook.cli", *words],
        env=knowing_test_worlds(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 30
    while not list(folder.glob("segments/*.seg")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "finished rollouts are kept" in err
    kept = {row.rollout for row in open_run(folder).summaries() if row.reward is not None}
    assert 0 < len(kept) < 80
    for words in (["show", folder], ["audit", folder, "--no-model"]):
        told = rollbook(*words).stderr
        assert f"This run is not finished: {len(kept)} of 80 rollouts are done, " in told
        assert f"--out {folder} --resume" in " ".join(told.split())
    for step in steps["replies"]:
        step["delay"] = 0.0
    file.write_text(json.dumps(steps))
    again = rollbook(*command_of(err))
    assert again.exit_code in (0, 1), again.output
    assert "finished before" in again.stderr
    scored = [row for row in open_run(folder).summaries() if row.reward is not None]
    assert len({(row.group, row.member) for row in scored}) == len(scored) == 80
    assert kept <= {row.rollout for row in scored}
