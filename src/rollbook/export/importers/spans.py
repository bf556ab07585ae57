"""Token sequences of foreign records as nodes.

Two shapes occur. A *flat* one is a sequence with a mask and nothing that says where messages begin: its masked
stretches become turns, what lies between them observations, and nobody knows how the text divides. A *stepwise* one
has, for each turn, the prompt's ids and the reply's: where a prompt goes on from what came before, it is the same path,
else the path begins anew with the first differing position.

A loss mask is not a record of what was sampled. What it holds was sampled; what it leaves out may have been, too (a
turn that the recorder took out of the loss), and counts as context here: it trains in neither place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rollbook.export.importers.messages import origin_of
from rollbook.export.importers.rows import BadRow
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.node import ROOT, Fork, ForkReason, TokenIds
from rollbook.trace.runs import NO_RUNS, RunKind, compress_runs, make_runs
from rollbook.trace.trace import Trace

__all__ = ["add_flat", "add_prompt", "add_step", "add_text", "float32s", "int32s", "stretches"]

_CONTENT = int(RunKind.CONTENT)
_SAMPLED = int(RunKind.SAMPLED)


def int32s(values: Sequence[int], what: str) -> npt.NDArray[np.int32]:
    """Whole numbers as int32; raises `BadRow` for one that is none, negative or too large."""
    try:
        array = np.asarray(values, np.int64)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRow(f"{what}: {error}") from error
    if array.ndim != 1 or (len(array) and not 0 <= array.min() <= array.max() < 2**31):
        raise BadRow(f"{what} must be whole numbers from 0 to 2**31 - 1")
    return array.astype(np.int32)


def float32s(values: Sequence[float], what: str) -> npt.NDArray[np.float32]:
    """Numbers as float32; raises `BadRow` for what is none, or not finite."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            array = np.asarray(values, np.float64).astype(np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRow(f"{what}: {error}") from error
    if array.ndim != 1 or not np.isfinite(array).all():
        raise BadRow(f"{what} must be finite numbers")
    return array


def stretches(mask: npt.NDArray[np.int32]) -> Iterator[tuple[int, int, bool]]:
    """(first, last + 1, held) of each stretch of a mask of zeros and others."""
    start = 0
    for held, count in compress_runs((mask != 0).astype(np.int32)).tolist():
        yield start, start + count, bool(held)
        start += count


def add_text(trace: Trace, message: Message, *, sampled: bool = False, parent: int | None = None) -> int:
    """A message without ids, behind `parent` (None: the last one)."""
    place = len(trace.graph) - 1 if parent is None else parent
    return trace.graph.add(message, parent=place, origin=origin_of(message.role, sampled=sampled))


def add_prompt(trace: Trace, messages: Sequence[Message], ids: TokenIds, fork: Fork | None = None) -> int:
    """The messages of a prompt as a path from the root. The ids stand with the last of them, for the record does not
    divide them; without messages one user message holds them."""
    return _add_said(trace, ROOT, list(messages) or [Message(role=Role.USER)], ids, fork)


def _add_said(trace: Trace, parent: int, said: Sequence[Message], ids: TokenIds, fork: Fork | None = None) -> int:
    """Messages that nobody sampled, one behind the other; the ids stand with the last. `fork`: of the first."""
    for number, message in enumerate(said):
        last = number == len(said) - 1
        parent = trace.graph.add(
            message,
            parent=parent,
            origin=origin_of(message.role, sampled=False),
            token_ids=ids if last else ids[:0],
            runs=make_runs((_CONTENT, len(ids))) if last else NO_RUNS,
            fork=fork if number == 0 else None,
        )
    return parent


def add_flat(
    trace: Trace,
    parent: int,
    ids: TokenIds,
    mask: npt.NDArray[np.int32],
    logprobs: npt.NDArray[np.float32] | None,
    *,
    version: int | None = None,
    text: str | None = None,
) -> list[int]:
    """The response of a flat sequence behind `parent`; returns its turns. `ids`, `mask`, `logprobs`: of the response
    alone, of one length. `version`: of all sampled tokens; None: not known. `text`: of the response, kept with its only
    turn; where there are several, nobody knows which words are whose."""
    if len(ids) != len(mask) or (logprobs is not None and len(logprobs) != len(ids)):
        given = "no" if logprobs is None else str(len(logprobs))
        raise BadRow(f"{len(ids)} response tokens have a mask of {len(mask)} and {given} logprobs")
    parts = list(stretches(mask))
    alone = len(parts) == 1 and parts[0][2]
    turns: list[int] = []
    for first, end, held in parts:
        count = end - first
        message = Message(role=Role.ASSISTANT, content=(text or "") if alone else "") if held else _observation()
        parent = trace.graph.add(
            message,
            parent=parent,
            origin=Origin.POLICY if held else Origin.ENVIRONMENT,
            token_ids=ids[first:end],
            runs=make_runs((_SAMPLED if held else _CONTENT, count)),
            logprobs=logprobs[first:end] if held and logprobs is not None else None,
            versions=make_runs((version, count)) if held and version is not None else NO_RUNS,
        )
        if held:
            turns.append(parent)
    return turns


def _observation() -> Message:
    return Message(role=Role.USER)


def add_step(
    trace: Trace,
    parent: int,
    said: Iterable[Message],
    reply: Message,
    *,
    prompt_ids: TokenIds,
    reply_ids: TokenIds,
    logprobs: npt.NDArray[np.float32] | None,
) -> int:
    """One turn of a stepwise record behind `parent`: the messages that came since, and the reply. Returns its node.

    The new part of the prompt stands with the last new message; a prompt that adds ids and no message gets one of the
    harness, for something was said there.
    """
    before, new = trace.graph.path_ids(parent), list(said)
    shared = min(len(before), len(prompt_ids))
    differing = np.flatnonzero(before[:shared] != prompt_ids[:shared])
    if len(differing) or len(prompt_ids) < len(before):
        position = int(differing[0]) if len(differing) else shared
        fork = Fork(
            reason=ForkReason.EDITED_HISTORY,
            detail=f"the recorded prompt does not go on from the ids before it, at position {position}",
        )
        parent = add_prompt(trace, [*_messages(trace, parent), *new], prompt_ids, fork if len(trace.graph) else None)
    else:
        rest = prompt_ids[len(before) :]
        parent = add_prompt(trace, new, rest) if parent == ROOT else _observe(trace, parent, new, rest)
    count = len(reply_ids)
    return trace.graph.add(
        reply,
        parent=parent,
        origin=Origin.POLICY,
        token_ids=reply_ids,
        runs=make_runs((_SAMPLED, count)),
        logprobs=logprobs if count else None,
    )


def _observe(trace: Trace, parent: int, new: Sequence[Message], ids: TokenIds) -> int:
    return _add_said(trace, parent, list(new) or ([Message(role=Role.USER)] if len(ids) else []), ids)


def _messages(trace: Trace, leaf: int) -> list[Message]:
    return [trace.graph.messages[node] for node in trace.graph.path(leaf).tolist()]
