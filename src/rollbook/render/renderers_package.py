"""The renderer over the ``renderers`` package (an extra), under our content rule and our call rule.

The package has renderers written by hand for many families. Here it works over our own tokenizer
(`rollbook.render.package_tokenizer`); what it renders passes `rollbook.render.package_guard` and what it reads passes
`rollbook.render.package_reply` before it is taken. This is the only module that imports it.

`extend` extends a short stand-in history that ends in the given token, for a renderer is told no more of the past:
so it costs what is new, whatever came before. That what the package adds depends on nothing else of the history is
tried on histories of several kinds when a renderer is built. One thing it can depend on cannot be told from the last
token: the package closes reasoning that a cut turn left open, or refuses where the turn ended inside it; here a cut
turn gets the token that ends a turn and nothing else, as everywhere in Rollbook. Where the package would write the
history anew (its `thinking_retention`), `extend` raises `BridgeRefused`; sampled ids are never rendered again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol, cast, get_args

import numpy as np

from rollbook.errors import ConfigError, ModelError, boundary
from rollbook.render.conversation import call_entry, message_text, whole_call
from rollbook.render.encode import Encoder, Piece, shared_encoder
from rollbook.render.formats import REASONING, opens_reasoning
from rollbook.render.package_form import Reads, learn_form
from rollbook.render.package_guard import HARMLESS, Guard, Owned, Rendered
from rollbook.render.package_reply import ReplyCheck
from rollbook.render.package_tokenizer import PackageTokenizer
from rollbook.render.protocol import Parsed, RenderedMessage, RendererInfo, Rendering
from rollbook.render.vocabulary import show_bytes
from rollbook.trace.message import Message, Role
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, compress_runs, expand_runs
from rollbook.trace.tools import ToolSpec

try:
    from pydantic import TypeAdapter
    from renderers import (  # pyright: ignore[reportMissingTypeStubs] (the package is not typed; likewise below)
        create_renderer,  # pyright: ignore[reportUnknownVariableType]
    )
    from renderers.configs import RendererConfig as PackageConfig  # pyright: ignore[reportMissingTypeStubs]
except ModuleNotFoundError as missing:
    if missing.name not in ("renderers", "pydantic", "httpx"):
        raise
    raise ModuleNotFoundError(
        f"rollbook.render.renderers_package needs the extra renderers ({missing.name} is missing): run pip install "
        "'.[renderers]' in Rollbook's checkout",
        name=missing.name,
    ) from missing

__all__ = ["BridgeRefused", "Package", "PackageRenderer"]

MAX_KEPT = 256
"""Shapes of batches whose control tokens are kept, and sets of tools."""

_USER = {"role": "user", "content": "What is asked?"}


class BridgeRefused(ModelError):
    """The package would write the history anew instead of extending it."""


class Package(Reads, Protocol):
    """A renderer object of the package."""

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Any],
        *,
        tools: list[Any] | None = None,
    ) -> Rendered | None: ...


@dataclass(frozen=True, slots=True)
class _Tools:
    """Tools in the OpenAI form."""

    given: tuple[ToolSpec, ...]
    plain: list[Any] | None
    masked: list[Any] | None
    harmless: list[Any] | None


@dataclass(frozen=True, slots=True)
class _StandIn:
    """A short history: a prompt and an answer that the package wrote itself, its end-of-turn token left out."""

    prompt: list[int]
    answer: list[int]
    inside_reasoning: bool
    """True where the prompt opens reasoning, which the answer closes."""


class PackageRenderer:
    """A `Renderer` over the package. Stateless but for caches.

    By default most of the package's renderers drop old reasoning, so they would write the history anew before a user's
    message behind a turn, and `extend` raises `BridgeRefused` there. With ``options={"thinking_retention": "all"}``
    reasoning stays, and bridges over it are possible.
    """

    def __init__(self, encoder: Encoder, tokenizer: PackageTokenizer, package: Package, info: RendererInfo) -> None:
        """Raises `ModelError` where the package's renderer cannot be used one step at a time."""
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._package = package
        self._info = info
        self._guard = Guard(encoder)
        self._tool_forms: dict[tuple[int, ...], _Tools] = {}
        self._expected: dict[tuple[int, tuple[int, ...], str], list[tuple[int, int]]] = {}
        if not info.stop_ids or not info.stop_ids <= encoder.control:
            raise ModelError(f"the package ends turns with {sorted(info.stop_ids)}, which are not all control tokens")
        prompt = self._render([_USER], None).ids
        opened = opens_reasoning(self.decode(prompt))
        learned = learn_form(package, encoder, prompt.tolist(), inside_reasoning=opened)
        self._stand_in = _StandIn(prompt.tolist(), learned.said, opened)
        self._reply = ReplyCheck(encoder.vocabulary, encoder.added, encoder.control, learned.form)
        self._check_stand_in(learned.called)

    @classmethod
    def build(
        cls,
        tokenizer_json: bytes,
        renderer: str | Callable[[PackageTokenizer], Package],
        *,
        name: str,
        options: Mapping[str, Any] | None = None,
    ) -> PackageRenderer:
        """`renderer`: the package's name for one (``qwen3``, ``glm-4.5`` ...) with its `options`, or what makes a
        renderer object of the package over the given tokenizer. `name`: for people and the record."""
        encoder = shared_encoder(tokenizer_json)
        tokenizer = PackageTokenizer(tokenizer_json, encoder)
        with boundary("the renderers package makes no such renderer", ConfigError):
            if isinstance(renderer, str):
                config = _config(renderer, options or {})
                package = cast("Package", create_renderer(cast("Any", tokenizer), config))
                settings = config.model_dump_json()
            elif options:
                raise ConfigError("options go with the name of a renderer; set them in what makes the object")
            else:
                package, settings = renderer(tokenizer), ""
            stops = frozenset(package.get_stop_token_ids())
        kind = type(package)
        described = f"renderers {version('renderers')} {kind.__module__}.{kind.__qualname__} {settings}"
        info = RendererInfo(
            name=name,
            tokenizer_hash=hashlib.sha256(tokenizer_json).hexdigest(),
            template_hash=hashlib.sha256(described.encode()).hexdigest(),
            vocab_size=encoder.vocab_size,
            stop_ids=stops,
            tool_prompt=None,
        )
        return cls(encoder, tokenizer, package, info)

    @property
    def info(self) -> RendererInfo:
        """`template_hash` is of the package's version, the class of its renderer and its settings."""
        return self._info

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render the start of a conversation."""
        pieces = self._whole(messages, tools)
        return self._rendering(messages, pieces)

    def rerender(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """The whole conversation as the package renders it now; a turn's piece ends right behind its end-of-turn
        token."""
        pieces = self._whole(messages, tools)
        for number, message in enumerate(messages):
            ends = np.flatnonzero(np.isin(pieces[number].token_ids, list(self._info.stop_ids)))
            if message.role is Role.ASSISTANT and len(ends):
                pieces[number], behind = _split(pieces[number], int(ends[-1]) + 1)
                pieces[number + 1] = _joined(behind, pieces[number + 1])
        return self._rendering(messages, pieces)

    def extend(self, last_id: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Rendering:
        """Render `messages` behind a sampled turn. Raises `BridgeRefused` where the package would not extend it."""
        if not messages:
            raise ModelError("a turn is followed by at least one message")
        forms = self._tools(tools)
        closed = last_id in self._info.stop_ids
        turn = [*self._stand_in.answer, *([last_id] if closed else [])]
        entries, harmless = self._entries(messages)
        owned = self._bridge(turn, entries, forms.masked)
        expected = self._control_of(
            last_id if closed else -1, forms, harmless, lambda: self._bridge(turn, harmless, forms.harmless)
        )
        pieces = self._guard.check(messages, owned, expected)
        if not closed:
            pieces[0] = self._forced(pieces[0], turn, owned, entries, forms)
        return self._rendering(messages, pieces)

    def parse(
        self,
        token_ids: TokenIds,
        tools: Sequence[ToolSpec],
        *,
        inside_reasoning: bool,
        cut: bool,
        call_prefix: str,
    ) -> Parsed:
        """Let the package read the reply and check it (the rules stand in `rollbook.render.package_reply`)."""
        ids: list[int] = token_ids.tolist()
        closed = bool(ids) and ids[-1] in self._info.stop_ids
        with boundary("the renderers package cannot read the reply", ModelError):
            found = self._package.parse_response(
                ids, tools=self._tools(tools).plain, prompt_ids=self._prompt(inside_reasoning=inside_reasoning)
            )
        message = self._reply.message(
            ids[:-1] if closed else ids,
            found,
            tools,
            inside_reasoning=inside_reasoning,
            cut=cut,
            call_prefix=call_prefix,
        )
        return Parsed(message=message, closed=closed)

    def encode(self, text: str) -> TokenIds:
        """`text` as content: never a control token."""
        return self._encoder.encode_content(text)

    def decode(self, token_ids: TokenIds) -> str:
        """Text for people."""
        return show_bytes(self._encoder.vocabulary.join(token_ids.tolist()))

    def _whole(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Piece]:
        if not messages:
            raise ModelError("a conversation needs at least one message")
        forms = self._tools(tools)
        entries, harmless = self._entries(messages)
        owned = self._render(entries, forms.masked)
        expected = self._control_of(-2, forms, harmless, lambda: self._render(harmless, forms.harmless))
        pieces = self._guard.check(messages, owned, expected)
        text = self.decode(owned.ids[~owned.content])
        for tool in tools:
            if tool.name not in text:
                raise ModelError(f"the package's renderer of {self._info.name} leaves out the tool {tool.name!r}")
        return pieces

    def _rendering(self, messages: Sequence[Message], pieces: Sequence[Piece]) -> Rendering:
        return Rendering(
            messages=tuple(
                RenderedMessage(message=message, token_ids=piece.token_ids, runs=piece.runs)
                for message, piece in zip(messages, pieces[:-1], strict=True)
            ),
            prompt_ids=pieces[-1].token_ids,
            inside_reasoning=opens_reasoning(self.decode(pieces[-1].token_ids)),
            tools_rendered=True,
        )

    def _render(self, entries: list[Any], tools: list[Any] | None) -> Owned:
        with boundary("the renderers package cannot render the conversation", ModelError):
            rendered = self._package.render(entries, tools=tools, add_generation_prompt=True)
        return Owned(rendered, 0, len(entries))

    def _bridge(self, turn: list[int], entries: list[Any], tools: list[Any] | None) -> Owned:
        """What the package writes behind the stand-in's prompt and `turn`."""
        prompt = self._stand_in.prompt
        with boundary("the renderers package cannot extend the conversation", ModelError):
            rendered = self._package.bridge_to_next_turn(list(prompt), list(turn), entries, tools=tools)
        if rendered is None:
            roles = ", ".join(str(entry["role"]) for entry in entries)
            raise BridgeRefused(
                f"the renderers package would render the whole history of {self._info.name} anew before these messages "
                f"({roles}), and sampled ids are kept; its option thinking_retention='all' extends it instead"
            )
        held = [*prompt, *turn]
        if rendered.token_ids[: len(held)] != held:
            raise ModelError("the renderers package changed ids that it was to extend")
        return Owned(rendered, len(held), len(entries))

    def _forced(self, piece: Piece, turn: list[int], owned: Owned, entries: list[Any], forms: _Tools) -> Piece:
        """The end-of-turn token that the package put behind a turn without one, marked as such."""
        close = int(piece.token_ids[0])
        if close not in self._info.stop_ids:
            raise ModelError("the renderers package extends a turn that was cut without ending it")
        if not np.array_equal(owned.ids[1:], self._bridge([*turn, close], entries, forms.masked).ids):
            raise ModelError("the renderers package puts more than an end-of-turn token behind a turn that was cut")
        kinds = expand_runs(piece.runs)
        kinds[0] = RunKind.FORCED
        return Piece(piece.token_ids, compress_runs(kinds))

    def _control_of(
        self, last_id: int, forms: _Tools, entries: list[Any], render: Callable[[], Owned]
    ) -> list[tuple[int, int]]:
        """Control tokens of a harmless rendering; kept, for they depend on the shape of the batch alone."""
        key = (last_id, tuple(map(id, forms.given)), repr(entries))
        known = self._expected.get(key)
        if known is None:
            if len(self._expected) >= MAX_KEPT:
                self._expected.clear()
            known = self._expected[key] = self._guard.control(render())
        return known

    def _tools(self, tools: Sequence[ToolSpec]) -> _Tools:
        key = tuple(map(id, tools))
        known = self._tool_forms.get(key)
        if known is None:
            if len(self._tool_forms) >= MAX_KEPT:
                self._tool_forms.clear()
                self._expected.clear()
            plain = [tool.openai() for tool in tools] or None
            masked = self._tokenizer.mask_all(plain)
            known = self._tool_forms[key] = _Tools(tuple(tools), plain, masked, self._harmless(masked))
        return known

    def _entries(self, messages: Sequence[Message]) -> tuple[list[Any], list[Any]]:
        """Messages as the package reads them, and the same with harmless texts."""
        entries: list[Any] = []
        harmless: list[Any] = []
        for message in messages:
            entry = self._tokenizer.mask_all(_entry(message))
            entries.append(entry)
            said = {name: HARMLESS for name in _TEXTS if entry.get(name, "").strip()}
            harmless.append(self._harmless({**entry, **said}))
        return entries, harmless

    def _harmless(self, value: Any) -> Any:
        """`value` with a harmless word for each string that spells a control token."""
        match value:
            case str():
                return HARMLESS if self._tokenizer.is_masked(value) else value
            case list():
                return [self._harmless(item) for item in cast("list[Any]", value)]
            case dict():
                items = cast("dict[str, Any]", value).items()
                return {self._harmless(key): self._harmless(item) for key, item in items}
            case _:
                return value

    def _prompt(self, *, inside_reasoning: bool) -> list[int] | None:
        """A prompt that leaves the reply where it starts."""
        if inside_reasoning == self._stand_in.inside_reasoning:
            return self._stand_in.prompt
        if not inside_reasoning:
            return None
        opener = next((self._encoder.added[mark] for mark, _ in REASONING if mark in self._encoder.added), None)
        if opener is None:
            raise ModelError("the package's renderer opens no reasoning, so a reply cannot start inside it")
        return [*self._stand_in.prompt, opener]

    def _check_stand_in(self, turn: list[int]) -> None:
        """The package must write the same behind other histories: a longer one, and `turn`, which made a call."""
        stop = min(self._info.stop_ids)
        longer = [*self._stand_in.prompt, *self._stand_in.answer, stop, *self._stand_in.prompt]
        results: list[Any] = [{"role": "tool", "content": "5", "name": "add", "tool_call_id": "functions.add:0"}]
        added: list[list[int]] = []
        for prompt in (self._stand_in.prompt, longer):
            for answer in (self._stand_in.answer, turn):
                with boundary("the renderers package cannot extend a conversation", ModelError):
                    rendered = self._package.bridge_to_next_turn(list(prompt), [*answer, stop], list(results))
                if rendered is None:
                    raise BridgeRefused("the renderers package would render the history anew behind a tool result")
                added.append(rendered.token_ids[len(prompt) + len(answer) + 1 :])
        if any(ids != added[0] for ids in added):
            raise ModelError("what the renderers package adds depends on the history before the last turn's end")


_TEXTS = ("content", "reasoning_content")


def _config(renderer: str, options: Mapping[str, Any]) -> Any:
    if renderer == "auto":
        raise ConfigError("name the package's renderer (e.g. 'qwen3'); it is not chosen by a model's name here")
    # the package's type is a union of one class for each of its renderers
    known = {kind.model_fields["name"].default for kind in get_args(get_args(PackageConfig)[0])}
    if renderer not in known:
        names = ", ".join(sorted(known - {"auto", "default"}))
        raise ConfigError(f"the renderers package has no renderer {renderer!r}; it has {names}")
    return TypeAdapter(PackageConfig).validate_python({**options, "name": renderer})


def _entry(message: Message) -> dict[str, Any]:
    """A message in the OpenAI form."""
    entry: dict[str, Any] = {"role": message.role.value, "content": message_text(message)}
    if message.reasoning is not None:
        entry["reasoning_content"] = message.reasoning
    if message.tool_calls:
        entry["tool_calls"] = [
            call_entry(call.id, call.name, call.arguments) for call in map(whole_call, message.tool_calls)
        ]
    answered = {"tool_call_id": message.call_id, "name": message.name} if message.role is Role.TOOL else {}
    return {**entry, **{key: value for key, value in answered.items() if value is not None}}


def _split(piece: Piece, at: int) -> tuple[Piece, Piece]:
    kinds = expand_runs(piece.runs)
    return (
        Piece(piece.token_ids[:at], compress_runs(kinds[:at])),
        Piece(piece.token_ids[at:], compress_runs(kinds[at:])),
    )


def _joined(first: Piece, second: Piece) -> Piece:
    kinds = np.concatenate((expand_runs(first.runs), expand_runs(second.runs)))
    return Piece(np.concatenate((first.token_ids, second.token_ids)), compress_runs(kinds))
