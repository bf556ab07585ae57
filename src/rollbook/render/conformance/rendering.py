"""What every renderer does with text and messages."""

from __future__ import annotations

from contextlib import suppress

from rollbook.errors import ModelError
from rollbook.render.conformance.behaviour import Subject, behaviour, hold
from rollbook.render.conformance.conversations import (
    AGAIN,
    ASK,
    CALLS,
    RESULTS,
    TEXTS,
    TOOL,
    a_stop,
    array,
    first_blank,
    holds_text,
    ids_of,
    kinds_of,
    of_kind,
    renderings,
    same_text,
    say,
)
from rollbook.trace.message import Message, Role
from rollbook.trace.runs import RunKind


@behaviour
def stops_are_tokens(subject: Subject) -> bool:
    """There is at least one stop token, and each lies inside the vocabulary."""
    info = subject.renderer.info
    hold(bool(info.stop_ids), "the renderer names no stop token")
    wrong = [stop for stop in info.stop_ids if not 0 <= stop < info.vocab_size]
    hold(not wrong, f"stop ids {wrong} are not below the vocabulary's size, {info.vocab_size}")
    return True


@behaviour
def encoding_keeps_text(subject: Subject) -> bool:
    """Text that is encoded as content decodes to itself: empty, blank, unicode, control characters, very long."""
    blank = first_blank(subject.renderer)
    hold(blank in ("", " "), f"the text 'x' came back with {blank!r} before it")
    for text in TEXTS:
        back = subject.renderer.decode(subject.renderer.encode(text)).removeprefix(blank)
        hold(same_text(back, text) or "\\x" in back, f"{text[:60]!r} came back as {back[:60]!r}")
    return True


@behaviour
def lone_surrogates_are_shown(subject: Subject) -> bool:
    """A lone surrogate, which no tokenizer can spell, is shown in some spelling and neither dropped nor fatal."""
    for text in ("a \ud83d b", "\udc00"):
        plain = subject.renderer.decode(subject.renderer.encode(text.replace("\ud83d", "").replace("\udc00", "")))
        shown = subject.renderer.decode(subject.renderer.encode(text))
        hold(len(shown) > len(plain), f"{text!r} is shown as {shown!r}: the surrogate is gone")
        subject.renderer.open([say(text)], [])
    return True


@behaviour
def content_spells_no_control(subject: Subject) -> bool:
    """Content that spells a control token makes none, and decodes to itself."""
    ids = subject.control_ids
    for text in subject.control:
        for said in (text, f"x{text}y", f"{text}{text}"):
            made = subject.renderer.encode(said)
            hold(ids.isdisjoint(made.tolist()), f"the text {said!r} became control tokens: {made.tolist()}")
            back = subject.renderer.decode(made).removeprefix(first_blank(subject.renderer))
            hold(same_text(back, said), f"the text {said!r} came back as {back!r}")
    return True


@behaviour
def messages_spell_no_control(subject: Subject) -> bool:
    """Inside a conversation too, content tokens are no control tokens, whoever says them and wherever they stand."""
    ids = subject.control_ids
    said = "".join(subject.control)
    rendered = [
        subject.renderer.open([say(said)], []),
        subject.renderer.extend(a_stop(subject.renderer), [say(said)], []),
    ]
    with suppress(ModelError):
        result = Message(role=Role.TOOL, content=said, call_id=CALLS[0].id, name=TOOL.name)
        rendered.append(subject.renderer.extend(a_stop(subject.renderer), [result], []))
    for one in (one for rendering in rendered for one in rendering.messages):
        made = ids.intersection(of_kind(one, RunKind.CONTENT))
        hold(not made, f"a message that spells control tokens made {sorted(made)} of its content")
    plain = subject.renderer.open([say("word")], [])
    hold(
        sum(token in ids for token in ids_of(rendered[0])) == sum(token in ids for token in ids_of(plain)),
        "a message that spells control tokens brings more of them than one that does not",
    )
    return True


@behaviour
def runs_cover_ids(subject: Subject) -> bool:
    """The runs of each message cover its ids exactly, and every id lies inside the vocabulary."""
    size = subject.renderer.info.vocab_size
    for rendering in renderings(subject.renderer):
        for one in rendering.messages:
            hold(
                len(kinds_of(one)) == len(one.token_ids) and bool((one.runs[:, 1] > 0).all()),
                f"runs {one.runs.tolist()} over {len(one.token_ids)} tokens",
            )
        outside = [token for token in ids_of(rendering) if not 0 <= token < size]
        hold(not outside, f"ids {outside} lie outside the vocabulary of {size}")
    return True


@behaviour
def content_is_marked(subject: Subject) -> bool:
    """What messages say is content, and what the template writes around them is scaffold."""
    for rendering in renderings(subject.renderer):
        made = rendering.messages
        content = subject.renderer.decode(array([token for one in made for token in of_kind(one, RunKind.CONTENT)]))
        around = subject.renderer.decode(array([token for one in made for token in of_kind(one, RunKind.SCAFFOLD)]))
        for said in (one.message.content.splitlines()[0] for one in made if not one.added):
            hold(holds_text(content, said), f"{said!r} is not among the content {content!r}")
            hold(said not in around, f"{said!r} stands in the scaffold {around!r}")
    return True


@behaviour
def messages_come_back(subject: Subject) -> bool:
    """A batch comes back as the messages that were given, in their order, and each holds its own text."""
    for batch in ([AGAIN], list(RESULTS), [*RESULTS, AGAIN]):
        try:
            rendering = subject.renderer.extend(a_stop(subject.renderer), batch, [TOOL])
        except ModelError:
            continue
        given = [one.message for one in rendering.messages]
        hold(given == batch, f"{len(batch)} messages went in, {len(given)} came out or in another order")
        for one in rendering.messages:
            text = subject.renderer.decode(one.token_ids)
            hold(one.message.content in text, f"{one.message.content!r} is not in its own tokens: {text!r}")
    return True


@behaviour
def prompt_stands_apart(subject: Subject) -> bool:
    """The generation prompt belongs to the assistant: a message's tokens are the same whether a reply follows it or
    another message."""
    alone = subject.renderer.extend(a_stop(subject.renderer), [ASK], [])
    try:
        both = subject.renderer.extend(a_stop(subject.renderer), [ASK, AGAIN], [])
    except ModelError:
        return False
    one, other = alone.messages[0].token_ids.tolist(), both.messages[0].token_ids.tolist()
    hold(
        one == other,
        f"before a reply {subject.renderer.decode(array(one))!r}, before a message "
        f"{subject.renderer.decode(array(other))!r}",
    )
    return True


RENDERING = (
    stops_are_tokens,
    encoding_keeps_text,
    lone_surrogates_are_shown,
    content_spells_no_control,
    messages_spell_no_control,
    runs_cover_ids,
    content_is_marked,
    messages_come_back,
    prompt_stands_apart,
)
