"""A long tool chat of Qwen3 as a model would sample it, and replies of a given length.

Reasoning, words and results are the standard library's source, every second result as JSON. Replies are one text,
encoded by the tokenizer with its markers, so they are what the template would write of the same messages, and all
ways to render the chat can be compared id by id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.real_tokenizers import TokenizerFiles
from tokenizers import Tokenizer

from bench.corpus import Corpus
from rollbook.policy.protocol import TokenIds
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.trace.message import Message, Role
from rollbook.trace.tools import ToolSpec

__all__ = ["TOOLS", "Chat", "ChatMaker", "Turn", "build_qwen3"]

THOUGHT, SAID = 140, 50
"""Tokens of a reply's reasoning and words; its call has about 50 more."""
REPLY = THOUGHT + SAID + 70
CALL = 80
"""Tokens of a call in a reply that is parsed alone, its markers included."""
TOOLS = [
    ToolSpec(
        name=name,
        description=text,
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file's path."},
                "line": {"type": "integer", "description": "The first line."},
                "options": {"type": "object", "properties": {"all": {"type": "boolean"}}},
            },
            "required": ["path"],
        },
    )
    for name, text in (("read", "Reads a file from a line on."), ("search", "Finds a word below a folder."))
]


@dataclass(frozen=True)
class Turn:
    """A sampled reply and what answers it, in the form that each of the three takes."""

    ids: TokenIds
    """Ends with the end-of-turn token."""
    reply: dict[str, Any]
    result: Message

    def plain_result(self) -> dict[str, Any]:
        return {"role": "tool", "content": self.result.content}


@dataclass(frozen=True)
class Chat:
    """A whole conversation."""

    start: list[Message]
    turns: list[Turn]

    def plain_start(self) -> list[dict[str, Any]]:
        return [{"role": message.role.value, "content": message.content} for message in self.start]


class ChatMaker:
    """Makes chats and replies, always the same ones in the same order."""

    def __init__(self, renderer: ChatRenderer, tokenizer_json: bytes, corpus: Corpus) -> None:
        self._renderer, self._corpus = renderer, corpus
        self._tokenizer = Tokenizer.from_str(tokenizer_json.decode())
        self._rng = np.random.default_rng(3)

    def chat(self, turns: int, tokens: int) -> Chat:
        """A chat of about `tokens` tokens."""
        start = [
            Message(role=Role.SYSTEM, content="You are a careful engineer. Use the tools, one at a time."),
            Message(role=Role.USER, content="The nightly build fails since yesterday. Find out why."),
        ]
        head = sum(len(message.token_ids) for message in self._renderer.open(start, TOOLS).messages)
        observed = (tokens - head) // turns - REPLY - 20
        return Chat(start, [self._turn(number, observed) for number in range(turns)])

    def reply(self, tokens: int, *, called: bool) -> TokenIds:
        """A reply of `tokens` tokens, the end of its turn included; `called`: half of it calls, at least one."""
        count = max(1, tokens // 2 // CALL) if called else 0
        calls = "".join(self._call(number, 20 if tokens >= 2 * CALL else 0) for number in range(count))
        tail = self._ids(f"{calls}<|im_end|>")
        return np.concatenate((self._corpus.cut(self._rng, tokens - len(tail))[0], tail))

    def _turn(self, number: int, observed: int) -> Turn:
        thought, said = self._text(THOUGHT), self._text(SAID)
        name, arguments = _called(number)
        call = json.dumps({"name": name, "arguments": arguments})
        ids = self._ids(f"<think>\n{thought}\n</think>\n\n{said}\n<tool_call>\n{call}\n</tool_call><|im_end|>")
        reply = {
            "role": "assistant",
            "reasoning_content": thought,
            "content": said,
            "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
        }
        text = self._text(observed)
        if number % 2:
            lines = [{"line": at, "text": line} for at, line in enumerate(text.splitlines())]
            text = self._renderer.decode(self._renderer.encode(json.dumps(lines))[:observed])
        return Turn(ids, reply, Message(role=Role.TOOL, content=text, call_id=f"{number}-0", name=name))

    def _call(self, number: int, tokens: int) -> str:
        """A call with `tokens` tokens of text beside what every call has."""
        name, arguments = _called(number)
        if tokens:
            arguments["options"]["pattern"] = self._text(tokens)
        return f"\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"

    def _text(self, tokens: int) -> str:
        """Without line ends around it, which the template drops from what a model said, and whole characters only."""
        return self._corpus.cut(self._rng, tokens)[1].replace("\ufffd", "?").strip()

    def _ids(self, text: str) -> TokenIds:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


def _called(number: int) -> tuple[str, dict[str, Any]]:
    arguments = {"path": f"lib/module_{number}.py", "line": number, "options": {"all": True}}
    return TOOLS[number % len(TOOLS)].name, arguments


def build_qwen3(files: TokenizerFiles) -> ChatRenderer:
    """Our renderer over the files of Qwen3."""
    config = json.loads(files.config_json)
    added = {entry["content"]: int(token) for token, entry in config["added_tokens_decoder"].items()}
    stops = frozenset(added[stop] for stop in ("<|im_end|>", "<|endoftext|>"))
    settings = RendererConfig(name="qwen3", stop_ids=stops)
    return ChatRenderer.build(files.tokenizer_json, config["chat_template"], settings)
