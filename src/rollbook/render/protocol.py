"""The renderer: messages to token ids, and sampled ids back to a message.

Rules: the prompt of the next turn is the stored ids of the path plus the ids of the *new* messages only, so
rendering costs what is new; only the template emits control tokens, content never does; sampled ids are never made
from text; parsing keeps every attempted tool call with a status and repairs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rollbook.trace.message import Message
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import Runs
from rollbook.trace.tools import ToolSpec

__all__ = ["Parsed", "RenderedMessage", "Renderer", "RendererInfo", "Rendering"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererInfo:
    """What a renderer is, for the trace's policy table."""

    name: str
    tokenizer_hash: str
    """sha256 of the tokenizer's bytes."""
    template_hash: str
    """sha256 of the chat template's text."""
    vocab_size: int
    stop_ids: frozenset[int]
    """Tokens that end an assistant's turn."""
    tool_prompt: str | None
    """Name and hash of the explicit tool prompt that stands in for the template's missing tools; None: the template
    renders tools."""
    findings: tuple[str, ...] = ()
    """What a trainer must know of the template, e.g. ``reasoning=dropped`` (`rollbook.render.findings`)."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was set of the template beside its text, as plain data by name, e.g. ``date``; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedMessage:
    """The tokens that one message adds: scaffold before it, then its own."""

    message: Message
    token_ids: TokenIds
    """int32, shape (tokens,)."""
    runs: Runs
    """(RunKind, count), covering `token_ids`."""
    added: bool = False
    """True for a message that was not given: the tool prompt's own system message or one of its worked examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What a batch of new messages adds, and the generation prompt behind it."""

    messages: tuple[RenderedMessage, ...]
    """As given; where a tool prompt is in use, with its text in the system message and its examples behind that."""
    prompt_ids: TokenIds
    """The generation-prompt scaffold: int32, shape (tokens,). It belongs to the assistant node that follows."""
    inside_reasoning: bool
    """True where the generation prompt opens a reasoning block."""
    tools_rendered: bool
    """True where the tools that were given stand in the tokens (always true where none were given)."""
    notes: tuple[str, ...] = ()
    """What is out of the ordinary and stays as it is, e.g. a turn that ended with another token than the template
    writes there; for the record."""

    @property
    def token_ids(self) -> TokenIds:
        """All of it, the generation prompt at the end: int32, shape (tokens,)."""
        return np.concatenate([*(message.token_ids for message in self.messages), self.prompt_ids])


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A sampled reply as a message."""

    message: Message
    """Role assistant; `raw` holds the exact bytes where they are not UTF-8."""
    closed: bool
    """True where the reply ended with an end-of-turn token."""


class Renderer(Protocol):
    """Stateless: all state is in the arguments, so one renderer serves every rollout of a process."""

    @property
    def info(self) -> RendererInfo: ...

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render the start of a conversation. Raises `ModelError` where the template refuses it or would drop the
        tools."""
        ...

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render `messages` behind a sampled turn, in O(their length). `last_id`: the turn's last token; where it ends
        no turn, a `forced` close comes first."""
        ...

    def rerender(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render a whole conversation as the template writes it now, turns of the assistant included; the tokens of a
        turn end right behind its end-of-turn token. Costs the whole history."""
        ...

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        """Read sampled ids strictly. `cut`: the generation limit ended them. Call ids are `call_prefix` plus a
        number."""
        ...

    def encode(self, text: str) -> TokenIds:
        """`text` as content: never a control token. int32, shape (tokens,)."""
        ...

    def decode(self, token_ids: TokenIds) -> str:
        """Text for people, control tokens spelled out, incomplete characters as U+FFFD."""
        ...
