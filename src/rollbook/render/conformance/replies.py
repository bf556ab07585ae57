"""What every renderer does with a sampled reply."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.errors import ModelError
from rollbook.render.conformance.behaviour import Subject, behaviour, hold
from rollbook.render.conformance.conversations import ASK, CALLS, RESULTS, TOOL, a_stop, array, first_blank, ids_of
from rollbook.render.protocol import Parsed, Renderer
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall


def _parse(renderer: Renderer, ids: Sequence[int], *, cut: bool = False, inside_reasoning: bool = False) -> Parsed:
    return renderer.parse(array(ids), [TOOL], inside_reasoning=inside_reasoning, cut=cut, call_prefix="t1-")


def _written(subject: Subject, calls: tuple[ToolCall, ...]) -> tuple[list[int], bool] | None:
    """A turn with calls as the template writes it, end-of-turn token included, and whether it begins inside
    reasoning. None where the renderer takes no such history, where history shows a turn otherwise than it is sampled,
    and where it only quotes the control tokens of a call (a tool prompt's calls are content)."""
    renderer = subject.renderer
    turn = Message(role=Role.ASSISTANT, tool_calls=calls)
    try:
        start = renderer.open([ASK], [TOOL])
        told = ids_of(renderer.open([ASK, turn, *RESULTS[: len(calls)]], [TOOL]))
    except ModelError:
        return None
    prompt = ids_of(start)
    end = next((at for at in range(len(prompt), len(told)) if told[at] in renderer.info.stop_ids), None)
    if end is None or told[: len(prompt)] != prompt:
        return None
    ids = told[len(prompt) : end + 1]
    text = renderer.decode(array(ids))
    if not all(call.arguments and str(call.arguments["thing"]) in text for call in calls):
        return None  # a turn of this family ends behind each call
    quoted = [spelling for spelling, token in subject.control.items() if spelling in text and token not in ids]
    return None if quoted else (ids, start.inside_reasoning)


@behaviour
def text_reads_back(subject: Subject) -> bool:
    """A reply of plain text is that text, closed by a stop token and open without one, and calls nothing."""
    renderer, said = subject.renderer, "This is \u00fcber plain \U0001f642 text."
    ids = renderer.encode(said).tolist()
    for stop in [*sorted(renderer.info.stop_ids), None]:
        parsed = _parse(renderer, ids if stop is None else [*ids, stop], cut=stop is None)
        hold(parsed.closed == (stop is not None), f"with the last token {stop}, closed is {parsed.closed}")
        hold(parsed.message.role is Role.ASSISTANT, f"the reply's role is {parsed.message.role}")
        content = parsed.message.content.removeprefix(first_blank(renderer))
        hold(content == said, f"{said!r} reads as {content!r}")
        hold(not parsed.message.tool_calls, f"plain text made calls: {parsed.message.tool_calls}")
    return True


@behaviour
def empty_reply_reads(subject: Subject) -> bool:
    """A reply of no tokens, and one of a stop token alone, are empty messages."""
    for ids in ([], [a_stop(subject.renderer)]):
        parsed = _parse(subject.renderer, ids, cut=not ids)
        hold(parsed.message.content == "" and not parsed.message.tool_calls, f"no tokens read as {parsed.message}")
        hold(parsed.closed == bool(ids), f"a reply of {ids} is closed: {parsed.closed}")
    return True


@behaviour
def bytes_are_kept(subject: Subject) -> bool:
    """A reply that was cut inside a character shows U+FFFD and keeps the bytes."""
    said = "\U0001fabf"
    ids = subject.renderer.encode(said).tolist()
    if len(ids) < 2:
        return False
    blank = first_blank(subject.renderer).encode()
    for end in range(1, len(ids)):
        message = _parse(subject.renderer, ids[:end], cut=True).message
        kept = message.content.encode() if message.raw is None else message.raw
        true = any(text.startswith(kept) for text in (said.encode(), blank + said.encode()))
        hold(
            true and (message.raw is not None or kept in (blank, b"")),
            f"{end} of the {len(ids)} tokens of {said!r} read as {message.content!r} with raw {message.raw!r}",
        )
    return True


@behaviour
def calls_read_back(subject: Subject) -> bool:
    """Calls as the template writes them are read as the same calls, in their order, each with an id of its own."""
    seen = False
    for calls in (CALLS[:1], CALLS):
        written = _written(subject, calls)
        if written is None:
            continue
        seen = True
        found = _parse(subject.renderer, written[0], inside_reasoning=written[1]).message.tool_calls
        told = [(call.name, call.arguments, call.status) for call in found]
        meant = [(call.name, call.arguments, ParseStatus.OK) for call in calls]
        hold(told == meant, f"{meant} read back as {told}")
        hold(len({call.id for call in found}) == len(calls), f"ids {[call.id for call in found]} are not distinct")
    return seen


@behaviour
def cut_invents_no_call(subject: Subject) -> bool:
    """Wherever the generation limit cuts a reply, a call that reads as ok is one that was meant, to the last
    argument, and the reply is not closed."""
    written = _written(subject, CALLS) or _written(subject, CALLS[:1])
    if written is None:
        return False
    ids, inside = written
    meant = [(call.name, call.arguments) for call in CALLS]
    for end in range(len(ids)):
        parsed = _parse(subject.renderer, ids[:end], cut=True, inside_reasoning=inside)
        found = [(call.name, call.arguments) for call in parsed.message.tool_calls if call.status is ParseStatus.OK]
        hold(found == meant[: len(found)], f"cut after {end} of {len(ids)} tokens, it reads as {found}")
        hold(not parsed.closed, f"cut after {end} of {len(ids)} tokens, it counts as closed")
    return True


@behaviour
def reasoning_calls_nothing(subject: Subject) -> bool:
    """A call inside reasoning that is still open never reads as ok."""
    written = _written(subject, CALLS[:1])
    if written is None:
        return False
    ids, _ = written
    called = [start for start in range(len(ids)) if ParseStatus.OK in _statuses(subject.renderer, ids[start:], False)]
    if not called:
        return False
    alone = ids[called[-1] :]  # the call without a block that the turn itself begins with
    statuses = _statuses(subject.renderer, alone, True)
    hold(ParseStatus.OK not in statuses, f"inside reasoning, a call reads as {statuses}")
    return True


def _statuses(renderer: Renderer, ids: Sequence[int], inside_reasoning: bool) -> list[ParseStatus]:
    parsed = _parse(renderer, ids, inside_reasoning=inside_reasoning)
    return [call.status for call in parsed.message.tool_calls]


@behaviour
def quoted_calls_are_text(subject: Subject) -> bool:
    """Where control tokens mark a call, a reply of ordinary tokens that spells them makes no call that reads as ok."""
    written = _written(subject, CALLS[:1])
    if written is None or not set(subject.control.values()).intersection(written[0][:-1]):
        return False
    ids = subject.renderer.encode(subject.renderer.decode(array(written[0][:-1]))).tolist()
    found = _parse(subject.renderer, [*ids, written[0][-1]], inside_reasoning=written[1]).message.tool_calls
    wrong = [call for call in found if call.status is ParseStatus.OK]
    hold(not wrong, f"a quoted call reads as {wrong}")
    return True


REPLIES = (
    text_reads_back,
    empty_reply_reads,
    bytes_are_kept,
    calls_read_back,
    cut_invents_no_call,
    reasoning_calls_nothing,
    quoted_calls_are_text,
)
