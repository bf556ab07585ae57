"""The renderer of gpt-oss: the scaffold is what the `openai-harmony` library writes, content is encoded by the
model's own tokenizer.

The library never sees a content text, so no content can make a control token; a body stands between ``<|message|>``
and an end, both control tokens, so it is encoded alone. The one text that shares its body with scaffold, the
instructions in the developer message, is put where a placeholder stood, and the body encoded as a whole.

Form. First the library's system message (identity, dates, effort, channels), then the developer message: the first
message's text as its instructions where that is of role system and not empty, and the tools. Both are scaffold of
the first message. A later system message is a developer message of its own. Assistant: reasoning in ``analysis``,
then the text (``final``, or ``commentary`` where calls follow), then each call. A tool's result is told as the
function's, or as that of a built-in tool of the format where the name is one and no such tool was offered; a
result that names no tool comes from ``functions``. A call is written as it was sampled (`ToolCall.raw`), and from its
arguments where it was not.

A rendering of a whole conversation leaves out reasoning as the library does: where the last assistant message is a
final one, all that stands before the first final one. A continuation leaves out nothing: a sampled turn keeps its
ids, ``<|return|>`` too, where a history written by the library has ``<|end|>``. Where the last id of a turn ends
neither message nor turn, ``<|end|>`` is put in as `forced`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import StrEnum
from importlib.metadata import version
from json import dumps
from typing import Any

import numpy as np

from rollbook.errors import ModelError, boundary
from rollbook.render.conversation import did_not_parse, message_text
from rollbook.render.encode import Encoder, shared_encoder
from rollbook.render.findings import Property
from rollbook.render.harmony_reply import HarmonyReader, Mark
from rollbook.render.protocol import Parsed, RenderedMessage, RendererInfo, Rendering
from rollbook.render.settings import settings_of
from rollbook.render.text_side import TextSide
from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, Runs, compress_runs
from rollbook.trace.tools import ToolSpec

try:
    import openai_harmony as library  # pyright: ignore[reportMissingTypeStubs] (it is typed, but does not say so)
except ModuleNotFoundError as missing:
    if missing.name != "openai_harmony":
        raise
    raise ModuleNotFoundError(
        "rollbook.render.harmony needs the extra harmony (openai_harmony is missing): run pip install '.[harmony]' in "
        "Rollbook's checkout",
        name=missing.name,
    ) from missing

__all__ = ["EFFORT", "IDENTITY", "Effort", "HarmonyConfig", "HarmonyEncoding", "HarmonyRenderer", "load_encoding"]

HarmonyEncoding = library.HarmonyEncoding

MAX_KEPT = 256
"""Headers whose ids are kept."""

EFFORT, IDENTITY = "reasoning_effort", "model_identity"
"""What the model's own template calls `HarmonyConfig.effort` and `HarmonyConfig.identity`."""

_PLACEHOLDER = "\ue000"
_FUNCTIONS = "functions"
_JSON = f"{Mark.CONSTRAIN}json"
_FINDINGS = (f"{Property.REASONING}=dropped", f"{Property.STOP}={Mark.RETURN}, in a history {Mark.END}")
"""What a whole conversation has otherwise than stored turns have."""
_SAMPLE = "Sums of 17 and 25: it's 42,\n\tnot  \u00e9\u5b57\U0001f600 <|end|>."


class Effort(StrEnum):
    """How much the model is told to reason."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


_EFFORTS = {
    Effort.LOW: library.ReasoningEffort.LOW,
    Effort.MEDIUM: library.ReasoningEffort.MEDIUM,
    Effort.HIGH: library.ReasoningEffort.HIGH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmonyConfig:
    """What the system message says."""

    name: str
    """For people and the record, e.g. the model's name."""
    start: date | None = None
    """``Current date``; None: the line is left out. Never the clock."""
    effort: Effort = Effort.MEDIUM
    """How much the model is told to reason."""
    identity: str | None = "You are ChatGPT, a large language model trained by OpenAI."
    """The first line; None: it is left out."""
    cutoff: str | None = "2024-06"
    """``Knowledge cutoff``; None: the line is left out."""


@dataclass(frozen=True, slots=True)
class _Head:
    """What a header is made of."""

    role: library.Role = library.Role.ASSISTANT
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


_USER = _Head(library.Role.USER)
_ANALYSIS = _Head(channel="analysis")
_PREAMBLE = _Head(channel="commentary")
_FINAL = _Head(channel="final")

_Part = tuple[_Head | None, str]
"""A message of the library: its header, None for a developer message, and its text."""


@dataclass(frozen=True, slots=True)
class _Piece:
    token_ids: list[int]
    kinds: Sequence[int]
    """One `RunKind` a token."""


def load_encoding() -> HarmonyEncoding:
    """The library's encoding, from the folder that ``TIKTOKEN_ENCODINGS_BASE`` names. Raises `ModelError`."""
    with boundary("openai-harmony cannot load its vocabulary", ModelError):
        return library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)


class HarmonyRenderer(TextSide):
    """A `Renderer` for gpt-oss. Stateless but for caches."""

    def __init__(self, encoding: HarmonyEncoding, encoder: Encoder, config: HarmonyConfig, tokenizer_hash: str) -> None:
        super().__init__(encoder, None)  # the format has no start token
        self._encoding = encoding
        self._config = config
        self._reader = HarmonyReader(encoder.vocabulary, encoder.added)
        self._heads: dict[_Head, tuple[list[int], int]] = {}
        empty = library.Conversation.from_messages([])
        self._prompt: TokenIds = np.array(
            encoding.render_conversation_for_completion(empty, library.Role.ASSISTANT), np.int32
        )
        self._end, self._text_end = encoder.added[Mark.END], encoder.added[Mark.TEXT_END]
        ends = (Mark.RETURN, Mark.CALL, Mark.TEXT_END)
        self._info = RendererInfo(
            name=config.name,
            tokenizer_hash=tokenizer_hash,
            template_hash=_template_hash(config),
            vocab_size=encoder.vocab_size,
            stop_ids=frozenset(encoder.added[mark] for mark in ends),
            tool_prompt=None,
            findings=_FINDINGS,
            settings=_settings(config),
        )

    @classmethod
    def build(cls, encoding: HarmonyEncoding, tokenizer_json: bytes, config: HarmonyConfig) -> HarmonyRenderer:
        """Check that tokenizer and library agree. Raises `ModelError` where they do not."""
        encoder = shared_encoder(tokenizer_json)
        for mark in Mark:
            ours, theirs = encoder.added.get(mark), encoding.encode(mark, allowed_special="all")
            if [ours] != theirs:
                raise ModelError(f"the tokenizer has {mark} as token {ours}, openai-harmony as {theirs[0]}")
        if encoder.encode_content(_SAMPLE).tolist() != encoding.encode(_SAMPLE, disallowed_special=()):
            raise ModelError("the tokenizer reads text differently from openai-harmony's own")
        return cls(encoding, encoder, config, hashlib.sha256(tokenizer_json).hexdigest())

    def with_config(self, config: HarmonyConfig) -> HarmonyRenderer:
        """The same tokenizer with another system message."""
        return HarmonyRenderer(self._encoding, self._encoder, config, self._info.tokenizer_hash)

    @property
    def info(self) -> RendererInfo:
        """`template_hash` is the sum of the library's name, its version and the configuration."""
        return self._info

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render the start of a conversation."""
        if not messages:
            raise ModelError("a conversation needs at least one message")
        parts = [list(self._parts(message, tools)) for message in messages]
        instructions = ""
        if messages[0].role is Role.SYSTEM:
            instructions, parts[0] = message_text(messages[0]), []
        pieces = [[self._piece(head, text) for head, text in kept] for kept in _without_old_reasoning(parts)]
        pieces[0][:0] = self._opening(instructions, tools)
        return self._rendering(messages, pieces)

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render `messages` behind a sampled turn."""
        if not messages:
            raise ModelError("a turn is followed by at least one message")
        pieces = [[self._piece(head, text) for head, text in self._parts(message, tools)] for message in messages]
        if last_id != self._end and last_id not in self._info.stop_ids:
            pieces[0].insert(0, _Piece([self._end], [RunKind.FORCED]))
        notes = ()
        if last_id == self._text_end:
            notes = (f"the turn ended with {Mark.TEXT_END}, where the format has {Mark.RETURN} or {Mark.CALL}",)
        return self._rendering(messages, pieces, notes)

    def rerender(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """The whole conversation as the library writes it now; reasoning of earlier turns is left out."""
        return self.open(messages, tools)

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        """Read sampled ids strictly (the rules stand in `rollbook.render.harmony_reply`)."""
        ids: list[int] = token_ids.tolist()
        closed = bool(ids) and ids[-1] in self._info.stop_ids
        if inside_reasoning:
            ids = self._head(_ANALYSIS)[0][len(self._prompt) :] + ids
        message = self._reader.parse(ids, tools, cut=cut, call_prefix=call_prefix)
        return Parsed(message=message, closed=closed)

    def _opening(self, instructions: str, tools: Sequence[ToolSpec]) -> Iterator[_Piece]:
        """The system message and, where there is something to say, the developer message."""
        config = self._config
        system = library.SystemContent(
            model_identity=config.identity,
            reasoning_effort=_EFFORTS[config.effort],
            conversation_start_date=config.start.isoformat() if config.start else None,
            knowledge_cutoff=config.cutoff,
        )
        yield _scaffold(self._written(library.Role.SYSTEM, system, tools=bool(tools)))
        if instructions or tools:
            yield self._developer(instructions, tools)

    def _developer(self, instructions: str, tools: Sequence[ToolSpec]) -> _Piece:
        content = library.DeveloperContent(instructions=_PLACEHOLDER if instructions else None)
        if tools:
            content = content.with_function_tools([_described(tool) for tool in tools])
        ids = self._written(library.Role.DEVELOPER, content, tools=bool(tools))
        if not instructions:
            return _scaffold(ids)
        body = ids.index(self._encoder.added[Mark.MESSAGE]) + 1
        before, _, after = self._encoder.vocabulary.join(ids[body:-1]).decode().partition(_PLACEHOLDER)
        shown = self._encoder.escapes.plain(instructions)
        written = self._encoder.encode_content(before + shown + after).tolist()
        kinds = self._kinds(written, len(before.encode()), len((before + shown).encode()))
        return _Piece([*ids[:body], *written, ids[-1]], [RunKind.SCAFFOLD] * body + [*kinds, RunKind.SCAFFOLD])

    def _kinds(self, token_ids: list[int], start: int, end: int) -> Iterator[int]:
        """The kind of each token, where bytes `start` to `end` are content, which wins where a token covers both."""
        at = 0
        for token in token_ids:
            begin, at = at, at + len(self._encoder.vocabulary[token])
            yield RunKind.CONTENT if begin < end and at > start else RunKind.SCAFFOLD

    def _parts(self, message: Message, tools: Sequence[ToolSpec]) -> Iterator[_Part]:
        """The library's messages for `message`."""
        content = message_text(message)
        match message.role:
            case Role.SYSTEM:
                yield None, content
            case Role.USER:
                yield _USER, content
            case Role.TOOL:
                author = _author(message.name, tools)
                yield _Head(library.Role.TOOL, author, "commentary", "assistant"), content
            case Role.ASSISTANT:
                if message.reasoning is not None:
                    yield _ANALYSIS, message.reasoning
                if content or not message.tool_calls:
                    yield _PREAMBLE if message.tool_calls else _FINAL, content
                for call in message.tool_calls:
                    yield _call(call, tools)

    def _piece(self, head: _Head | None, text: str) -> _Piece:
        if head is None:
            return self._developer(text, ())
        before, end = self._head(head)
        content = self._encoder.encode_content(text).tolist()
        kinds = [RunKind.SCAFFOLD] * len(before) + [RunKind.CONTENT] * len(content) + [RunKind.SCAFFOLD]
        return _Piece([*before, *content, end], kinds)

    def _head(self, head: _Head) -> tuple[list[int], int]:
        """The ids before a body, and the one behind it."""
        known = self._heads.get(head)
        if known is None:
            if len(self._heads) >= MAX_KEPT:
                self._heads.clear()
            name = None if head.name is None else self._encoder.escapes.plain(head.name)
            recipient = None if head.recipient is None else self._encoder.escapes.plain(head.recipient)
            message = library.Message(
                author=library.Author(role=head.role, name=name),
                content=[library.TextContent(text="")],
                channel=head.channel,
                recipient=recipient,
                content_type=head.content_type,
            )
            ids = self._encoding.render(message)
            known = self._heads[head] = ids[:-1], ids[-1]
        return known

    def _written(self, role: library.Role, content: library.Content, *, tools: bool) -> list[int]:
        options = library.RenderOptions(conversation_has_function_tools=tools)
        with boundary("openai-harmony cannot write the system message or the tools", ModelError):
            return self._encoding.render(library.Message.from_role_and_content(role, content), options)

    def _rendering(
        self, messages: Sequence[Message], pieces: Sequence[Sequence[_Piece]], notes: tuple[str, ...] = ()
    ) -> Rendering:
        return Rendering(
            messages=tuple(
                RenderedMessage(message=message, token_ids=_ids(made), runs=_runs(made))
                for message, made in zip(messages, pieces, strict=True)
            ),
            prompt_ids=self._prompt,
            inside_reasoning=False,
            tools_rendered=True,
            notes=notes,
        )


def _scaffold(token_ids: list[int]) -> _Piece:
    return _Piece(token_ids, [RunKind.SCAFFOLD] * len(token_ids))


def _ids(pieces: Sequence[_Piece]) -> TokenIds:
    return np.array([token for piece in pieces for token in piece.token_ids], np.int32)


def _runs(pieces: Sequence[_Piece]) -> Runs:
    return compress_runs([kind for piece in pieces for kind in piece.kinds])


def _without_old_reasoning(parts: Sequence[Sequence[_Part]]) -> list[list[_Part]]:
    """`parts` by message, less what the library drops of a whole conversation."""
    heads = [head for part in parts for head, _ in part]
    spoken = [head for head in heads if head is not None and head.role is library.Role.ASSISTANT]
    if not spoken or spoken[-1] != _FINAL:
        return [list(part) for part in parts]
    first = next(at for at, part in enumerate(parts) if any(head == _FINAL for head, _ in part))
    return [[(head, text) for head, text in part if at > first or head != _ANALYSIS] for at, part in enumerate(parts)]


def _author(name: str | None, tools: Sequence[ToolSpec]) -> str:
    """Who tells the result of the tool `name`; also who is called."""
    if name is None:
        return _FUNCTIONS
    built_in = (name == "python" or name.startswith("browser.")) and all(tool.name != name for tool in tools)
    return name if built_in else f"{_FUNCTIONS}.{name}"


def _call(call: ToolCall, tools: Sequence[ToolSpec]) -> _Part:
    if call.name is None or not (call.raw or call.arguments is not None):
        raise did_not_parse(call)
    head = _Head(channel="commentary", recipient=_author(call.name, tools), content_type=_JSON)
    return head, call.raw or dumps(call.arguments, ensure_ascii=False)


def _described(tool: ToolSpec) -> library.ToolDescription:
    """A tool without parameters is written without an argument, as in the format's own description."""
    parameters = tool.parameters if tool.parameters.get("properties") else None
    return library.ToolDescription(name=tool.name, description=tool.description, parameters=parameters)


def _settings(config: HarmonyConfig) -> dict[str, Any]:
    """What is not as `HarmonyConfig` has it by itself, under the names that the model's own template uses."""
    usual = HarmonyConfig(name=config.name)
    variables: dict[str, Any] = {}
    if config.effort is not usual.effort:
        variables[EFFORT] = config.effort.value
    if config.identity != usual.identity:
        variables[IDENTITY] = config.identity
    found = settings_of(config.start and datetime.combine(config.start, time()), variables)
    return found if config.cutoff == usual.cutoff else {**found, "cutoff": config.cutoff}


def _template_hash(config: HarmonyConfig) -> str:
    said = [
        "openai-harmony",
        version("openai-harmony"),
        config.start and config.start.isoformat(),
        config.effort,
        config.identity,
        config.cutoff,
    ]
    return hashlib.sha256(dumps(said).encode()).hexdigest()
