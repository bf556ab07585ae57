"""Rollouts as training makes them: 20 turns, about 8.2k tokens of which 3.4k are sampled.

Text and ids are source code; logprobs are random float32, for their mantissas do not compress. Tasks come in groups
of 8 that share a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from bench.corpus import Corpus
from rollbook.trace import (
    ROOT,
    Call,
    Ending,
    Finish,
    LogprobKind,
    Message,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    RunKind,
    Sampling,
    Task,
    TimeSplit,
    ToolCall,
    ToolSpec,
    Trace,
    TraceHead,
    make_runs,
)

__all__ = ["TURNS", "Maker"]

TURNS, GROUP = 20, 8
PROMPT, SAMPLED, OBSERVED = 640, 170, 206
"""Tokens of the first observation, and the mean of a reply and of a tool result."""
SCAFFOLD = 4
"""Tokens that the template puts before a message."""

_TOOL = ToolSpec(
    name="run",
    description="Run a program and give back what it prints.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)


class Maker:
    """Makes traces; the same seed and number give the same one."""

    def __init__(self, corpus: Corpus, seed: int = 0, turns: int = TURNS) -> None:
        self._corpus, self._seed, self._turns = corpus, seed, turns

    def longer(self, times: int) -> Maker:
        """A maker of rollouts with so many times the turns."""
        return Maker(self._corpus, self._seed, self._turns * times)

    def trace(self, number: int) -> Trace:
        """A whole trace that has its ending and is not sealed."""
        trace = Trace(self._head(number))
        for _ in self.grow(trace, number):
            pass
        rng = np.random.default_rng([self._seed, number, 1])
        trace.end(Ending(Reason.FINAL_ANSWER))
        trace.score(float(rng.random() < 0.35), {"tests": float(rng.random())})
        trace.update(
            times=TimeSplit(wall=float(rng.exponential(60.0)), engine=float(rng.exponential(40.0))), finished=1.0e9
        )
        return trace

    def started(self, number: int) -> Trace:
        """The same trace with nothing in it."""
        return Trace(self._head(number))

    def grow(self, trace: Trace, number: int) -> Iterator[int]:
        """Fill a started trace; yields behind each reply, where the rollout loop makes it durable."""
        rng = np.random.default_rng([self._seed, number])
        shared = np.random.default_rng([self._seed, number // GROUP, 2])
        leaf = self._observe(trace, ROOT, shared, Role.USER, PROMPT)
        for turn in range(self._turns):
            leaf = self._reply(trace, leaf, rng, turn)
            yield turn
            leaf = self._observe(trace, leaf, rng, Role.TOOL, _around(rng, OBSERVED), turn)

    def _head(self, number: int) -> TraceHead:
        return TraceHead(
            rollout=f"{number // GROUP:06d}-{number % GROUP}",
            group=f"{number // GROUP:06d}",
            task=Task(id=f"task-{number // GROUP}", prompt="see the first message"),
            policies=(PolicyRecord(name="policy", engine="scripted", tokenizer_hash="a" * 64, template_hash="b" * 64),),
            run="bench",
            member=number % GROUP,
            environment="swe-like",
            tools=(_TOOL,),
            tools_rendered=True,
            config={"max_turns": self._turns, "sampling": {"temperature": 1.0}},
            started=1.0e9,
        )

    def _observe(
        self, trace: Trace, leaf: int, rng: np.random.Generator, role: Role, tokens: int, turn: int | None = None
    ) -> int:
        ids, text = self._corpus.cut(rng, tokens)
        answers = None if turn is None else f"call_{turn}_0"
        name = None if turn is None else "run"
        return trace.graph.add(
            Message(role=role, content=text, call_id=answers, name=name),
            parent=leaf,
            origin=Origin.USER if turn is None else Origin.ENVIRONMENT,
            token_ids=ids,
            runs=make_runs((RunKind.SCAFFOLD, SCAFFOLD), (RunKind.CONTENT, tokens - SCAFFOLD)),
        )

    def _reply(self, trace: Trace, leaf: int, rng: np.random.Generator, turn: int) -> int:
        tokens = _around(rng, SAMPLED)
        ids, text = self._corpus.cut(rng, tokens + SCAFFOLD)
        said, code = text[: len(text) // 2], text[len(text) // 2 :]
        call = trace.add_call(
            Call(
                node=len(trace.graph),
                after=leaf,
                sampling=Sampling(seed=int(rng.integers(1 << 31)), max_tokens=512),
                logprob_kind=LogprobKind.RAW,
                finish=Finish.STOP,
                engine_finish="stop",
                prompt_tokens=len(trace.graph.tokens),
                completion_tokens=tokens,
                started=float(turn),
                wall=float(rng.exponential(2.0)),
            )
        )
        raw = json.dumps({"name": "run", "arguments": {"code": code}}, ensure_ascii=False)
        attempt = ToolCall(id=f"call_{turn}_0", name="run", arguments={"code": code}, raw=raw)
        return trace.graph.add(
            Message(role=Role.ASSISTANT, content=said, tool_calls=(attempt,)),
            parent=leaf,
            origin=Origin.POLICY,
            token_ids=ids,
            runs=make_runs((RunKind.SCAFFOLD, SCAFFOLD), (RunKind.SAMPLED, tokens)),
            logprobs=_logprobs(rng, tokens),
            versions=make_runs((turn // 8, tokens)),
            segments=make_runs((call, tokens)),
        )


def _around(rng: np.random.Generator, mean: int) -> int:
    return max(2 * SCAFFOLD, int(rng.normal(mean, mean / 4)))


def _logprobs(rng: np.random.Generator, tokens: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Mostly sure tokens and a long tail, as sampled ones have."""
    return np.maximum(-np.exp(rng.normal(-4.5, 3.0, tokens)), -18.0).astype(np.float32)
