"""The renderer over a model's own tokenizer and chat template.

Prompt ids of a turn are the stored ids plus what `open` or `extend` give: a full rendering at the start, and from
then on only what the template writes for the new messages, behind the end-of-turn token of the sampled turn. What
the template writes behind that token (a line end) is scaffold of the next message. A sampled turn keeps its ids
whatever they are: where its last one is no end-of-turn token, the template's own is put in before the next message
as `forced`; where the next role's marker is what ends a turn (GLM), it is put in as scaffold unless it was sampled.
A turn that ended with another token than the template writes there keeps it, and the rendering notes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.render.conversation import Chat, TemplateMessage
from rollbook.render.encode import Encoder, Piece, shared_encoder
from rollbook.render.findings import TemplateRefused, TemplateReport
from rollbook.render.formats import CallFormat, ReplyReader, opens_reasoning
from rollbook.render.increments import Increments, Text, Tools, own_ending
from rollbook.render.judge import judge
from rollbook.render.probe import Facts
from rollbook.render.properties import call_format_of
from rollbook.render.protocol import Parsed, RenderedMessage, RendererInfo, Rendering
from rollbook.render.settings import plain_variables, settings_of
from rollbook.render.template import ChatTemplate
from rollbook.render.text_side import TextSide
from rollbook.render.toolprompt import ToolPrompt
from rollbook.trace.message import Message, Role
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind
from rollbook.trace.tools import ToolSpec

__all__ = ["ChatRenderer", "RendererConfig"]

_ENCODER = msgspec.msgpack.Encoder()
OPENINGS = 32
"""Beginnings of conversations that are kept rendered: those of the groups that run at once."""


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
    """Further template variables, e.g. ``enable_thinking``: plain JSON data."""
    tool_prompt: ToolPrompt | None = None
    """How tools are told where the template has no place for them; a template that renders tools does not use it."""
    native_tool_prompt: ToolPrompt | None = None
    """The same where the template has no place for tools but writes calls in a known form; goes before `tool_prompt`
    there."""
    now: datetime | None = None
    """The date that a template may ask for; None: such a template is an error."""
    call_format: CallFormat | None = None
    """The form in which replies are read; None: the one in which the template writes calls."""


class ChatRenderer(TextSide):
    """A `Renderer` for any chat template that can be rendered step by step. Stateless but for caches."""

    def __init__(
        self,
        encoder: Encoder,
        increments: Increments,
        facts: Facts,
        report: TemplateReport,
        tool_prompt: ToolPrompt | None,
        info: RendererInfo,
        call_format: CallFormat | None,
    ) -> None:
        super().__init__(encoder, increments.template.special_tokens.get("bos_token"))
        self._increments = increments
        self._facts = facts
        self._report = report
        self._tool_prompt = tool_prompt
        self._info = info
        shape = increments.shape
        self._chat = Chat(tool_prompt, facts.renders_calls, shape.arguments_as_text, shape.silent_calls)
        self._reader = ReplyReader(call_format or CallFormat.HERMES, encoder.vocabulary, encoder.added)
        self._call_format = call_format
        ending = (shape.prompts or (own_ending(facts.sample),))[0]
        self._blank_first = encoder.blank_behind and ending.endswith(tuple(self.control_tokens))
        self._openings: dict[bytes, Rendering] = {}

    @classmethod
    def build(cls, tokenizer_json: bytes, template: str, config: RendererConfig) -> ChatRenderer:
        """Compile, probe and check. Raises `TemplateRefused` with the finding that forbids the pair, and `ModelError`
        for files that cannot be read."""
        encoder = shared_encoder(tokenizer_json)
        stops = {token: text for text, token in encoder.added.items() if token in config.stop_ids}
        if not stops or len(stops) < len(config.stop_ids):
            missing = sorted(config.stop_ids - stops.keys())
            raise ModelError(f"the tokenizer has no added tokens for the stop ids {missing or 'none were given'}")
        variables = plain_variables(config.variables)
        compiled = ChatTemplate(template, config.special_tokens, variables, config.now)
        seen, report = judge(compiled, sorted(stops.values()), config.name, encoder)
        if seen is None or report.forbidding is not None:
            raise TemplateRefused(report.forbidding or report.findings[0])
        detected = call_format_of(seen)
        prompt = None if seen.facts.renders_tools else _tool_prompt(config, seen.facts, detected)
        info = RendererInfo(
            name=config.name,
            tokenizer_hash=hashlib.sha256(tokenizer_json).hexdigest(),
            template_hash=report.template_hash,
            vocab_size=encoder.vocab_size,
            stop_ids=config.stop_ids,
            tool_prompt=None if prompt is None else prompt.label,
            findings=report.labels,
            settings=settings_of(config.now, variables, config.call_format),
        )
        increments = replace(seen.increments, escapes=encoder.escapes)
        read = detected if prompt is None or prompt.native else CallFormat.HERMES
        call_format = config.call_format or read
        return cls(encoder, increments, seen.facts, report, prompt, info, call_format)

    @property
    def info(self) -> RendererInfo:
        return self._info

    @property
    def facts(self) -> Facts:
        """What the renderer itself must know of the template."""
        return self._facts

    @property
    def report(self) -> TemplateReport:
        """What was found of the template."""
        return self._report

    @property
    def call_format(self) -> CallFormat | None:
        """The form in which calls are read; None: not known, and tools are refused (a reply without tools is read for
        Hermes markers, so that a call to no tool is seen)."""
        return self._call_format

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render the start of a conversation. The members of a group begin alike, so it is rendered once for all."""
        key = _key(messages, tools)
        known = None if key is None else self._openings.get(key)
        if known is not None:
            return known
        opening = self._whole(messages, tools, self._increments.first)
        if key is not None:
            if len(self._openings) >= OPENINGS:
                self._openings.clear()
            self._openings[key] = _fixed(opening)
        return opening

    def rerender(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render a whole conversation as the template writes it now, turns of the assistant included."""
        return self._whole(messages, tools, self._increments.history)

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        render: Callable[[Sequence[TemplateMessage], Tools], Text],
    ) -> Rendering:
        if not messages:
            raise ModelError("a conversation needs at least one message")
        if tools and self._tool_prompt is None and not self._facts.renders_tools:
            raise ModelError(
                f"the chat template of {self._info.name} has no place for tools and would drop them in silence; "
                "pass a tool prompt (RendererConfig.tool_prompt, e.g. HERMES_EXAMPLES)"
            )
        if tools and self._call_format is None:
            raise ModelError(
                f"the chat template of {self._info.name} writes tool calls in no form that is known, so replies could "
                "not be read; name the form (RendererConfig.call_format), or pass no tools"
            )
        given = self._chat.with_tools(messages, tools)
        text = render(self._chat.entries(given), self._tools(tools))
        kept = {id(message) for message in messages}
        if messages[0].role is Role.SYSTEM:
            kept.add(id(given[0]))
        added = [id(message) not in kept for message in given]
        return self._rendering(given, text, self._encoder.encode(text.text, text.ends), added=added)

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render `messages` behind a sampled turn."""
        if not messages:
            raise ModelError("a turn is followed by at least one message")
        passed = self._tools(tools) if self._facts.tools_each_time else None
        text = self._increments.after_turn(self._chat.entries(messages), passed)
        pieces = self._encoder.encode(text.text, text.ends, behind=True)
        notes: tuple[str, ...] = ()
        stop = self._encoder.added[text.stop]
        if last_id != stop:
            sampled_stop = last_id in self._info.stop_ids
            if self._facts.close is None or not sampled_stop:
                kind = RunKind.SCAFFOLD if self._facts.close is None else RunKind.FORCED
                pieces[0] = pieces[0].led_by(stop, kind)
            if sampled_stop:
                notes = (
                    f"the turn ended with {self._encoder.vocabulary.join([last_id]).decode()}, "
                    f"where the template writes {text.stop}",
                )
        return self._rendering(messages, text, pieces, added=[False] * len(messages), notes=notes)

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        """Read sampled ids strictly (the rules stand in `rollbook.render.formats`)."""
        ids: list[int] = token_ids.tolist()
        closed = bool(ids) and ids[-1] in self._info.stop_ids
        message = self._reader.parse(
            ids[:-1] if closed else ids, tools, inside_reasoning=inside_reasoning, cut=cut, call_prefix=call_prefix
        )
        if self._blank_first and message.reasoning is None and message.content.startswith(" "):
            # such a tokenizer puts a blank before any text behind a control token: it is no text of the reply, unless
            # the generation prompt ends in words
            raw = None if message.raw is None else message.raw[1:]
            message = msgspec.structs.replace(message, content=message.content[1:], raw=raw)
        return Parsed(message=message, closed=closed)

    def _tools(self, tools: Sequence[ToolSpec]) -> Tools:
        return None if self._tool_prompt is not None or not tools else [tool.openai() for tool in tools]

    @staticmethod
    def _rendering(
        messages: Sequence[Message],
        text: Text,
        pieces: list[Piece],
        *,
        added: Sequence[bool],
        notes: tuple[str, ...] = (),
    ) -> Rendering:
        return Rendering(
            messages=tuple(
                RenderedMessage(message=message, token_ids=piece.token_ids, runs=piece.runs, added=new)
                for message, piece, new in zip(messages, pieces[:-1], added, strict=True)
            ),
            prompt_ids=pieces[-1].token_ids,
            inside_reasoning=opens_reasoning(text.before_reply),
            tools_rendered=True,
            notes=notes,
        )


def _key(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bytes | None:
    """What an opening is known by; None for messages of what the record cannot hold."""
    try:
        return _ENCODER.encode((messages, tools))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _fixed(rendering: Rendering) -> Rendering:
    """Nobody who gets it again can change it."""
    for ids in (rendering.prompt_ids, *(array for each in rendering.messages for array in (each.token_ids, each.runs))):
        ids.flags.writeable = False
    return rendering


def _tool_prompt(config: RendererConfig, facts: Facts, detected: CallFormat | None) -> ToolPrompt | None:
    """How tools are told to a template that has no place for them; results go as the user's where it takes no other
    role."""
    if detected is not None and facts.takes_results and config.native_tool_prompt is not None:
        return config.native_tool_prompt
    prompt = config.tool_prompt
    if prompt is None or prompt.native or facts.takes_results or prompt.result_role is Role.USER:
        return prompt
    return msgspec.structs.replace(prompt, name=f"{prompt.name}-as-user", result_role=Role.USER)
