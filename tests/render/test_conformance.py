"""Every family does what every renderer must, and a renderer that is bent in one way is found out by its behaviour."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.render import ChatRenderer, Parsed, RenderedMessage, RendererInfo, Rendering
from rollbook.render.conformance import Behaviour, NotConforming, behaviours
from rollbook.render.harmony import HarmonyRenderer
from rollbook.trace.message import Message, ParseStatus
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, make_runs
from rollbook.trace.tools import ToolSpec
from tests.render import families
from tests.render.stock import NAMES, stock

ALL = {behaviour.name: behaviour for behaviour in behaviours()}
CALLS = {"calls_read_back", "cut_invents_no_call", "reasoning_calls_nothing", "quoted_calls_are_text"}
QUOTED = {"quoted_calls_are_text"}
UNSEEN: dict[str, set[str]] = {
    "llama3.1": QUOTED,
    "llama3.2": QUOTED,
    "deepseek-v3": QUOTED,
    "deepseek-v3-trl": CALLS,
    "deepseek-r1": CALLS,
    "gemma3": {*QUOTED, "prompt_stands_apart"},
    "mistral-nemo": {"prompt_stands_apart"},
    "mistral-v3": {"prompt_stands_apart"},
    "smollm2": QUOTED,
    "smollm2-marked": CALLS,
    "smollm2-text": QUOTED,
    "qwen3-text": QUOTED,
}
"""Behaviours that a family refuses to show: no calls in given history, calls without markers, no two questions in a
row."""


def renderer_of(name: str) -> ChatRenderer:
    return stock(name).renderer if name in NAMES else families.family(name).renderer


@pytest.mark.parametrize("name", [*NAMES, *families.FAMILIES])
def test_every_family_conforms(name: str) -> None:
    unseen, failed = set(), {}
    for behaviour in behaviours():
        try:
            seen = behaviour.check(renderer_of(name))
        except NotConforming as fault:
            failed[behaviour.name] = str(fault)
            continue
        if not seen:
            unseen.add(behaviour.name)
    assert not failed
    assert unseen == UNSEEN.get(name, set())


def test_harmony_conforms(harmony: HarmonyRenderer) -> None:
    """A cut turn is closed with <|end|>, which is no stop token: the renderer itself says that it is control."""
    assert [behaviour.name for behaviour in behaviours() if not behaviour.check(harmony)] == []


def test_one_renderer_serves_threads() -> None:
    """The same behaviours, all at once over one renderer."""
    renderer = renderer_of("qwen3-marked")
    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(lambda behaviour: behaviour.check(renderer), [*behaviours()] * 4))
    assert all(seen)


def test_behaviours_have_names_and_rules() -> None:
    assert len(ALL) == len(behaviours())
    for behaviour in behaviours():
        assert str(behaviour) == behaviour.name
        assert behaviour.rule.endswith(".")


def test_control_tokens_are_those_of_the_tokenizer() -> None:
    renderer = renderer_of("qwen3")
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= renderer.control_tokens.keys()
    assert set(renderer.control_tokens.values()) == renderer.control_ids


def test_control_tokens_are_the_stop_tokens_where_none_are_named() -> None:
    bent = Bent(encode=lambda inner, text: inner._encoder.encode_parsed(text))
    with pytest.raises(NotConforming, match="became control tokens"):
        ALL["content_spells_no_control"].check(bent)


class Bent:
    """A renderer that does all but one thing right."""

    def __init__(self, **bends: Callable[..., Any]) -> None:
        self._inner = renderer_of("qwen3-marked")
        self._bends = bends
        self.asked = 0
        """How many renderings were asked for."""

    def _bend(self, what: str, *arguments: Any) -> Any:
        return self._bends[what](*arguments) if what in self._bends else arguments[-1]

    @property
    def info(self) -> RendererInfo:
        return self._bend("info", self._inner.info)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        self.asked += 1
        if "open" in self._bends:
            return self._bends["open"](self._inner, messages, tools)
        return self._bend("rendering", self, self._inner.open(messages, tools))

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        self.asked += 1
        last_id = self._bend("last", self._inner, last_id)
        return self._bend("rendering", self, self._inner.extend(last_id, messages, tools))

    def rerender(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        return self._bend("history", self._inner.rerender(messages, tools))

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        token_ids = self._bend("reply", self._inner, token_ids)
        inside_reasoning = self._bend("inside", inside_reasoning)
        parsed = self._inner.parse(
            token_ids, tools, inside_reasoning=inside_reasoning, cut=cut, call_prefix=call_prefix
        )
        return self._bend("parsed", parsed)

    def encode(self, text: str) -> TokenIds:
        return self._bends["encode"](self._inner, text) if "encode" in self._bends else self._inner.encode(text)

    def decode(self, token_ids: TokenIds) -> str:
        return self._inner.decode(token_ids)


def each_message(bend: Callable[[ChatRenderer, RenderedMessage], RenderedMessage]) -> Callable[..., Rendering]:
    def rendering(bent: Bent, made: Rendering) -> Rendering:
        return dataclasses.replace(made, messages=tuple(bend(bent._inner, one) for one in made.messages))

    return rendering


def parsed_again(inner: ChatRenderer, one: RenderedMessage) -> RenderedMessage:
    """As a renderer that writes text and encodes all of it, control tokens parsed."""
    ids = inner.reencode(one.token_ids)
    return dataclasses.replace(one, token_ids=ids, runs=make_runs((RunKind.CONTENT, len(ids))))


def all_scaffold(_: ChatRenderer, one: RenderedMessage) -> RenderedMessage:
    return dataclasses.replace(one, runs=make_runs((RunKind.SCAFFOLD, len(one.token_ids))))


def a_token_short(_: ChatRenderer, one: RenderedMessage) -> RenderedMessage:
    return dataclasses.replace(one, token_ids=one.token_ids[:-1])


def stop_again(inner: ChatRenderer, one: RenderedMessage) -> RenderedMessage:
    ids = np.concatenate(([min(inner.info.stop_ids)], one.token_ids)).astype(np.int32)
    return dataclasses.replace(one, token_ids=ids, runs=np.concatenate((make_runs((0, 1)), one.runs)))


def prompt_in_message(bent: Bent, made: Rendering) -> Rendering:
    *others, last = made.messages
    ids = np.concatenate((last.token_ids, made.prompt_ids))
    runs = np.concatenate((last.runs, make_runs((RunKind.SCAFFOLD, len(made.prompt_ids)))))
    whole = dataclasses.replace(last, token_ids=ids, runs=runs)
    return dataclasses.replace(made, messages=(*others, whole), prompt_ids=ids[:0])


def remembers(bent: Bent, made: Rendering) -> Rendering:
    return dataclasses.replace(made, prompt_ids=np.repeat(made.prompt_ids, bent.asked))


def turned(made: Rendering) -> Rendering:
    return dataclasses.replace(made, messages=made.messages[::-1])


def backwards(bent: Bent, made: Rendering) -> Rendering:
    return turned(made)


def without_tools(inner: ChatRenderer, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
    return inner.open(messages, ())


def spelled_blocks(inner: ChatRenderer, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
    return inner.open([msgspec.structs.replace(one, content=str(one.content)) for one in messages], tools)


def open_nothing(inner: ChatRenderer, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
    nothing = np.zeros(0, np.int32)
    return Rendering(messages=(), prompt_ids=nothing, inside_reasoning=False, tools_rendered=True)


def said(**changes: Any) -> Callable[[Parsed], Parsed]:
    def parsed(made: Parsed) -> Parsed:
        return dataclasses.replace(made, message=msgspec.structs.replace(made.message, **changes))

    return parsed


def turned_calls(made: Parsed) -> Parsed:
    return said(tool_calls=made.message.tool_calls[::-1])(made)


def repaired(made: Parsed) -> Parsed:
    """A bad call becomes one without arguments."""
    calls = [
        msgspec.structs.replace(
            call, name=call.name or "measure", arguments=call.arguments or {}, status=ParseStatus.OK
        )
        for call in made.message.tool_calls
    ]
    return said(tool_calls=tuple(calls))(made)


def closed(made: Parsed) -> Parsed:
    return dataclasses.replace(made, closed=True)


BENT: dict[str, dict[str, Callable[..., Any]]] = {
    "stops_are_tokens": {"info": lambda info: dataclasses.replace(info, stop_ids=frozenset({info.vocab_size}))},
    "encoding_keeps_text": {"encode": lambda inner, text: inner.encode(text.strip())},
    "lone_surrogates_are_shown": {"encode": lambda inner, text: inner.encode(text.encode("utf-8", "ignore").decode())},
    "content_spells_no_control": {"encode": lambda inner, text: inner._encoder.encode_parsed(text)},
    "messages_spell_no_control": {"rendering": each_message(parsed_again)},
    "runs_cover_ids": {"rendering": each_message(a_token_short)},
    "content_is_marked": {"rendering": each_message(all_scaffold)},
    "messages_come_back": {"rendering": backwards},
    "prompt_stands_apart": {"rendering": prompt_in_message},
    "new_messages_only": {"rendering": remembers},
    "same_again": {"rendering": remembers},
    "end_stands_once": {"rendering": each_message(stop_again)},
    "cut_turn_is_closed": {"last": lambda inner, last: min(inner.info.stop_ids)},
    "history_is_whole": {"history": turned},
    "nothing_is_no_message": {"open": open_nothing},
    "tools_are_shown_or_refused": {"open": without_tools},
    "blocks_are_refused": {"open": spelled_blocks},
    "text_reads_back": {"parsed": said(content="This is plain text.")},
    "empty_reply_reads": {"parsed": closed},
    "bytes_are_kept": {"parsed": said(raw=None)},
    "calls_read_back": {"parsed": turned_calls},
    "cut_invents_no_call": {"parsed": repaired},
    "reasoning_calls_nothing": {"inside": lambda inside: False},
    "quoted_calls_are_text": {"reply": lambda inner, ids: inner.reencode(ids)},
}


@pytest.mark.parametrize("behaviour", behaviours(), ids=str)
def test_a_bent_renderer_is_found_out(behaviour: Behaviour) -> None:
    control = renderer_of("qwen3-marked").control_tokens
    assert behaviour.check(Bent(), control)
    with pytest.raises(NotConforming):
        behaviour.check(Bent(**BENT[behaviour.name]), control)
