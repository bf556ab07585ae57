"""CPU of rendering and reading a whole tool chat, beside re-rendering at each turn and beside another package.

One chat of Qwen3 with its own tokenizer and template: a user asks, and each turn is reasoning, a few words and one
tool call, answered by source text or JSON. The same sampled ids and the same results go three ways, in turns in one
process:

- ours: `open`, then for each turn `parse` of the sampled ids and `extend` with the result, and the prompt as one array;
- re-rendering: ``transformers.apply_chat_template(tokenize=True)`` of all messages so far at each turn, which is
  spared the parsing;
- bridges: ``renderers``' `render`, then `parse_response` and `bridge_to_next_turn` for each turn, over the tokenizer
  of ``transformers``.

What each of them made is compared once before anything is timed: all three must give the same prompts, or the figures
would be of different work.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from renderers import Qwen3RendererConfig, create_renderer
from tests.real_tokenizers import TokenizerFiles
from tests.real_tokenizers import tokenizer as fetched
from transformers import AutoTokenizer

from bench.clock import cpu_of
from bench.corpus import Corpus
from bench.effort import Effort
from bench.rows import Of, Peer, Row, Target
from bench.toolchat import TOOLS, Chat, ChatMaker, build_qwen3
from rollbook.policy.protocol import TokenIds
from rollbook.render import ChatRenderer

__all__ = ["measure_rendering"]

PARSED = 50
"""Different replies in one pass."""
CHATS = {20: 18_000, 100: 100_000}
"""Turns -> tokens of the whole chat."""
AT_LEAST = {20: 3, 100: 10}
"""How many times less than re-rendering."""
REPLIES = (50, 500, 4_000)
"""Tokens of the replies that are parsed alone."""


class Ours:
    """Rollbook, as its loop uses it."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer

    def run(self, chat: Chat, *, parse: bool = True) -> list[int]:
        """Tokens of each prompt."""
        prompt, lengths = _Prompt(), list[int]()
        rendering = self._renderer.open(chat.start, TOOLS)
        for number, turn in enumerate(chat.turns):
            for message in rendering.messages:
                prompt.add(message.token_ids)
            prompt.add(rendering.prompt_ids)
            self.last = prompt.copy()
            lengths.append(len(self.last))
            prompt.add(turn.ids)
            if parse:
                inside = rendering.inside_reasoning
                self._renderer.parse(turn.ids, TOOLS, inside_reasoning=inside, cut=False, call_prefix=f"{number}-")
            rendering = self._renderer.extend(int(turn.ids[-1]), [turn.result], TOOLS)
        return lengths


class _Prompt:
    """Ids that grow, as the graph of a trace keeps them."""

    def __init__(self) -> None:
        self._ids, self._size = np.empty(1024, np.int32), 0

    def add(self, ids: TokenIds) -> None:
        end = self._size + len(ids)
        if end > len(self._ids):
            self._ids = np.concatenate((self._ids[: self._size], np.empty(end, np.int32)))
        self._ids[self._size : end] = ids
        self._size = end

    def copy(self) -> TokenIds:
        return self._ids[: self._size].copy()


class Rerendering:
    """``transformers``: the whole conversation at each turn."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tools = [tool.openai() for tool in TOOLS]

    def run(self, chat: Chat) -> list[int]:
        """Tokens of each prompt."""
        messages, lengths = chat.plain_start(), list[int]()
        for turn in chat.turns:
            self.last = self._tokenizer.apply_chat_template(
                messages, tools=self._tools, tokenize=True, add_generation_prompt=True, return_dict=False
            )
            lengths.append(len(self.last))
            messages += [turn.reply, turn.plain_result()]
        return lengths


class Bridges:
    """``renderers``: extends the ids of the turn before."""

    def __init__(self, tokenizer: Any) -> None:
        self._renderer = create_renderer(tokenizer, Qwen3RendererConfig())
        self._tools = [tool.openai() for tool in TOOLS]

    def run(self, chat: Chat, *, parse: bool = True) -> list[int]:
        """Tokens of each prompt."""
        first: list[Any] = chat.plain_start()
        prompt = self._renderer.render(first, tools=self._tools, add_generation_prompt=True).token_ids
        lengths: list[int] = []
        for turn in chat.turns:
            lengths.append(len(prompt))
            self.last = prompt
            ids = turn.ids.tolist()
            if parse:
                self._renderer.parse_response(ids, tools=self._tools, prompt_ids=prompt)
            results: list[Any] = [turn.plain_result()]
            bridged = self._renderer.bridge_to_next_turn(prompt, ids, results, tools=self._tools)
            if bridged is None:
                raise RuntimeError("the package refuses to extend this chat")
            prompt = bridged.token_ids
        return lengths


def measure_rendering(effort: Effort) -> list[Row]:
    """Whole chats, then replies alone."""
    files = fetched("qwen3")
    renderer = build_qwen3(files)
    maker = ChatMaker(renderer, files.tokenizer_json, Corpus(renderer, effort.characters))
    tokenizer = _transformers(files)
    ours, again, bridges = Ours(renderer), Rerendering(tokenizer), Bridges(tokenizer)
    rows: list[Row] = []
    for turns in effort.chat_turns:
        tokens = CHATS[turns]
        chat = maker.chat(turns, tokens)
        _check_same(chat, ours, again, bridges)
        times = interleaved(
            effort.chats,
            lambda chat=chat: ours.run(chat),
            lambda chat=chat: again.run(chat),
            lambda chat=chat: bridges.run(chat),
            lambda chat=chat: ours.run(chat, parse=False),
            lambda chat=chat: bridges.run(chat, parse=False),
        )
        rows += _chat_rows(turns, tokens, effort.chats, [1e3 * seconds for seconds in times])
    return [*rows, *_parse_rows(renderer, maker, effort)]


def _chat_rows(turns: int, tokens: int, tries: int, times: list[float]) -> list[Row]:
    whole, again, bridged, unread, unread_bridged = times
    name, how = f"a tool chat of {turns} turns", f"median of {tries}, {tokens // 1000}k tokens"
    at_most = Target(limit=round(1 / AT_LEAST[turns], 3), of=Of.RATIO)
    no_more = Target(limit=1.0, of=Of.RATIO)
    peers = [
        ("rendered and read", whole, at_most, Peer("transformers, all again at each turn", again)),
        ("rendered and read, beside bridges", whole, no_more, Peer("renderers, read and bridged", bridged)),
        ("rendered, beside bridges", unread, no_more, Peer("renderers, bridged", unread_bridged)),
    ]
    return [Row(name=f"{name}, {what}", value=ms, unit="ms", how=how, target=t, peer=p) for what, ms, t, p in peers]


def _parse_rows(renderer: ChatRenderer, maker: ChatMaker, effort: Effort) -> list[Row]:
    """Replies of a few lengths, without and with calls; the limit is the one of a single reply of that length."""
    rows: list[Row] = []
    for tokens in REPLIES:
        for called in (False, True):
            replies = [maker.reply(tokens, called=called) for _ in range(PARSED)]

            def parse(replies: list[TokenIds] = replies) -> None:
                for ids in replies:
                    renderer.parse(ids, TOOLS, inside_reasoning=False, cut=False, call_prefix="0-")

            (spent,) = interleaved(effort.repeats, parse)
            rows.append(
                Row(
                    name=f"reading a reply of {tokens} tokens, {'half of it calls' if called else 'no call'}",
                    value=1e3 * spent / PARSED,
                    unit="ms",
                    how=f"median of {effort.repeats} passes over {PARSED} replies",
                    target=Target(limit=0.1 + 1e-3 * tokens),
                )
            )
    return rows


def interleaved(tries: int, *works: Callable[[], object]) -> list[float]:
    """The median CPU seconds of each work, taken in turns, each behind a full collection of garbage and one try that
    does not count."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(tries + 1):
        for times, work in zip(found, works, strict=True):
            gc.collect()
            spent = cpu_of(work)
            if number:
                times.append(spent)
    return [median(times) for times in found]


def _transformers(files: TokenizerFiles) -> Any:
    with tempfile.TemporaryDirectory(prefix="rollbook-bench-") as folder:
        (Path(folder) / "tokenizer.json").write_bytes(files.tokenizer_json)
        (Path(folder) / "tokenizer_config.json").write_bytes(files.config_json)
        return AutoTokenizer.from_pretrained(folder)


def _check_same(chat: Chat, ours: Ours, again: Rerendering, bridges: Bridges) -> None:
    """All three give the same prompts."""
    lengths = ours.run(chat)
    for other in (again, bridges):
        if other.run(chat) != lengths or list(other.last) != ours.last.tolist():
            raise RuntimeError(f"{type(other).__name__} gives other prompts than ours; the figures would not compare")
