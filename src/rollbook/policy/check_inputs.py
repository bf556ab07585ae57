"""What an engine is asked while it is checked: prompts of one model, made once.

The prompts are chosen so that a cheating engine shows: the same text once as its tokenizer writes it and once letter by
letter (an engine that makes ids of text again would merge the letters), characters of several tokens, a turn that has
nothing left but its end, and plain text whose next token is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rollbook.trace.message import Message, Role
from rollbook.trace.node import TokenIds
from rollbook.trace.tools import ToolSpec

__all__ = ["CheckInputs", "Speaker"]

QUESTION = "Name one animal and say what it eats."
SHORT = "Answer with one word: is water wet?"
SHORT_ANSWER = "Yes."
ODD = "Write only emoji and kana: 🎉🚀👩‍🚀🇨🇭 日本語 こんにちは"
OPEN = "It was a"
REPEATS = "one two one two one two one two one two one two one two one two"
FILLER = "The keeper of the house wrote down the weather of every day and what the neighbours said of it. "


class _Info(Protocol):
    @property
    def vocab_size(self) -> int: ...
    @property
    def stop_ids(self) -> frozenset[int]: ...


class _Rendered(Protocol):
    @property
    def token_ids(self) -> TokenIds: ...


class Speaker(Protocol):
    """What the checks need of a renderer (`rollbook.render.Renderer` has it)."""

    @property
    def info(self) -> _Info:
        """Its vocabulary's size and the ids that end a turn."""
        ...

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> _Rendered:
        """The start of a conversation, with the generation prompt."""
        ...

    def encode(self, text: str) -> TokenIds:
        """`text` as content."""
        ...

    def decode(self, token_ids: TokenIds) -> str:
        """Text for people."""
        ...


@dataclass(frozen=True, slots=True)
class CheckInputs:
    """Prompts, as int32 arrays of shape (tokens,)."""

    chat: TokenIds
    """A question, rendered."""
    letters: TokenIds
    """The same text, its content one letter at a time."""
    answered: TokenIds
    """A conversation whose reply has nothing left but its end."""
    odd: TokenIds
    """A question whose answer has characters of several tokens."""
    open: TokenIds
    """Text without a conversation around it, whose next token is open."""
    repeats: TokenIds
    """Text that wants to repeat itself."""
    filler: TokenIds
    """Text to make a prompt long with."""
    stop_ids: frozenset[int]
    """Ids that end a turn."""
    vocab_size: int
    """Ids below it are the tokenizer's."""

    @classmethod
    def of(cls, speaker: Speaker) -> CheckInputs:
        """The prompts of one model."""
        chat = _asked(speaker, QUESTION)
        return cls(
            chat=chat,
            letters=np.concatenate([chat, *(speaker.encode(letter) for letter in QUESTION)]),
            answered=np.concatenate([_asked(speaker, SHORT), speaker.encode(SHORT_ANSWER)]),
            odd=_asked(speaker, ODD),
            open=speaker.encode(OPEN),
            repeats=speaker.encode(REPEATS),
            filler=speaker.encode(FILLER),
            stop_ids=speaker.info.stop_ids,
            vocab_size=speaker.info.vocab_size,
        )

    def long(self, size: int) -> TokenIds:
        """A prompt of `size` tokens."""
        return np.resize(self.filler, size).astype(np.int32)


def _asked(speaker: Speaker, text: str) -> TokenIds:
    return speaker.open([Message(role=Role.USER, content=text)], ()).token_ids
