"""`Judge`: a model that says what an attempt is worth, asked through the same protocol as any policy.

Rules: a verdict in the strict form is the reward; whatever else comes of it is a `JudgeFailed` with its kind, so the
scoring fails and the rollout has no reward and no vote. Each question, answered or not, goes into the record.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from rollbook.errors import ConfigError, RollbookError, UsageError, boundary
from rollbook.rewards.scorers.asking import Asked, Reply, ask
from rollbook.rewards.scorers.judgement import JUDGES, JudgeError, JudgeFailed, Judgement, Speaker
from rollbook.rewards.scorers.scorer import target_text
from rollbook.rewards.scorers.verdict import ask_for, read_verdict, transcript
from rollbook.trace.call import Finish, Sampling
from rollbook.trace.message import Message
from rollbook.trace.trace import Trace

__all__ = ["Judge"]

GREEDY = Sampling(temperature=0.0)


class _QuestionError(RollbookError):
    """The question could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A scorer that asks a model. Raises `ConfigError` for bounds that are none.

    A policy that is given as an object is started by whoever opened it, or once by the worker that scores; make it once
    for a process, not once for a rollout. One that is given by its name (``vllm:URL``) is loaded once by each worker of
    a run, without the key of the run's own engine.
    """

    policy: Speaker | str
    rubric: str
    """What is judged, and by what."""
    name: str = "judge"
    """Among the judges of an environment, for the record."""
    low: float = 0.0
    """The smallest verdict that is one, and the reward that it gives."""
    high: float = 1.0
    """The largest."""
    question: Callable[[Trace], str] | None = None
    """What is judged, as text; None: task and attempt as JSON (`rollbook.rewards.scorers.verdict.transcript`)."""
    tell_target: bool = True
    """Tell the judge the task's target, where the question is the usual one."""
    sampling: Sampling = GREEDY
    """How it is sampled; a seed is made for each question."""
    max_tokens: int = 512
    """Of its reply, reasoning included."""
    max_question: int = 200_000
    """Characters of a question; a longer one is ``too_long``, for a cut one would ask for something else."""
    seconds: float = 30.0
    """Of one request."""
    retries: int = 1
    """Requests that are made again after a failure in transit."""

    def __post_init__(self) -> None:
        if not self.low < self.high or self.high - self.low == float("inf"):
            raise ConfigError(f"Judge: low must be below high, both finite, not {self.low} and {self.high}")
        if min(self.max_tokens, self.max_question, self.seconds) <= 0 or self.retries < 0:
            raise ConfigError("Judge: max_tokens, max_question and seconds must be above 0, and retries not negative")

    async def __call__(self, trace: Trace, /) -> float:
        """The verdict on one attempt. Raises `JudgeFailed`."""
        return await self.ask((trace.id,), functools.partial(self._question, trace))

    def _question(self, trace: Trace) -> str:
        if self.question is not None:
            return self.question(trace)
        told = self.tell_target and trace.task.target is not None
        return transcript(trace, target_text(trace, None) if told else None)

    async def ask(self, rollouts: Sequence[str], question: Callable[[], str]) -> float:
        """The verdict on a question about some rollouts. Raises `JudgeFailed`; either way it is kept for the record."""
        judges, asked = JUDGES.get(), Asked()
        seed = (
            int.from_bytes(hashlib.blake2b("\x1f".join((self.name, *rollouts)).encode(), digest_size=4).digest()) >> 1
        )
        sampling = msgspec.structs.replace(self.sampling, seed=seed, max_tokens=self.max_tokens)
        kept = Judgement(
            judge=self.name, policy=self._named(), rollouts=tuple(rollouts), question=(), sampling=sampling
        )
        try:
            messages = self._messages(question)
            kept = msgspec.structs.replace(kept, question=messages)
            speaker = await self._speaker()
            kept = msgspec.structs.replace(kept, policy=speaker.policy.info.name)
            reply = await ask(
                speaker,
                messages,
                sampling,
                session=f"{self.name}:{':'.join(rollouts)}",
                seconds=self.seconds,
                retries=self.retries,
                judges=judges,
                asked=asked,
            )
            kept = msgspec.structs.replace(
                kept,
                reply=reply.message,
                finish=reply.finish,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
            )
            verdict = self._read(reply)
            kept = msgspec.structs.replace(kept, verdict=verdict)
        except JudgeFailed as failure:
            kept = msgspec.structs.replace(kept, error=failure.kind, detail=failure.detail)
            raise
        finally:
            if judges is not None:
                judges.keep(msgspec.structs.replace(kept, tries=asked.tries, seconds=asked.seconds))
        return verdict

    def _named(self) -> str:
        return self.policy if isinstance(self.policy, str) else ""

    def _messages(self, question: Callable[[], str]) -> tuple[Message, ...]:
        try:
            with boundary("the question", _QuestionError):
                text = question()
                if not isinstance(cast("object", text), str):
                    raise TypeError(f"a {type(text).__name__} instead of text")
        except RollbookError as error:
            raise JudgeFailed(JudgeError.BROKEN, error) from error
        if len(text) > self.max_question:
            raise JudgeFailed(JudgeError.TOO_LONG, f"{len(text)} characters, more than {self.max_question}")
        return ask_for(self.rubric, text, self.low, self.high)

    async def _speaker(self) -> Speaker:
        judges = JUDGES.get()
        try:
            if judges is not None:
                return await judges.speaker(self.policy)
        except UsageError as error:
            raise JudgeFailed(JudgeError.UNREACHABLE, error) from error
        if isinstance(self.policy, str):
            detail = f"only a run can load {self.policy!r} by its name; give Judge a LoadedPolicy"
            raise JudgeFailed(JudgeError.UNREACHABLE, detail)
        return self.policy

    def _read(self, reply: Reply) -> float:
        if reply.finish is Finish.LENGTH:
            raise JudgeFailed(JudgeError.CUT, f"its reply reached {self.max_tokens} tokens")
        if reply.message.tool_calls:
            raise JudgeFailed(JudgeError.MALFORMED, "it calls a tool; it was offered none")
        return read_verdict(reply.message.content, self.low, self.high)
