"""The renderer over a model's own tokenizer and chat template.

Prompt ids of a turn are the stored ids plus what `open` or `extend` give: a full rendering at the start, and from
then on only what the template writes for the new messages, behind the end-of-turn token of the sampled turn. What
the template writes behind that token (a line end) is scaffold of the next message. A sampled turn keeps its ids
whatever they are: where its last one is no end-of-turn token, the template's own is put in before the next message
as `forced`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from rollbook.errors import ModelError
from rollbook.render.conversation import Chat
from rollbook.render.encode import Encoder, Piece
from rollbook.render.hermes import HermesParser, last_opens_reasoning
from rollbook.render.increments import Increments, Text, Tools
from rollbook.render.probe import Finding, probe
from rollbook.render.protocol import Parsed, RenderedMessage, RendererInfo, Rendering
from rollbook.render.template import ChatTemplate
from rollbook.render.toolprompt import ToolPrompt
from rollbook.render.vocabulary import TokenText, show_bytes
from rollbook.trace.message import Message, Role
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, make_runs
from rollbook.trace.tools import ToolSpec

__all__ = ["ChatRenderer", "RendererConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererConfig:
    """What a `ChatRenderer` is made of, beside the bytes of tokenizer and template."""

    name: str
    """For people and the record, e.g. the model's name."""
    stop_ids: frozenset[int]
    """Tokens that end an assistant's turn."""
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """``bos_token`` and the like, as the template names them."""
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further template variables, e.g. ``enable_thinking``."""
    tool_prompt: ToolPrompt | None = None
    """How tools are told where the template has no place for them; a template that renders tools does not use it."""
    now: datetime | None = None
    """The date that a template may ask for; None: such a template is an error."""


class ChatRenderer:
    """A `Renderer` for any chat template that can be rendered step by step. Stateless but for caches."""

    def __init__(
        self,
        encoder: Encoder,
        increments: Increments,
        finding: Finding,
        tool_prompt: ToolPrompt | None,
        info: RendererInfo,
    ) -> None:
        self._encoder = encoder
        self._increments = increments
        self._finding = finding
        self._tool_prompt = tool_prompt
        self._info = info
        self._chat = Chat(tool_prompt, finding.renders_calls)
        self._parser = HermesParser(encoder.vocabulary, encoder.added)
        self._close = encoder.added[finding.close]

    @classmethod
    def build(cls, tokenizer_json: bytes, template: str, config: RendererConfig) -> ChatRenderer:
        """Compile, probe and check. Raises `ModelError` with the finding that forbids the pair."""
        encoder = Encoder(tokenizer_json)
        stops = {token: text for text, token in encoder.added.items() if token in config.stop_ids}
        if not stops or len(stops) < len(config.stop_ids):
            missing = sorted(config.stop_ids - stops.keys())
            raise ModelError(f"the tokenizer has no added tokens for the stop ids {missing or 'none were given'}")
        compiled = ChatTemplate(template, config.special_tokens, config.variables, config.now)
        finding = probe(compiled, sorted(stops.values()))
        _check_tokens(encoder, finding)
        prompt = None if finding.renders_tools else config.tool_prompt
        info = RendererInfo(
            name=config.name,
            tokenizer_hash=hashlib.sha256(tokenizer_json).hexdigest(),
            template_hash=hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest(),
            vocab_size=encoder.vocab_size,
            stop_ids=config.stop_ids,
            tool_prompt=None if prompt is None else prompt.label,
        )
        increments = Increments(compiled, tuple(sorted(stops.values())), encoder.escapes)
        return cls(encoder, increments, finding, prompt, info)

    @property
    def info(self) -> RendererInfo:
        return self._info

    @property
    def finding(self) -> Finding:
        """What the probe found of the template."""
        return self._finding

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render the start of a conversation."""
        if not messages:
            raise ModelError("a conversation needs at least one message")
        if tools and self._tool_prompt is None and not self._finding.renders_tools:
            raise ModelError(
                f"the chat template of {self._info.name} has no place for tools and would drop them in silence; "
                "pass a tool prompt (RendererConfig.tool_prompt, e.g. HERMES_EXAMPLES)"
            )
        given = self._chat.with_tools(messages, tools)
        text = self._increments.first(self._chat.entries(given), self._tools(tools))
        kept = {id(message) for message in messages}
        if messages[0].role is Role.SYSTEM:
            kept.add(id(given[0]))
        added = [id(message) not in kept for message in given]
        return self._rendering(given, text, forced=(), added=added)

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render `messages` behind a sampled turn."""
        if not messages:
            raise ModelError("a turn is followed by at least one message")
        passed = self._tools(tools) if self._finding.tools_each_time else None
        text = self._increments.after_turn(self._chat.entries(messages), passed)
        forced = () if last_id in self._info.stop_ids else (self._close,)
        return self._rendering(messages, text, forced=forced, added=[False] * len(messages), behind=True)

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        """Read sampled ids strictly (the rules stand in `rollbook.render.hermes`)."""
        ids: list[int] = token_ids.tolist()
        closed = bool(ids) and ids[-1] in self._info.stop_ids
        message = self._parser.parse(
            ids[:-1] if closed else ids, tools, inside_reasoning=inside_reasoning, cut=cut, call_prefix=call_prefix
        )
        return Parsed(message=message, closed=closed)

    def encode(self, text: str) -> TokenIds:
        """`text` as content: never a control token; lone surrogates as their escape."""
        return self._encoder.encode_content(text)

    def decode(self, token_ids: TokenIds) -> str:
        """Text for people."""
        return show_bytes(self._encoder.vocabulary.join(token_ids.tolist()))

    def show(self, token_ids: TokenIds) -> TokenText:
        """Text for people, with the characters of each token."""
        return self._encoder.vocabulary.show(token_ids)

    def reencode(self, token_ids: TokenIds) -> TokenIds:
        """What the tokenizer makes of the decoded text, control tokens parsed: where it differs, re-encoding would
        have drifted."""
        return self._encoder.reencode(token_ids)

    def _tools(self, tools: Sequence[ToolSpec]) -> Tools:
        return None if self._tool_prompt is not None or not tools else [tool.openai() for tool in tools]

    def _rendering(
        self,
        messages: Sequence[Message],
        text: Text,
        *,
        forced: tuple[int, ...],
        added: Sequence[bool],
        behind: bool = False,
    ) -> Rendering:
        pieces = self._encoder.encode(text.text, text.ends, behind=behind)
        if forced:
            pieces[0] = _forced(forced, pieces[0])
        return Rendering(
            messages=tuple(
                RenderedMessage(message=message, token_ids=piece.token_ids, runs=piece.runs, added=new)
                for message, piece, new in zip(messages, pieces[:-1], added, strict=True)
            ),
            prompt_ids=pieces[-1].token_ids,
            inside_reasoning=last_opens_reasoning(text.prompt),
            tools_rendered=True,
        )


def _forced(ids: tuple[int, ...], piece: Piece) -> Piece:
    head = make_runs((RunKind.FORCED, len(ids)))
    return Piece(np.concatenate((np.array(ids, np.int32), piece.token_ids)), np.concatenate((head, piece.runs)))


def _check_tokens(encoder: Encoder, finding: Finding) -> None:
    """Piecewise encoding must give what the tokenizer makes of harmless text."""
    ours = encoder.encode(finding.sample, ())[0].token_ids.tolist()
    theirs = encoder.encode_parsed(finding.sample.plain).tolist()
    if ours != theirs:
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        raise ModelError(
            "the tokenizer reads text between control tokens differently when it stands alone; this kind is not "
            f"supported (token {at}: {theirs[at : at + 3]} in the whole, {ours[at : at + 3]} alone)"
        )
