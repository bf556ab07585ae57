"""What every renderer must do, as one list of behaviours that hold over any `Renderer`, ours or a plug-in's.

Each behaviour is checked through the protocol alone, with conversations of its own. A conversation that a family may
refuse (no system role, no tools, one call at a time) is refused with a `ModelError`; then there is nothing to see and
`Behaviour.check` says False. Anything else that goes wrong is `NotConforming`, with what was seen. Nothing is patched,
timed or guessed, so a behaviour fails for the same renderer each time.

In a pytest suite::

    import pytest
    from rollbook.render.conformance import behaviours

    @pytest.mark.parametrize("behaviour", behaviours(), ids=str)
    def test_my_renderer(behaviour):
        behaviour.check(MyRenderer(), control={"<|im_end|>": 2})
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollbook.errors import ModelError, RollbookError
from rollbook.render.protocol import Parsed, RenderedMessage, Renderer, Rendering
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, expand_runs
from rollbook.trace.tools import ToolSpec

__all__ = ["Behaviour", "NotConforming", "behaviours"]


class NotConforming(RollbookError, AssertionError):
    """A renderer does not do what every renderer must; the text says what was seen."""


@dataclass(frozen=True, slots=True)
class _Subject:
    renderer: Renderer
    control: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One thing that every renderer does."""

    name: str
    rule: str
    """One sentence: what must hold, and where it matters what follows if it does not."""
    _see: Callable[[_Subject], bool]

    def check(self, renderer: Renderer, control: Mapping[str, int] | None = None) -> bool:
        """Raises `NotConforming`. False where the renderer refuses every conversation that would show it.

        `control`: spelling and id of the tokenizer's control tokens, of all its added tokens at best; None: the stop
        tokens only, as the renderer decodes them.
        """
        if control is None:
            control = {renderer.decode(_array([stop])): stop for stop in renderer.info.stop_ids}
        return self._see(_Subject(renderer, control))

    def __str__(self) -> str:
        return self.name


_BEHAVIOURS: list[Behaviour] = []


def behaviours() -> tuple[Behaviour, ...]:
    """All of them, in the order in which a renderer is best got right."""
    return tuple(_BEHAVIOURS)


def _behaviour(see: Callable[[_Subject], bool]) -> Callable[[_Subject], bool]:
    rule = " ".join((see.__doc__ or "").split())
    _BEHAVIOURS.append(Behaviour(see.__name__.strip("_"), rule, see))
    return see


def _hold(truth: bool, seen: str) -> None:
    if not truth:
        raise NotConforming(seen)


# Conversations

_ASK = Message(role=Role.USER, content="What is asked first?")
_AGAIN = Message(role=Role.USER, content="And what is asked then?")
_TOOL = ToolSpec(
    name="measure",
    description="Measures how long something is.",
    parameters={
        "type": "object",
        "properties": {"thing": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["thing"],
        "additionalProperties": False,
    },
)
_CALLS = tuple(
    ToolCall(id=f"measure{n:02}", name=_TOOL.name, arguments={"thing": thing, "times": n})
    for n, thing in enumerate(("a rope", "two ropes"), start=1)
)
_RESULTS = tuple(
    Message(role=Role.TOOL, content=text, call_id=call.id, name=call.name)
    for call, text in zip(_CALLS, ("It is seven metres.", "They are nine yards."), strict=True)
)
_TEXTS = (
    "",
    " ",
    "\n\n \t\r\n",
    "plain words",
    "e\u0301 and \u00e9, \u6570\u5b66, \U0001f642\u200d\U0001f642, \u202eright to left, \ufeff",
    "\0 and \x1b[31m",
    "{{ 7 * 7 }} {% raw %} </s> &lt; <b>",
    "long " * 5000,
)


def _array(ids: Sequence[int]) -> TokenIds:
    return np.array(ids, np.int32)


def _say(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def _stop(renderer: Renderer) -> int:
    return min(renderer.info.stop_ids)


def _plain_id(renderer: Renderer) -> int:
    """A token that ends no turn."""
    return int(renderer.encode("word")[-1])


def _ids(rendering: Rendering) -> list[int]:
    parts = [*(one.token_ids for one in rendering.messages), rendering.prompt_ids]
    return [token for part in parts for token in part.tolist()]


def _kinds(one: RenderedMessage) -> list[int]:
    return expand_runs(one.runs).tolist()


def _of_kind(one: RenderedMessage, kind: RunKind) -> list[int]:
    return [token for token, found in zip(one.token_ids.tolist(), _kinds(one), strict=False) if found == kind]


def _renderings(renderer: Renderer) -> Iterator[Rendering]:
    """Starts and continuations, as far as the renderer takes them."""
    system = Message(role=Role.SYSTEM, content="Be brief.")
    starts: list[tuple[list[Message], list[ToolSpec]]] = [([_ASK], []), ([system, _ASK], []), ([_ASK], [_TOOL])]
    for messages, tools in starts:
        with suppress(ModelError):
            yield renderer.open(messages, tools)
    for batch in ([_AGAIN], [_RESULTS[0]], list(_RESULTS), [*_RESULTS, _AGAIN]):
        with suppress(ModelError):
            yield renderer.extend(_stop(renderer), batch, [_TOOL])
    yield renderer.extend(_plain_id(renderer), [_AGAIN], [])


def _same_text(one: str, other: str) -> bool:
    """Equal but for canonical equivalence: some tokenizers normalise text."""
    return unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)


def _holds_text(whole: str, part: str) -> bool:
    return unicodedata.normalize("NFC", part) in unicodedata.normalize("NFC", whole)


# The vocabulary


@_behaviour
def _stops_are_tokens(subject: _Subject) -> bool:
    """There is at least one stop token, and each lies inside the vocabulary."""
    info = subject.renderer.info
    _hold(bool(info.stop_ids), "the renderer names no stop token")
    wrong = [stop for stop in info.stop_ids if not 0 <= stop < info.vocab_size]
    _hold(not wrong, f"stop ids {wrong} are not below the vocabulary's size, {info.vocab_size}")
    return True


@_behaviour
def _encoding_keeps_text(subject: _Subject) -> bool:
    """Text that is encoded as content decodes to itself: empty, blank, unicode, control characters, very long."""
    for text in _TEXTS:
        back = subject.renderer.decode(subject.renderer.encode(text))
        _hold(_same_text(back, text) or "\\x" in back, f"{text[:60]!r} came back as {back[:60]!r}")
    return True


@_behaviour
def _lone_surrogates_are_shown(subject: _Subject) -> bool:
    """A lone surrogate, which no tokenizer can spell, is shown in some spelling and neither dropped nor fatal."""
    for text in ("a \ud83d b", "\udc00"):
        plain = subject.renderer.decode(subject.renderer.encode(text.replace("\ud83d", "").replace("\udc00", "")))
        shown = subject.renderer.decode(subject.renderer.encode(text))
        _hold(len(shown) > len(plain), f"{text!r} is shown as {shown!r}: the surrogate is gone")
        subject.renderer.open([_say(text)], [])
    return True


@_behaviour
def _content_spells_no_control(subject: _Subject) -> bool:
    """Content that spells a control token makes none, and decodes to itself."""
    ids = set(subject.control.values()) | subject.renderer.info.stop_ids
    for text in subject.control:
        for said in (text, f"x{text}y", f"{text}{text}"):
            made = subject.renderer.encode(said)
            _hold(ids.isdisjoint(made.tolist()), f"the text {said!r} became control tokens: {made.tolist()}")
            back = subject.renderer.decode(made)
            _hold(_same_text(back, said), f"the text {said!r} came back as {back!r}")
    return True


@_behaviour
def _messages_spell_no_control(subject: _Subject) -> bool:
    """Inside a conversation too, content tokens are no control tokens, whoever says them and wherever they stand."""
    ids = set(subject.control.values()) | subject.renderer.info.stop_ids
    said = "".join(subject.control)
    rendered = [
        subject.renderer.open([_say(said)], []),
        subject.renderer.extend(_stop(subject.renderer), [_say(said)], []),
    ]
    with suppress(ModelError):
        result = Message(role=Role.TOOL, content=said, call_id=_CALLS[0].id, name=_TOOL.name)
        rendered.append(subject.renderer.extend(_stop(subject.renderer), [result], []))
    for one in (one for rendering in rendered for one in rendering.messages):
        made = ids.intersection(_of_kind(one, RunKind.CONTENT))
        _hold(not made, f"a message that spells control tokens made {sorted(made)} of its content")
    plain = subject.renderer.open([_say("word")], [])
    _hold(
        sum(token in ids for token in _ids(rendered[0])) == sum(token in ids for token in _ids(plain)),
        "a message that spells control tokens brings more of them than one that does not",
    )
    return True


# Pieces


@_behaviour
def _runs_cover_ids(subject: _Subject) -> bool:
    """The runs of each message cover its ids exactly, and every id lies inside the vocabulary."""
    size = subject.renderer.info.vocab_size
    for rendering in _renderings(subject.renderer):
        for one in rendering.messages:
            _hold(
                len(_kinds(one)) == len(one.token_ids) and bool((one.runs[:, 1] > 0).all()),
                f"runs {one.runs.tolist()} over {len(one.token_ids)} tokens",
            )
        outside = [token for token in _ids(rendering) if not 0 <= token < size]
        _hold(not outside, f"ids {outside} lie outside the vocabulary of {size}")
    return True


@_behaviour
def _content_is_marked(subject: _Subject) -> bool:
    """What a message says is content, and what the template writes around it is scaffold."""
    for one in (one for rendering in _renderings(subject.renderer) for one in rendering.messages if not one.added):
        content = subject.renderer.decode(_array(_of_kind(one, RunKind.CONTENT)))
        around = subject.renderer.decode(_array(_of_kind(one, RunKind.SCAFFOLD)))
        said = one.message.content.splitlines()[0]
        _hold(_holds_text(content, said), f"{said!r} is not among the content {content!r}")
        _hold(said not in around, f"{said!r} stands in the scaffold {around!r}")
    return True


@_behaviour
def _messages_come_back(subject: _Subject) -> bool:
    """A batch comes back as the messages that were given, in their order, and each holds its own text."""
    for batch in ([_AGAIN], list(_RESULTS), [*_RESULTS, _AGAIN]):
        try:
            rendering = subject.renderer.extend(_stop(subject.renderer), batch, [_TOOL])
        except ModelError:
            continue
        given = [one.message for one in rendering.messages]
        _hold(given == batch, f"{len(batch)} messages went in, {len(given)} came out or in another order")
        for one in rendering.messages:
            text = subject.renderer.decode(one.token_ids)
            _hold(one.message.content in text, f"{one.message.content!r} is not in its own tokens: {text!r}")
    return True


@_behaviour
def _prompt_stands_apart(subject: _Subject) -> bool:
    """The generation prompt belongs to the assistant: a message's tokens are the same whether a reply follows it or
    another message."""
    alone = subject.renderer.extend(_stop(subject.renderer), [_ASK], [])
    try:
        both = subject.renderer.extend(_stop(subject.renderer), [_ASK, _AGAIN], [])
    except ModelError:
        return False
    one, other = alone.messages[0].token_ids.tolist(), both.messages[0].token_ids.tolist()
    _hold(
        one == other,
        f"before a reply {subject.renderer.decode(_array(one))!r}, before a message "
        f"{subject.renderer.decode(_array(other))!r}",
    )
    return True


# Continuing


@_behaviour
def _new_messages_only(subject: _Subject) -> bool:
    """Continuing costs what is new: it repeats nothing of the conversation, and no other conversation changes it."""
    before = subject.renderer.extend(_stop(subject.renderer), [_AGAIN], [])
    subject.renderer.open([_say("Something else. " * 100)], [])
    subject.renderer.extend(_stop(subject.renderer), [_say("And more of it. " * 100)], [])
    after = subject.renderer.extend(_stop(subject.renderer), [_AGAIN], [])
    _hold(_ids(before) == _ids(after), "the same continuation gives other ids after another conversation")
    short, long = (len(_ids(subject.renderer.extend(_stop(subject.renderer), [_say(text)], []))) for text in ("a", "b"))
    _hold(abs(short - long) <= 1, f"messages of one letter take {short} and {long} tokens")
    text = subject.renderer.decode(_array(_ids(after)))
    _hold(text.count(_AGAIN.content) == 1, f"the new message stands {text.count(_AGAIN.content)} times in {text!r}")
    return True


@_behaviour
def _same_again(subject: _Subject) -> bool:
    """The same arguments give the same ids, runs and prompt each time."""
    for one, other in zip(_renderings(subject.renderer), _renderings(subject.renderer), strict=True):
        _hold(_ids(one) == _ids(other), "two equal renderings have different ids")
        kinds = ([_kinds(each) for each in rendering.messages] for rendering in (one, other))
        _hold(next(kinds) == next(kinds), "two equal renderings have different runs")
    return True


@_behaviour
def _end_stands_once(subject: _Subject) -> bool:
    """Behind a turn that ended, its end-of-turn token is not written a second time."""
    for stop in sorted(subject.renderer.info.stop_ids):
        rendering = subject.renderer.extend(stop, [_AGAIN], [])
        _hold(_ids(rendering)[0] != stop, f"{subject.renderer.decode(_array([stop]))!r} is written twice")
        forced = _of_kind(rendering.messages[0], RunKind.FORCED)
        _hold(not forced, f"a turn that ended is closed again with {forced}")
    return True


@_behaviour
def _cut_turn_is_closed(subject: _Subject) -> bool:
    """Behind a turn that was cut, an end-of-turn token comes first and is marked as forced, for it was not sampled."""
    renderer = subject.renderer
    first = renderer.extend(_plain_id(renderer), [_AGAIN], []).messages[0]
    kinds = _kinds(first)
    count = kinds.count(RunKind.FORCED)
    _hold(kinds[:count] == [RunKind.FORCED] * count and count > 0, f"a cut turn is not closed first: kinds {kinds[:8]}")
    close = first.token_ids.tolist()[:count]
    _hold(close[-1] in renderer.info.stop_ids, f"it is closed with {close}, of which none ends a turn")
    closed = renderer.extend(close[-1], [_AGAIN], []).messages[0]
    _hold(first.token_ids.tolist()[count:] == closed.token_ids.tolist(), "what follows the close differs")
    return True


@_behaviour
def _nothing_is_no_message(subject: _Subject) -> bool:
    """A conversation and a continuation hold at least one message; without any they are refused."""
    for render in (
        lambda: subject.renderer.open([], []),
        lambda: subject.renderer.extend(_stop(subject.renderer), [], []),
    ):
        try:
            render()
        except RollbookError:
            continue
        raise NotConforming("no message at all is rendered instead of refused")
    return True


@_behaviour
def _tools_are_shown_or_refused(subject: _Subject) -> bool:
    """Tools stand in the tokens by name and description, or the conversation is refused; they are never dropped."""
    try:
        rendering = subject.renderer.open([_ASK], [_TOOL])
    except ModelError:
        return False
    text = subject.renderer.decode(_array(_ids(rendering)))
    _hold(rendering.tools_rendered, "the rendering says that the tools are not in it, and was not refused")
    _hold(_TOOL.name in text and _TOOL.description in text, f"the tool is not in the text {text!r}")
    return True


@_behaviour
def _blocks_are_refused(subject: _Subject) -> bool:
    """Content that is not text (an image block) is refused with an error of ours, never dropped or spelled out."""
    block: Any = [{"type": "image", "image": "rope.png"}]
    try:
        subject.renderer.open([Message(role=Role.USER, content=block)], [])
    except RollbookError:
        return True
    raise NotConforming("a message with an image block is rendered")


# Reading replies


def _parse(renderer: Renderer, ids: Sequence[int], *, cut: bool = False, inside_reasoning: bool = False) -> Parsed:
    return renderer.parse(_array(ids), [_TOOL], inside_reasoning=inside_reasoning, cut=cut, call_prefix="t1-")


def _written(subject: _Subject, calls: tuple[ToolCall, ...]) -> tuple[list[int], bool] | None:
    """A turn with calls as the template writes it, end-of-turn token included, and whether it begins inside
    reasoning. None where the renderer takes no such history, where history shows a turn otherwise than it is sampled,
    and where it only quotes the control tokens of a call (a tool prompt's calls are content)."""
    renderer = subject.renderer
    turn = Message(role=Role.ASSISTANT, tool_calls=calls)
    try:
        start = renderer.open([_ASK], [_TOOL])
        told = _ids(renderer.open([_ASK, turn, *_RESULTS[: len(calls)]], [_TOOL]))
    except ModelError:
        return None
    prompt = _ids(start)
    end = next((at for at in range(len(prompt), len(told)) if told[at] in renderer.info.stop_ids), None)
    if end is None or told[: len(prompt)] != prompt:
        return None
    ids = told[len(prompt) : end + 1]
    text = renderer.decode(_array(ids))
    quoted = [spelling for spelling, token in subject.control.items() if spelling in text and token not in ids]
    return None if quoted else (ids, start.inside_reasoning)


@_behaviour
def _text_reads_back(subject: _Subject) -> bool:
    """A reply of plain text is that text, closed by a stop token and open without one, and calls nothing."""
    renderer, said = subject.renderer, "This is \u00fcber plain \U0001f642 text."
    ids = renderer.encode(said).tolist()
    for stop in [*sorted(renderer.info.stop_ids), None]:
        parsed = _parse(renderer, ids if stop is None else [*ids, stop], cut=stop is None)
        _hold(parsed.closed == (stop is not None), f"with the last token {stop}, closed is {parsed.closed}")
        _hold(parsed.message.role is Role.ASSISTANT, f"the reply's role is {parsed.message.role}")
        _hold(parsed.message.content == said, f"{said!r} reads as {parsed.message.content!r}")
        _hold(not parsed.message.tool_calls, f"plain text made calls: {parsed.message.tool_calls}")
    return True


@_behaviour
def _empty_reply_reads(subject: _Subject) -> bool:
    """A reply of no tokens, and one of a stop token alone, are empty messages."""
    for ids in ([], [_stop(subject.renderer)]):
        parsed = _parse(subject.renderer, ids, cut=not ids)
        _hold(parsed.message.content == "" and not parsed.message.tool_calls, f"no tokens read as {parsed.message}")
        _hold(parsed.closed == bool(ids), f"a reply of {ids} is closed: {parsed.closed}")
    return True


@_behaviour
def _bytes_are_kept(subject: _Subject) -> bool:
    """A reply that was cut inside a character shows U+FFFD and keeps the bytes."""
    said = "\U0001fabf"
    ids = subject.renderer.encode(said).tolist()
    if len(ids) < 2:
        return False
    for end in range(1, len(ids)):
        message = _parse(subject.renderer, ids[:end], cut=True).message
        _hold(
            message.raw is not None and said.encode().startswith(message.raw),
            f"{end} of the {len(ids)} tokens of {said!r} read as {message.content!r} with raw {message.raw!r}",
        )
    return True


@_behaviour
def _calls_read_back(subject: _Subject) -> bool:
    """Calls as the template writes them are read as the same calls, in their order, each with an id of its own."""
    seen = False
    for calls in (_CALLS[:1], _CALLS):
        written = _written(subject, calls)
        if written is None:
            continue
        seen = True
        found = _parse(subject.renderer, written[0], inside_reasoning=written[1]).message.tool_calls
        told = [(call.name, call.arguments, call.status) for call in found]
        meant = [(call.name, call.arguments, ParseStatus.OK) for call in calls]
        _hold(told == meant, f"{meant} read back as {told}")
        _hold(len({call.id for call in found}) == len(calls), f"ids {[call.id for call in found]} are not distinct")
    return seen


@_behaviour
def _cut_invents_no_call(subject: _Subject) -> bool:
    """Wherever the generation limit cuts a reply, a call that reads as ok is one that was meant, to the last
    argument, and the reply is not closed."""
    written = _written(subject, _CALLS) or _written(subject, _CALLS[:1])
    if written is None:
        return False
    ids, inside = written
    meant = [(call.name, call.arguments) for call in _CALLS]
    for end in range(len(ids)):
        parsed = _parse(subject.renderer, ids[:end], cut=True, inside_reasoning=inside)
        found = [(call.name, call.arguments) for call in parsed.message.tool_calls if call.status is ParseStatus.OK]
        _hold(found == meant[: len(found)], f"cut after {end} of {len(ids)} tokens, it reads as {found}")
        _hold(not parsed.closed, f"cut after {end} of {len(ids)} tokens, it counts as closed")
    return True


@_behaviour
def _reasoning_calls_nothing(subject: _Subject) -> bool:
    """A call inside reasoning that is still open never reads as ok."""
    written = _written(subject, _CALLS[:1])
    if written is None or written[1]:
        return False
    found = _parse(subject.renderer, written[0], inside_reasoning=True).message.tool_calls
    said = [call.status for call in found]
    _hold(ParseStatus.OK not in said, f"inside reasoning, a call reads as {said}")
    return True


@_behaviour
def _quoted_calls_are_text(subject: _Subject) -> bool:
    """Where control tokens mark a call, a reply of ordinary tokens that spells them makes no call that reads as ok."""
    written = _written(subject, _CALLS[:1])
    if written is None or not set(subject.control.values()).intersection(written[0][:-1]):
        return False
    ids = subject.renderer.encode(subject.renderer.decode(_array(written[0][:-1]))).tolist()
    found = _parse(subject.renderer, [*ids, written[0][-1]], inside_reasoning=written[1]).message.tool_calls
    wrong = [call for call in found if call.status is ParseStatus.OK]
    _hold(not wrong, f"a quoted call reads as {wrong}")
    return True
