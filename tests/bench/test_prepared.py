"""Prepared replies: the same words as the full fake's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from bench.prepared import main, prepare

from rollbook.policy.http import EngineAddress
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.testing import Dialect
from rollbook.trace import Finish, Sampling
from tests.policy.contract.clients import CLIENTS, Client
from tests.policy.held import sampled

REPLIES = [([5, 6, 7, 2], [-0.1, -0.2, -0.3, -0.4]), ([8, 2], [-1.5, -2.5])]


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS if each.name != "vllm-completions"], ids=lambda each: each.name
)
def test_a_client_takes_them(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    file.write_text(json.dumps({"replies": [{"token_ids": ids, "logprobs": values} for ids, values in REPLIES]}))
    command = [sys.executable, "-m", "bench.prepared", str(file), "--dialect", client.dialect]

    async def main(url: str) -> None:
        policy = client.build(RemoteConfig(name="x", address=EngineAddress(url=url), stop_ids=frozenset({2})))
        await policy.start()
        try:
            for size in (1, 9, 10, 150):
                prompt = np.arange(1, size + 1, dtype=np.int32)
                done = await sampled(policy, prompt, Sampling(max_tokens=8, seed=1), session="s")
                given = {len(ids): (ids, values) for ids, values in REPLIES}[len(done.token_ids)]
                assert done.token_ids.tolist() == given[0]
                assert np.allclose(done.logprobs, given[1])
                assert done.finish is Finish.STOP
                assert done.prompt_tokens == size
        finally:
            await policy.close()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        asyncio.run(main(process.stdout.readline().strip()))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0


@pytest.mark.parametrize("dialect", [Dialect.VLLM, Dialect.SGLANG, Dialect.LLAMACPP])
def test_count_and_echo_stand_where_they_belong(dialect: Dialect) -> None:
    (prepared,) = prepare(dialect, REPLIES[:1])
    reply = json.loads(prepared.body(b"11,12,13"))
    match dialect:
        case Dialect.VLLM:
            assert (reply["prompt_token_ids"], reply["usage"]["prompt_tokens"]) == ([11, 12, 13], 3)
        case Dialect.SGLANG:
            assert (reply["prompt_token_ids"], reply["meta_info"]["prompt_tokens"]) == ([11, 12, 13], 3)
        case _:
            assert (reply["tokens_evaluated"], reply["timings"]["prompt_n"]) == (3, 3)


def test_text_and_names_stand_beside_the_ids_where_they_are_asked_for() -> None:
    (spoken,) = prepare(Dialect.SGLANG, REPLIES[:1], ["said"])
    assert json.loads(spoken.body(b"1"))["text"] == "said"
    (named,) = prepare(Dialect.VLLM, REPLIES[:1], named=True)
    rows = json.loads(named.body(b"1"))["choices"][0]["logprobs"]["content"]
    assert [row["token"] for row in rows] == [f"token_id:{row['token_id']}" for row in rows]


@pytest.mark.parametrize(("listed", "prepared"), [(0, True), (1, True), (2, False)])
def test_spaces_between_the_fields_do_not_matter_and_longer_lists_go_to_the_full_fake(
    listed: int, prepared: bool, tmp_path: Path
) -> None:
    file = tmp_path / "replies.json"
    file.write_text(json.dumps({"replies": [{"token_ids": REPLIES[0][0], "logprobs": REPLIES[0][1]}]}))
    command = [sys.executable, "-m", "bench.prepared", str(file), "--dialect", "vllm"]
    asked = {"model": "fake", "token_ids": [1, 2], "sampling_params": {"max_tokens": 3, "logprobs": listed}}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        request = urllib.request.Request(f"{url}/inference/v1/generate", json.dumps(asked).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as reply:
            ids = json.load(reply)["choices"][0]["token_ids"]
        assert process.stdin is not None
        process.stdin.close()
    assert (ids == REPLIES[0][0]) is prepared


def test_what_holds_no_replies_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nope", "--dialect", "vllm"])
    assert caught.value.code == 2
    assert "neither JSON nor a file" in capsys.readouterr().err
