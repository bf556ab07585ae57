"""The program."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.policy.testing.__main__ import main
from tests.policy.testing.asking import send

COMMAND = [sys.executable, "-W", "error", "-m", "rollbook.policy.testing"]


def test_it_prints_its_url_and_leaves_when_it_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"s": [[5, 6]]}))
    words = ["--dialect", "vllm", "--script", str(script), "--faults", '{"requests": {"0": "busy"}}', "--model", "m"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = {"token_ids": [1], "sampling_params": {"max_tokens": 9}, "model": "m"}
        asked = [asyncio.run(send(url, "/inference/v1/generate", body, session="s")) for _ in range(2)]
        log = asyncio.run(send(url, "/_fake/log"))[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    assert [status for status, _, _ in asked] == [429, 200]
    assert asked[1][1]["choices"][0]["token_ids"] == [5, 6, 2]
    assert [entry.get("fault") for entry in log] == ["busy", None]


def test_it_leaves_at_the_end_of_its_input() -> None:
    with subprocess.Popen([*COMMAND, "--dialect", "sglang"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http://127.0.0.1:")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0


@pytest.mark.parametrize("words", [[], ["--dialect", "other"]])
def test_a_wrong_command_is_refused(words: list[str]) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--dialect" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--faults", "nonsense"], "'nonsense' is neither JSON nor a file"),
        (["--faults", "{"], "holds no FaultPlan"),
        (["--faults", '{"rates": {"nan": 2}}'], "at most 1 together"),
        (["--faults", '{"slow": -1}'], "none below 0"),
        (["--latency", '{"prefill": -1}'], "none below 0"),
        (["--script", "{"], "holds no dict"),
        (["--port", "99999"], "port 99999 cannot be listened on"),
        (["--vocabulary", "0"], "above 0"),
        (["--context-length", "-1"], "above 0"),
        (["--stop-id", "-1"], "stop ids"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--dialect", "vllm", *words])
    assert caught.value.code == 2
    assert told in capsys.readouterr().err
