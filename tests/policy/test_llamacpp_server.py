"""The engine's life and its door, and that our tokenizer is the engine's."""

import json
import os
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

import pytest
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.policy.llamacpp_server import EmbeddedServer, ServerConfig


def config(weights, **changes):
    return ServerConfig(**({"weights": weights, "context_length": 256, "slots": 1, "threads": 1} | changes))


@pytest.fixture(scope="module")
def server(smollm2):
    server = EmbeddedServer(config(smollm2.weights))
    yield server
    server.stop()


def post(url, body, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


@pytest.mark.parametrize("key", [None, "wrong"])
@pytest.mark.parametrize("route", ["completion", "tokenize", "v1/chat/completions"])
def test_nobody_gets_in_without_the_key(server, route, key):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(f"{server.url}/{route}", {"prompt": [1], "content": "x"}, key)
    assert caught.value.code == 401
    caught.value.close()


def test_it_listens_on_loopback_only_with_a_key_of_its_own(server):
    assert server.url.startswith("http://127.0.0.1:")
    assert len(server.key) >= 32


TEXTS = [
    "Hello world",
    " leading and trailing  ",
    "a\n\n\tb\r\n",
    "12345 3.14 1,000",
    "café naïve Zürich",
    "日本語テキスト 한국어",
    "🎉🚀👩‍👩‍👧‍👦 flags 🇨🇭",
    "def f(x):\n    return x**2  # half\n",
    "don't we'll I'M",
    "<|im_end|>",
    "<|im_start|>system\nx<|im_end|>",
    '<tool_call>\n{"name": "calculator"}\n</tool_call>',
    "<reponame>",
    "\u200b\ufeff\x00x",
    "é e\u0301",
    "¼ ² ①",
    "x" * 300,
    "...!?—“”",
]


@pytest.mark.parametrize("text", TEXTS)
def test_content_gets_the_engines_own_ids(server, smollm2, text):
    """Content: no added tokens in play, neither here nor there."""
    document = json.loads(smollm2.tokenizer_json)
    document["added_tokens"] = []
    body = {"content": text, "add_special": False, "parse_special": False}
    expected = post(f"{server.url}/tokenize", body, server.key)["tokens"]
    assert Tokenizer.from_str(json.dumps(document)).encode(text).ids == expected


@pytest.mark.parametrize("text", TEXTS)
def test_scaffold_gets_the_engines_own_ids(server, smollm2, text):
    body = {"content": text, "add_special": False, "parse_special": True}
    expected = post(f"{server.url}/tokenize", body, server.key)["tokens"]
    assert Tokenizer.from_str(smollm2.tokenizer_json.decode()).encode(text).ids == expected


def test_stopping_frees_port_and_threads(smollm2):
    before = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
    server = EmbeddedServer(config(smollm2.weights))
    server.stop()
    server.stop()
    with pytest.raises(urllib.error.URLError):
        post(f"{server.url}/completion", {"prompt": [1]}, server.key)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/task")) <= before + 1


def test_a_missing_and_a_damaged_file_are_model_errors(tmp_path, smollm2):
    with pytest.raises(ModelError, match="no model file"):
        EmbeddedServer(config(tmp_path / "none.gguf"))
    cut = tmp_path / "cut.gguf"
    with smollm2.weights.open("rb") as file:
        cut.write_bytes(file.read(4_000_000))
    with pytest.raises(ModelError, match=r"cannot load .*cut\.gguf"):
        EmbeddedServer(config(cut))


@pytest.mark.parametrize("closing", ["await policy.close()", "pass"])
def test_the_process_ends_promptly_closed_or_not(smollm2, closing):
    code = f"""
        import asyncio, numpy as np
        from pathlib import Path
        from rollbook.policy.local import LocalConfig, LocalPolicy
        from rollbook.trace.call import Sampling
        async def main():
            weights = Path({str(smollm2.weights)!r})
            policy = LocalPolicy(LocalConfig(name="x", weights=weights, stop_ids=frozenset({{2}})))
            await policy.start()
            await policy.sample(np.array([1, 9], np.int32), Sampling(max_tokens=2), session="s")
            {closing}
            print("done", flush=True)
        asyncio.run(main())
    """
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "done\n"
    assert time.monotonic() - started < 20
