"""Rollbook beside strands-env and beside verifiers: the same work, against the same fake engine, in the same run.

Each pair speaks one dialect: strands-sglang SGLang's ``/generate``, verifiers' train client vLLM's
``/inference/v1/generate``. Tokenizer and template are Qwen3's for all, the prompt, the tool, its results and the
prepared replies are the same, and so is the number of rollouts in flight; the engine is a process of its own that
answers at once, and its time is not counted. The two of a pair run in turns, each time in a new process, and the
median over all batches of all processes stands. A pair whose sides did not do the same work is an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tests.real_tokenizers import TokenizerFiles
from tests.real_tokenizers import tokenizer as fetched
from tokenizers import Tokenizer

from bench.corpus import Corpus
from bench.effort import Effort
from bench.peers.measuring import Work
from bench.rows import Of, Peer, Row, Target
from bench.toolchat import build_qwen3
from bench.turns import OBSERVED, SAMPLED

__all__ = ["PAIRS", "Pair", "check_same", "measure_peers"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DIFFERENT = 100
"""Different replies and results."""
CALL = 35
"""Tokens of the call in a reply, about."""
ALIKE = 0.05
"""How far counts of tokens may lie apart: the sides spell the tool and a turn's end a little differently."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A peer and the dialect that it speaks."""

    name: str
    side: str
    """Its script."""
    dialect: str
    times: float
    """How many times below it we are to be."""


PAIRS = (
    Pair(name="strands-env", side="strands_side.py", dialect="sglang", times=2.0),
    Pair(name="verifiers", side="verifiers_side.py", dialect="vllm", times=5.0),
)


def measure_peers(
    environments: dict[str, Path], effort: Effort, pairs: Sequence[Pair] = PAIRS
) -> tuple[list[Row], dict[str, Any]]:
    """Rows, and what each side said of itself. `environments`: the Python of each peer's environment."""
    files = fetched("qwen3")
    corpus = Corpus(build_qwen3(files), effort.characters)
    rows: list[Row] = []
    said: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rollbook-peers-") as scratch:
        folder = Path(scratch)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "tokenizer.json").write_bytes(files.tokenizer_json)
        (folder / "tokenizer" / "tokenizer_config.json").write_bytes(files.config_json)
        for pair in pairs:
            with _engine(files, corpus, pair, folder) as url:
                for turns, at_once in effort.peers_shapes:
                    work = _work(corpus, url, folder, turns, at_once, effort)
                    ours, theirs = _in_turns(pair, work, environments[pair.name], effort.peers_processes)
                    check_same(pair, ours, theirs)
                    said[f"{pair.name}, {turns} turns, {at_once} in flight"] = {"ours": ours, "theirs": theirs}
                    rows.append(_row(pair, work, ours, theirs))
    return rows, said


def _work(corpus: Corpus, url: str, folder: Path, turns: int, at_once: int, effort: Effort) -> Work:
    rng = np.random.default_rng(6)
    return Work(
        url=url,
        tokenizer=str(folder / "tokenizer"),
        scratch="",
        prompt="Find the bug.",
        results=[corpus.cut(rng, OBSERVED)[1] for _ in range(DIFFERENT)],
        turns=turns,
        at_once=at_once,
        repeats=effort.peers_repeats,
    )


@contextmanager
def _engine(files: TokenizerFiles, corpus: Corpus, pair: Pair, folder: Path) -> Generator[str]:
    """The URL of the fake engine."""
    file = folder / f"{pair.dialect}.json"
    file.write_text(json.dumps({"replies": _replies(files, corpus), "named": True}))
    command = [sys.executable, "-m", "bench.prepared", str(file), "--dialect", pair.dialect]
    command += ["--context-length", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _replies(files: TokenizerFiles, corpus: Corpus) -> list[dict[str, Any]]:
    """Some text and one call of the tool, as the model would sample it; an engine's text of it is without the token
    that ended the turn."""
    tokenizer = Tokenizer.from_str(files.tokenizer_json.decode())
    rng = np.random.default_rng(5)
    found: list[dict[str, Any]] = []
    for number in range(DIFFERENT):
        call = json.dumps({"name": "read", "arguments": {"path": f"lib/module_{number}.py", "line": number}})
        said = corpus.cut(rng, SAMPLED - CALL)[1].replace("\ufffd", "?").strip()
        text = f"{said}\n<tool_call>\n{call}\n</tool_call>"
        ids = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False).ids
        logprobs = -rng.exponential(1.0, len(ids)).astype(np.float32)
        found.append({"token_ids": ids, "logprobs": logprobs.tolist(), "text": text})
    return found


def _in_turns(pair: Pair, work: Work, python: Path, processes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What our processes and theirs said, each joined to one."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(processes):
        ours.append(_side([sys.executable, str(HERE / "ours_side.py")], work, pair.dialect))
        theirs.append(_side([str(python), str(HERE / pair.side)], work, pair.dialect))
    return _joined(ours), _joined(theirs)


def _side(command: list[str], work: Work, *arguments: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rollbook-side-") as scratch:
        file = Path(scratch) / "work.json"
        file.write_text(json.dumps({**asdict(work), "scratch": scratch}))
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TOKENIZERS_PARALLELISM": "false"}
        if command[0] != sys.executable:
            del env["PYTHONPATH"]
            env["HF_HUB_OFFLINE"] = "1"
        done = subprocess.run([*command, str(file), *arguments], env=env, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.splitlines()[-1])


def _joined(said: list[dict[str, Any]]) -> dict[str, Any]:
    costs = [cost for each in said for cost in each["cpu_seconds"]]
    largest = max(each["rss_mb"] or 0.0 for each in said)
    return {**said[-1], "cpu_seconds": costs, "rss_mb": largest or None, "ms_a_turn": round(1e3 * median(costs), 4)}


def check_same(pair: Pair, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Turns and calls are equal, tokens nearly."""
    one, other = ours["batch"], theirs["batch"]
    for what in ("turns", "tool_calls"):
        if one[what] != other[what]:
            raise RuntimeError(f"{pair.name}: {other[what]} {what}, ours {one[what]}: the figures would not compare")
    for what in ("sampled", "prompts"):
        if abs(one[what] - other[what]) > ALIKE * one[what]:
            raise RuntimeError(f"{pair.name}: {other[what]} tokens {what}, ours {one[what]}")


def _row(pair: Pair, work: Work, ours: dict[str, Any], theirs: dict[str, Any]) -> Row:
    tokens = ours["batch"]["prompts"] / ours["batch"]["turns"]
    tries = len(ours["cpu_seconds"])
    return Row(
        name=f"CPU per turn beside {pair.name}, {work.turns} turns, {work.at_once} in flight",
        value=ours["ms_a_turn"],
        unit="ms",
        how=f"median of {tries} batches, {pair.dialect}, prompts of {tokens:.0f} tokens on the mean",
        target=Target(limit=round(1 / pair.times, 3), of=Of.RATIO),
        peer=Peer(" ".join((pair.name, theirs["versions"][pair.name])), theirs["ms_a_turn"]),
    )
