"""Real engines, each in a process of its own on a free loopback port; nothing of them is left when the block ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.slow.engines.models import EngineModels

__all__ = ["ENGINE_CONTEXT", "ServerFailed", "llama_cpp", "vllm"]

ENGINE_CONTEXT = 4096
"""Tokens of context of each server."""
START_SECONDS = 600.0
"""How long a start may take: vLLM on a busy machine of two cores needs minutes."""
STOP_SECONDS = 30.0
HERE = Path(__file__).parent


class ServerFailed(RuntimeError):
    """The engine did not come up."""


@contextmanager
def vllm(
    python: Path,
    models: EngineModels,
    log: Path,
    *,
    name: str = "smollm2",
    dtype: str = "bfloat16",
    context: int = ENGINE_CONTEXT,
) -> Generator[str]:
    """vLLM on the CPU, with its development routes (weight updates); gives its URL. `context`: tokens of one sequence,
    at most what the model was trained for."""
    port = _free_port()
    words = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", str(models.hf), "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", dtype, "--max-model-len", str(context), "--max-num-seqs", "16", "--enforce-eager"]
    words += ["--max-logprobs", "20", "--enable-scale-out", "--enable-prompt-tokens-details"]
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
    }
    with _server(words, settings, port, "/health", log) as url:
        yield url


@contextmanager
def llama_cpp(models: EngineModels, log: Path) -> Generator[str]:
    """llama.cpp's server on float32 weights; gives its URL."""
    port = _free_port()
    words = [sys.executable, str(HERE / "llama_server.py"), str(models.gguf), str(port)]
    with _server(words, {"OMP_NUM_THREADS": "1"}, port, "/health", log) as url:
        yield url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _server(words: Sequence[str], settings: dict[str, str], port: int, health: str, log: Path) -> Generator[str]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=subprocess.STDOUT, env=os.environ | settings, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url + health, log)
        yield url
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ServerFailed(
                f"the engine ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}"
            )
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise ServerFailed(f"no answer within {START_SECONDS:g} s:\n{log.read_text(errors='replace')[-3000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The whole process group: vLLM has children of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
