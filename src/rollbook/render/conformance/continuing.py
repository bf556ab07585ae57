"""What every renderer does behind a turn, and what it refuses."""

from __future__ import annotations

from typing import Any

from rollbook.errors import ModelError, RollbookError
from rollbook.render.conformance.behaviour import NotConforming, Subject, behaviour, hold
from rollbook.render.conformance.conversations import (
    AGAIN,
    ASK,
    TOOL,
    a_stop,
    array,
    ids_of,
    kinds_of,
    of_kind,
    plain_id,
    renderings,
    say,
)
from rollbook.trace.message import Message, Role
from rollbook.trace.runs import RunKind


@behaviour
def new_messages_only(subject: Subject) -> bool:
    """Continuing costs what is new: it repeats nothing of the conversation, and no other conversation changes it."""
    before = subject.renderer.extend(a_stop(subject.renderer), [AGAIN], [])
    subject.renderer.open([say("Something else. " * 100)], [])
    subject.renderer.extend(a_stop(subject.renderer), [say("And more of it. " * 100)], [])
    after = subject.renderer.extend(a_stop(subject.renderer), [AGAIN], [])
    hold(ids_of(before) == ids_of(after), "the same continuation gives other ids after another conversation")
    short, long = (
        len(ids_of(subject.renderer.extend(a_stop(subject.renderer), [say(text)], []))) for text in ("a", "b")
    )
    hold(abs(short - long) <= 1, f"messages of one letter take {short} and {long} tokens")
    text = subject.renderer.decode(array(ids_of(after)))
    hold(text.count(AGAIN.content) == 1, f"the new message stands {text.count(AGAIN.content)} times in {text!r}")
    return True


@behaviour
def same_again(subject: Subject) -> bool:
    """The same arguments give the same ids, runs and prompt each time."""
    for one, other in zip(renderings(subject.renderer), renderings(subject.renderer), strict=True):
        hold(ids_of(one) == ids_of(other), "two equal renderings have different ids")
        kinds = ([kinds_of(each) for each in rendering.messages] for rendering in (one, other))
        hold(next(kinds) == next(kinds), "two equal renderings have different runs")
    return True


@behaviour
def end_stands_once(subject: Subject) -> bool:
    """Behind a turn that ended, its end-of-turn token is not written a second time."""
    for stop in sorted(subject.renderer.info.stop_ids):
        rendering = subject.renderer.extend(stop, [AGAIN], [])
        hold(ids_of(rendering)[0] != stop, f"{subject.renderer.decode(array([stop]))!r} is written twice")
        forced = of_kind(rendering.messages[0], RunKind.FORCED)
        hold(not forced, f"a turn that ended is closed again with {forced}")
    return True


@behaviour
def cut_turn_is_closed(subject: Subject) -> bool:
    """Behind a turn that was cut, what ends it comes first: a control token that is marked as forced, for it was not
    sampled, or the marker of the next role, where that is what ends a turn."""
    renderer = subject.renderer
    first = renderer.extend(plain_id(renderer), [AGAIN], []).messages[0]
    kinds, ids = kinds_of(first), first.token_ids.tolist()
    close = kinds.count(RunKind.FORCED)
    hold(kinds[:close] == [RunKind.FORCED] * close, f"forced tokens do not come first: kinds {kinds[:8]}")
    if close:
        hold(ids[close - 1] in subject.control_ids, f"a cut turn is closed with {ids[:close]}, of which none ends it")
    else:
        hold(ids[0] in renderer.info.stop_ids, f"a cut turn is followed by {ids[0]}, which does not end it")
    ended = renderer.extend(a_stop(renderer) if close else ids[0], [AGAIN], []).messages[0]
    hold(ids[close or 1 :] == ended.token_ids.tolist(), "what follows the close is not what follows a turn that ended")
    return True


@behaviour
def history_is_whole(subject: Subject) -> bool:
    """A whole conversation is rendered with tokens for each message and the generation prompt behind them, and a
    turn's tokens end with what ends a turn; without a turn it is the start of a conversation."""
    renderer = subject.renderer
    hold(ids_of(renderer.rerender([ASK], [])) == ids_of(renderer.open([ASK], [])), "a start is rendered in two ways")
    said = Message(role=Role.ASSISTANT, content="That is all.")
    rendering = renderer.rerender([ASK, said, AGAIN], [])
    given = [one.message for one in rendering.messages if not one.added]
    hold(given == [ASK, said, AGAIN], f"3 messages went in, {len(given)} came out or in another order")
    for one in rendering.messages:
        text = renderer.decode(one.token_ids)
        hold(one.message.content in text, f"{one.message.content!r} is not in its own tokens: {text!r}")
        last = one.token_ids.tolist()[-1:]
        ends = subject.control_ids.issuperset(last) and bool(last)
        hold(one.message is not said or ends, f"the turn's tokens end with {last}: {text!r}")
    return True


@behaviour
def nothing_is_no_message(subject: Subject) -> bool:
    """A conversation and a continuation hold at least one message; without any they are refused."""
    for render in (
        lambda: subject.renderer.open([], []),
        lambda: subject.renderer.extend(a_stop(subject.renderer), [], []),
    ):
        try:
            render()
        except RollbookError:
            continue
        raise NotConforming("no message at all is rendered instead of refused")
    return True


@behaviour
def tools_are_shown_or_refused(subject: Subject) -> bool:
    """Tools stand in the tokens by name and description, or the conversation is refused; they are never dropped."""
    try:
        rendering = subject.renderer.open([ASK], [TOOL])
    except ModelError:
        return False
    text = subject.renderer.decode(array(ids_of(rendering)))
    hold(rendering.tools_rendered, "the rendering says that the tools are not in it, and was not refused")
    hold(TOOL.name in text and TOOL.description in text, f"the tool is not in the text {text!r}")
    return True


@behaviour
def blocks_are_refused(subject: Subject) -> bool:
    """Content that is not text (an image block) is refused with an error of ours, never dropped or spelled out."""
    block: Any = [{"type": "image", "image": "rope.png"}]
    try:
        subject.renderer.open([Message(role=Role.USER, content=block)], [])
    except RollbookError:
        return True
    raise NotConforming("a message with an image block is rendered")


CONTINUING = (
    new_messages_only,
    same_again,
    end_stands_once,
    cut_turn_is_closed,
    history_is_whole,
    nothing_is_no_message,
    tools_are_shown_or_refused,
    blocks_are_refused,
)
