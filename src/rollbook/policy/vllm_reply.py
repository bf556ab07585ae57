"""What comes from vLLM: replies of its two routes that take ids, read strictly and without I/O.

``/inference/v1/generate`` gives each logprob together with its id, so ids are read from there; ``/v1/completions``
gives two lists, which have one length. Nothing is cut or filled in to fit: what disagrees with itself, the engine's
counts or what was asked is refused. Raw logprobs behind a grammar are of the allowed tokens alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
import numpy as np

from rollbook.policy.align import checked_logprobs
from rollbook.policy.experts import experts_in_npy
from rollbook.policy.http import HttpReply, error_of, failure_of
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.policy.stopping import finish_of
from rollbook.policy.versions import Spans, spans_of
from rollbook.policy.vllm_wire import Asked, Route
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["completion_of", "listed_logprobs", "refusal_of"]

SENTINEL = -9999.0
"""What the server sends for minus infinity and for NaN."""
_OVERFLOW = ("maximum context length", "maximum model length")
_TOKEN_ID = "token_id:"  # noqa: S105 - how the server spells an id in place of a text

_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Span(msgspec.Struct, gc=False):
    version: str
    start: int
    end: int


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


class _Metrics(msgspec.Struct):
    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None


class _Choice(msgspec.Struct, kw_only=True):
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[_Id] | None = None
    routed_experts: str | None = None
    weight_versions: list[_Span] | None = None


class _Reply(msgspec.Struct, kw_only=True):
    usage: _Usage
    metrics: _Metrics | None = None


class _Entry(msgspec.Struct, gc=False):
    token_id: _Id
    logprob: float


class _Position(_Entry):
    top_logprobs: list[_Entry] = []


class _Content(msgspec.Struct):
    content: list[_Entry] | None = None


class _GenerateChoice(_Choice):
    logprobs: _Content | None = None


class _GenerateReply(_Reply):
    choices: list[_GenerateChoice]
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")


class _Lists(msgspec.Struct):
    token_logprobs: list[float]


class _CompletionsChoice(_Choice):
    logprobs: _Lists | None = None
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")


class _CompletionsReply(_Reply):
    choices: list[_CompletionsChoice]


class _ListedGenerate(msgspec.Struct):
    class Choice(msgspec.Struct):
        class Logprobs(msgspec.Struct):
            content: list[_Position]

        logprobs: Logprobs

    choices: list[Choice]


class _ListedCompletions(msgspec.Struct):
    class Choice(msgspec.Struct):
        class Logprobs(msgspec.Struct):
            top_logprobs: list[dict[str, float]]

        logprobs: Logprobs

    choices: list[Choice]


def listed_logprobs(reply: HttpReply, route: Route) -> dict[int, float]:
    """What a probe's reply lists for its first token. Raises `RolloutFailure` (`engine_contract`)."""
    try:
        if route is Route.GENERATE:
            first = reply.decode(_ListedGenerate).choices[0].logprobs.content[0]
            return {entry.token_id: entry.logprob for entry in first.top_logprobs}
        listed = reply.decode(_ListedCompletions).choices[0].logprobs.top_logprobs[0]
        return {int(text.removeprefix(_TOKEN_ID)): value for text, value in listed.items()}
    except (IndexError, ValueError) as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the reply lists no logprobs by id: {error}") from error


def refusal_of(reply: HttpReply) -> Exception:
    """The failure that a reply other than 200 stands for."""
    message, _ = error_of(reply)
    if reply.status == HTTPStatus.BAD_REQUEST and any(phrase in message for phrase in _OVERFLOW):
        return RolloutFailure(Reason.CONTEXT_OVERFLOW, message)
    return failure_of(reply)


def completion_of(reply: HttpReply, route: Route, asked: Asked) -> Completion:
    """The completion that a reply of status 200 holds.

    Raises `RolloutFailure` (`engine_contract`) for one that cannot be believed.
    """
    body, choice, echo = _read(reply, route)
    ids, logprobs = _sampled(choice)
    _check_counts(ids, logprobs, body.usage, asked.limit)
    finish = finish_of(
        choice.finish_reason,
        last=ids[-1] if ids else None,
        tokens=len(ids),
        limit=asked.limit,
        ends=asked.stop_ids.union(asked.sampling.stop_token_ids),
        matched=choice.stop_reason,
        stop=asked.sampling.stop,
    )
    routed = choice.routed_experts
    details, metrics = body.usage.prompt_tokens_details, body.metrics or _Metrics()
    return Completion(
        token_ids=np.array(ids, np.int32),
        logprobs=checked_logprobs(logprobs, SENTINEL),
        logprob_kind=asked.kind,
        finish=finish,
        engine_finish=choice.finish_reason or "",
        versions=_versions(choice, len(ids), asked.version),
        prompt_tokens=body.usage.prompt_tokens,
        prompt_ids=_echoed(echo, asked),
        cached_tokens=None if details is None else details.cached_tokens,
        routed_experts=None if routed is None else experts_in_npy(routed, len(ids), len(asked.prompt)),
        queue=_seconds(metrics.queue_time_ms),
        prefill=_seconds(metrics.time_to_first_token_ms),
        decode=_seconds(metrics.generation_time_ms),
    )


def _read(reply: HttpReply, route: Route) -> tuple[_Reply, _GenerateChoice | _CompletionsChoice, msgspec.Raw]:
    """The body, its one choice and the echo of the prompt."""
    body = reply.decode(_GenerateReply if route is Route.GENERATE else _CompletionsReply)
    if len(body.choices) != 1:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"{len(body.choices)} choices where one was asked for")
    match body:
        case _GenerateReply():
            return body, body.choices[0], body.prompt_token_ids
        case _CompletionsReply():
            return body, body.choices[0], body.choices[0].prompt_token_ids


def _sampled(choice: _GenerateChoice | _CompletionsChoice) -> tuple[list[int], list[float]]:
    """Ids and logprobs, from one array where the route has one."""
    match choice:
        case _GenerateChoice(logprobs=_Content(content=list() as entries)):
            ids = [entry.token_id for entry in entries]
            if choice.token_ids is not None and choice.token_ids != ids:
                raise RolloutFailure(
                    Reason.ENGINE_CONTRACT,
                    f"logprobs of {len(ids)} other ids than the {len(choice.token_ids)} returned",
                )
            return ids, [entry.logprob for entry in entries]
        case _CompletionsChoice(logprobs=_Lists() as lists, token_ids=list() as ids):
            return ids, lists.token_logprobs
        case _ if not choice.token_ids and choice.logprobs is None and choice.finish_reason is not None:
            return [], []
        case _:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, "the reply holds no ids, or no logprobs for them")


def _check_counts(ids: list[int], logprobs: list[float], usage: _Usage, limit: int) -> None:
    if not len(ids) == len(logprobs) == usage.completion_tokens:
        detail = f"{len(ids)} ids and {len(logprobs)} logprobs, the engine counts {usage.completion_tokens} tokens"
        raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)
    if len(ids) > limit:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"{len(ids)} tokens, more than the {limit} asked for")


def _versions(choice: _Choice, tokens: int, told: int | None) -> Spans:
    if choice.weight_versions is not None:
        return spans_of(((span.version, span.start, span.end) for span in choice.weight_versions), tokens)
    return ((told, tokens),) if told is not None and tokens else ()


def _echoed(echo: msgspec.Raw, asked: Asked) -> TokenIds | None:
    """The prompt that the engine says it ran on; None where it does not say."""
    text = bytes(echo)
    if text == asked.wire:
        return asked.prompt
    try:
        ids = msgspec.json.decode(text, type=list[_Id] | None)
    except msgspec.DecodeError as error:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"unreadable echo of the prompt: {error}") from error
    return None if ids is None else np.array(ids, np.int32)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
