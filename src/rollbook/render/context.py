"""How a path goes on: new messages behind it (an extension), or a new branch where its history is written anew.

Under ``keep`` the stored ids stay and only the new messages are rendered, so the cost does not grow with history.
Under ``template`` the whole conversation is rendered as the template writes it now and compared with the path as
text, token spelling apart: drift is never healed. What is the same up to the end of a message stays with its stored
ids; from the first message that differs on all are new nodes. There, too, a message whose text is the same keeps its
stored ids; of a turn they are content then, for no token is sampled twice. A turn that the template cannot write as
it was sampled (calls that did not parse, bytes that are not UTF-8, text that it would leave out) is stood in for and
keeps its ids. Line ends at the seams of reasoning, text and calls are the template's to write.

Tools are the same where their OpenAI form is equal as JSON in the same order of tools; the order of keys does not
count, and the path's own spelling is used on. With other tools all is rendered anew, also under ``keep``, which then
leaves every turn its ids. A close that was put in behind a turn stands with the next message and counts to the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec
import numpy as np

from rollbook.errors import ModelError
from rollbook.render.encode import Piece
from rollbook.render.increments import common_prefix
from rollbook.render.protocol import RenderedMessage, Renderer, Rendering
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall, canonical_bytes
from rollbook.trace.node import Fork, ForkReason, Node, TokenIds
from rollbook.trace.record import ContextPolicy
from rollbook.trace.runs import RunKind, Runs, compress_runs, expand_runs
from rollbook.trace.tools import ToolSpec

__all__ = ["Extension", "Past", "Rewrite", "as_written", "go_on", "same_tools"]

SHOWN = 40
"""Characters of each spelling in the detail of a fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The path that is to go on."""

    last_id: int
    """The last token of its last turn."""
    tools: Sequence[ToolSpec]
    """What it was rendered with."""
    nodes: Callable[[], Sequence[Node]]
    """Its nodes, root first; called only where history is looked at."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The path goes on."""

    rendering: Rendering
    """Of the new messages."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A new branch."""

    shared: int
    """How many nodes of the path it shares."""
    fork: Fork
    """Goes with its first node."""
    rendering: Rendering
    """Of every message behind the shared ones: first those that stand for nodes of the path, one for each, then the
    new ones."""


def same_tools(one: Sequence[ToolSpec], other: Sequence[ToolSpec]) -> bool:
    """True where a model is told of the same tools in the same order; the order of keys does not count."""
    return canonical_bytes([tool.openai() for tool in one]) == canonical_bytes([tool.openai() for tool in other])


def go_on(
    renderer: Renderer,
    past: Past,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    policy: ContextPolicy,
) -> Extension | Rewrite:
    """Put `messages` behind the path. Raises `ModelError` where the template refuses the conversation, or where the
    tools changed and stand in an explicit tool prompt, whose text is part of the stored messages."""
    changed = past.tools is not tools and not same_tools(past.tools, tools)
    if policy is ContextPolicy.KEEP and not changed:
        return Extension(renderer.extend(past.last_id, messages, past.tools))
    if changed and renderer.info.tool_prompt is not None:
        raise ModelError("the tools changed, and they are told in a tool prompt: start a conversation of its own")
    nodes = past.nodes()
    # A tool prompt's text and examples are messages of the path already.
    told = () if renderer.info.tool_prompt is not None else tools if changed else past.tools
    rendering, odd = _rerender(renderer, [node.message for node in nodes], messages, told)
    if len(rendering.messages) != len(nodes) + len(messages):
        raise ModelError("the renderer adds messages of its own to a history; only the context policy keep can be used")
    turns = {place for place, node in enumerate(nodes) if node.message.role is Role.ASSISTANT}
    fixed = turns if policy is ContextPolicy.KEEP else odd
    kept = [_kept(renderer, nodes, place, rendering.messages[place], place in fixed) for place in range(len(nodes))]
    tools_fork = _tools_fork(past.tools, tools) if changed else None
    if len(nodes) - 1 in odd:
        note = f"the template cannot write message {len(nodes)} as it was sampled; it keeps its ids in every branch"
        rendering = replace(rendering, notes=(*rendering.notes, note))
    return _compare(kept, rendering, messages, tools_fork)


def _rerender(
    renderer: Renderer, path: Sequence[Message], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> tuple[Rendering, set[int]]:
    """The whole conversation, and the places of the turns that were stood in for."""
    odd = {place for place, message in enumerate(path) if not _can_express(message)}
    try:
        return renderer.rerender(_shown(path, messages, odd), tools), odd
    except ModelError:
        alone = {place for place, message in enumerate(path) if place not in odd and _is_refused(renderer, message)}
        if not alone:
            raise
        return renderer.rerender(_shown(path, messages, odd | alone), tools), odd | alone


def _is_refused(renderer: Renderer, turn: Message) -> bool:
    """True where a template that takes a short conversation with a stand-in refuses it with the turn itself, e.g. for
    it would leave out the turn's text."""
    if turn.role is not Role.ASSISTANT:
        return False
    user, shown, other = Message(role=Role.USER, content="?"), as_written(turn), _stand_in(turn)
    results = [Message(role=Role.TOOL, content="?", call_id=call.id, name=call.name) for call in other.tool_calls]
    shapes = ([*results, user], results)  # a template may take no user message right behind results
    return any(
        _takes(renderer, [user, other, *behind]) and not _takes(renderer, [user, shown, *behind]) for behind in shapes
    )


def _takes(renderer: Renderer, messages: Sequence[Message]) -> bool:
    try:
        renderer.rerender(messages, ())
    except ModelError:
        return False
    return True


def _shown(path: Sequence[Message], messages: Sequence[Message], odd: set[int]) -> list[Message]:
    """What is put to the template."""
    given = (_stand_in(message) if place in odd else as_written(message) for place, message in enumerate(path))
    return [*given, *messages]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A node of the path, beside what the template writes for it now."""

    node: Node
    token_ids: TokenIds
    """Without the close of the turn before."""
    runs: Runs
    close: tuple[int, RunKind] | None
    """The close that was put in behind it; None: it ends its turn itself, or is no turn."""
    text: str
    """Of its tokens, the close included."""
    now: str
    """Of what the template writes; the same text where the ids stay in any case."""

    def stored(self) -> tuple[TokenIds, Runs]:
        """Its ids for another branch, where none of them is sampled."""
        kinds = expand_runs(self.runs)
        kinds[kinds == RunKind.SAMPLED] = RunKind.CONTENT
        return self.token_ids, compress_runs(kinds)


def _kept(renderer: Renderer, nodes: Sequence[Node], place: int, now: RenderedMessage, fixed: bool) -> _Kept:
    node, stops = nodes[place], renderer.info.stop_ids
    begin = int(place > 0 and _is_open(nodes[place - 1], stops) and _first_of(node) in stops)
    close: tuple[int, RunKind] | None = None
    if _is_open(node, stops):
        if place + 1 < len(nodes):
            first, kind = _first_of(nodes[place + 1]), RunKind(int(nodes[place + 1].runs[0, 0]))
        else:
            first, kind = int(now.token_ids[-1]) if len(now.token_ids) else -1, RunKind.FORCED
        close = (first, kind) if first in stops else None
    ids = node.token_ids[begin:]
    text = renderer.decode(ids if close is None else np.append(ids, np.int32(close[0])))
    runs = compress_runs(expand_runs(node.runs)[begin:])
    return _Kept(node, ids, runs, close, text, text if fixed else renderer.decode(now.token_ids))


def _is_open(node: Node, stops: frozenset[int]) -> bool:
    return node.message.role is Role.ASSISTANT and bool(len(node.token_ids)) and int(node.token_ids[-1]) not in stops


def _first_of(node: Node) -> int:
    return int(node.token_ids[0]) if len(node.token_ids) else -1


def _compare(
    kept: Sequence[_Kept], rendering: Rendering, messages: Sequence[Message], tools_fork: Fork | None
) -> Extension | Rewrite:
    before, now = "".join(each.text for each in kept), "".join(each.now for each in kept)
    same = common_prefix(before, now)
    ends = zip(accumulate(len(each.text) for each in kept), accumulate(len(each.now) for each in kept), strict=True)
    shared = max((place for place, (a, b) in enumerate(ends, 1) if a == b <= same), default=0)
    behind = (*_again(kept[shared:], rendering.messages[shared:]), *rendering.messages[len(kept) :])
    closed = _closed(kept, shared, behind)
    given = (*(each.node.message for each in kept[shared:]), *messages)
    written = replace(
        rendering,
        messages=tuple(replace(each, message=one, added=False) for each, one in zip(closed, given, strict=True)),
    )
    if shared == len(kept):
        return Extension(written)
    place = f"message {shared + 1} ({kept[shared].node.message.role})"
    spelled = f"{before[same : same + SHOWN]!r} -> {now[same : same + SHOWN]!r}"
    fork = Fork(reason=ForkReason.TEMPLATE_REWRITE, detail=f"{place}: {spelled}")
    return Rewrite(shared, tools_fork or fork, written)


def _again(kept: Sequence[_Kept], now: Sequence[RenderedMessage]) -> list[RenderedMessage]:
    """The messages of the path on the new branch: as stored where the text is the same, else as rendered."""
    found: list[RenderedMessage] = []
    for old, new in zip(kept, now[: len(kept)], strict=True):
        ids, runs = old.stored() if old.text == old.now else (new.token_ids, new.runs)
        found.append(replace(new, token_ids=ids, runs=runs))
    return found


def _closed(kept: Sequence[_Kept], shared: int, behind: Sequence[RenderedMessage]) -> list[RenderedMessage]:
    """`behind` with the closes of turns that keep their stored ids, each in front of the message that follows."""
    found: list[RenderedMessage] = []
    close = kept[shared - 1].close if shared else None
    for place, message in enumerate(behind, shared):
        found.append(message if close is None else _behind(close, message))
        stored = place < len(kept) and kept[place].text == kept[place].now
        close = kept[place].close if stored else None
    return found


def _behind(close: tuple[int, RunKind], message: RenderedMessage) -> RenderedMessage:
    piece = Piece(message.token_ids, message.runs).led_by(*close)
    return replace(message, token_ids=piece.token_ids, runs=piece.runs)


def _tools_fork(before: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> Fork:
    names = (", ".join(tool.name for tool in tools) or "none" for tools in (before, now))
    return Fork(reason=ForkReason.TOOLS_CHANGED, detail="tools: " + " -> ".join(names))


def _can_express(message: Message) -> bool:
    """False for a turn whose calls did not all parse or whose bytes are not UTF-8. A call inside reasoning is text of
    the reasoning."""
    calls = (call.status in (ParseStatus.OK, ParseStatus.INSIDE_REASONING) for call in message.tool_calls)
    return message.role is not Role.ASSISTANT or (message.raw is None and all(calls))


def as_written(message: Message) -> Message:
    """A turn without the line ends at the seams of its reasoning, text and calls: there the template writes its own."""
    if message.role is not Role.ASSISTANT or not (message.tool_calls or message.reasoning is not None):
        return message
    content, reasoning, calls = message.content, message.reasoning, _answered(message)
    content = content.lstrip("\n") if reasoning is not None else content
    return msgspec.structs.replace(
        message,
        content=content.rstrip("\n") if calls else content,
        reasoning=None if reasoning is None else reasoning.strip("\n"),
        tool_calls=calls,
    )


def _answered(turn: Message) -> tuple[ToolCall, ...]:
    """The calls that are no mere text of the reasoning."""
    return tuple(call for call in turn.tool_calls if call.status is not ParseStatus.INSIDE_REASONING)


def _stand_in(turn: Message) -> Message:
    """What is put to the template in place of a turn that it cannot write: calls of the same names, for the results
    behind it to answer. What is written for it is not used."""
    calls = tuple(ToolCall(id=call.id, name=call.name or "unknown", arguments={}) for call in _answered(turn))
    return Message(role=Role.ASSISTANT, content=".", tool_calls=calls)
