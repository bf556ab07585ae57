"""Prove, before a template is used, that it can be rendered step by step; find out what it does with tools.

For each of a few conversations the full rendering must hold, in order, the start and then each increment behind the
end of its turn, character for character: the template only appends, and what it writes for new messages does not
depend on older ones. The tracked text must also be the one that plain Jinja gives. A conversation that the template
refuses (no system role, no tool role) proves nothing and is passed over; the simplest one must be taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage, call_entry
from rollbook.render.increments import Increments, Tools, common_prefix
from rollbook.render.template import ChatTemplate, plain_render
from rollbook.render.tracked import Tracked, message_tag, scaffold, tags_of

__all__ = ["Finding", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a template does."""

    close: str
    """The end-of-turn token that it writes behind an assistant's text."""
    renders_tools: bool
    """True where tools change the start of a conversation."""
    renders_calls: bool
    """True where it writes the tool calls of an assistant message."""
    tools_each_time: bool
    """True where later messages too render right only with the tools given."""
    keeps_prompt: bool
    """True where history shows an assistant's turn behind the very text of the generation prompt."""
    sample: Tracked
    """A full rendering, for checks of the tokenizer."""


_TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
_CALL = call_entry("call_a", "lookup", {"word": "book"})
_OTHER = call_entry("call_b", "lookup", {"word": "roll"})


def _say(role: str, text: str, **more: object) -> TemplateMessage:
    return {"role": scaffold(role), "content": text, **more}


def _result(call_id: str, text: str) -> TemplateMessage:
    return _say("tool", text, tool_call_id=call_id, name="lookup")


_PLAIN = [_say("user", "First, please."), _say("assistant", "Done one."), _say("user", "Now the second.")]
_CONVERSATIONS: tuple[list[TemplateMessage], ...] = (
    _PLAIN,
    [*_PLAIN, _say("assistant", "Done two."), _say("user", "And the third.")],
    [_say("system", "Be brief."), *_PLAIN],
    [_PLAIN[0], _say("assistant", "Looking.", tool_calls=[_CALL]), _result("call_a", "found it")],
    [
        *_PLAIN,
        _say("assistant", "Looking twice.", tool_calls=[_CALL, _OTHER]),
        _result("call_a", "found it"),
        _result("call_b", "lost it"),
        _say("assistant", "That is all."),
        _say("user", "Thanks, one more."),
    ],
)


def probe(template: ChatTemplate, stops: Sequence[str]) -> Finding:
    """Raises `ModelError` with the first difference where the template cannot be rendered step by step."""
    increments = Increments(template, tuple(stops))
    close = increments.close()
    bare = _render(increments, _PLAIN, None)
    tools = [_TOOL]
    renders_tools = _render(increments, _PLAIN, tools) != bare
    each_time = False
    keeps_prompt = _prove(increments, None, later=None)
    if renders_tools:
        try:
            _prove(increments, tools, later=None)
        except ModelError:
            _prove(increments, tools, later=tools)
            each_time = True
    calls = _CONVERSATIONS[3]
    return Finding(
        close=close,
        renders_tools=renders_tools,
        renders_calls=_takes(increments, _all_tagged(calls), None) and "book" in _render(increments, calls, None),
        tools_each_time=each_time,
        keeps_prompt=keeps_prompt,
        sample=bare,
    )


def _render(increments: Increments, entries: list[TemplateMessage], tools: Tools) -> Tracked:
    text = increments.template.render(entries, tools, prompt=True)
    plain = plain_render(increments.template, entries, tools, prompt=True)
    if plain != text:
        raise ModelError(f"the chat template does not render the same with its text tracked: {_differ(plain, text)}")
    return text


def _takes(increments: Increments, entries: list[TemplateMessage], tools: Tools) -> bool:
    """True where the template renders the conversation and leaves no text out."""
    try:
        tags = tags_of(increments.template.render(entries, tools, prompt=True))
    except ModelError:
        return False
    return all(message_tag(index) in tags for index in range(len(entries)))


def _prove(increments: Increments, tools: Tools, *, later: Tools) -> bool:
    """Hold each conversation; true where history shows each turn behind the very text of the generation prompt."""
    same_prompt = True
    for number, entries in enumerate(_CONVERSATIONS):
        tagged = _all_tagged(entries)
        if number and not _takes(increments, tagged, tools):
            continue
        whole = increments.template.render(tagged, tools, prompt=True)
        position = 0
        batches = list(_batches(tagged))
        for turn, batch in batches:
            if turn is not None:
                position = increments.turn_end(whole, tags_of(whole).rfind(message_tag(turn)) + 1)
            made = increments.first(batch, tools) if turn is None else increments.after_turn(batch, later)
            expected = made.text if turn == batches[-1][0] else made.text[: made.ends[-1]]
            if not whole.startswith(expected, position):
                raise ModelError(
                    "the chat template cannot be rendered step by step: what it writes for new messages depends on "
                    f"the rest of the conversation; {_differ(expected, whole[position:])}"
                )
            same_prompt = same_prompt and whole.startswith(made.text, position)
    return same_prompt


def _tagged(entry: TemplateMessage, index: int) -> TemplateMessage:
    text = entry["content"]
    return {**entry, "content": Tracked(text, message_tag(index) * len(text))}


def _all_tagged(entries: list[TemplateMessage]) -> list[TemplateMessage]:
    return [_tagged(entry, index) for index, entry in enumerate(entries)]


def _batches(entries: list[TemplateMessage]) -> Iterator[tuple[int | None, list[TemplateMessage]]]:
    """The batches between turns, each with the index of the assistant message before it."""
    turns = [index for index, entry in enumerate(entries) if entry["role"] == "assistant"]
    starts = [None, *turns]
    for turn, end in zip(starts, [*turns, len(entries)], strict=True):
        first = 0 if turn is None else turn + 1
        yield turn, _all_tagged(entries[first:end])


def _differ(expected: str, found: str) -> str:
    at = common_prefix(expected, found)
    return f"alone {str(expected)[at : at + 60]!r}, in the whole {str(found)[at : at + 60]!r} (character {at})"
