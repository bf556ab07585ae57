"""A renderer object of the ``renderers`` package that makes a fault when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, Qwen3RendererConfig, RenderedTokens, create_renderer

from rollbook.render.package_tokenizer import PackageTokenizer
from rollbook.render.renderers_package import PackageRenderer
from tests.render.families import tokenizer_json

__all__ = ["Faulty", "faulty_renderer"]

RenderFault = Callable[[RenderedTokens, int], RenderedTokens]
"""Changes a rendering; the number says how many of its ids were held before."""


class Faulty:
    """The real renderer of Qwen3, and `on_render`, `on_parse`, `on_messages` that change what goes through it."""

    def __init__(self, tokenizer: PackageTokenizer) -> None:
        self.tokenizer = tokenizer
        self._real: Any = create_renderer(tokenizer, Qwen3RendererConfig())  # pyright: ignore
        self.on_render: RenderFault = lambda rendered, held: rendered
        self.on_parse: Callable[[ParsedResponse], ParsedResponse] = lambda found: found
        self.on_messages: Callable[[list[Any]], list[Any]] = lambda messages: messages

    def render(self, messages: list[Any], **options: Any) -> RenderedTokens:
        return self.on_render(self._real.render(self.on_messages(messages), **options), 0)

    def bridge_to_next_turn(self, prompt: list[int], turn: list[int], messages: list[Any], **options: Any) -> Any:
        bridged = self._real.bridge_to_next_turn(prompt, turn, self.on_messages(messages), **options)
        return None if bridged is None else self.on_render(bridged, len(prompt) + len(turn))

    def parse_response(self, token_ids: list[int], **options: Any) -> ParsedResponse:
        return self.on_parse(self._real.parse_response(token_ids, **options))

    def get_stop_token_ids(self) -> list[int]:
        return self._real.get_stop_token_ids()


def faulty_renderer() -> tuple[PackageRenderer, Faulty]:
    """A renderer over a small tokenizer, and the object whose faults are still off."""
    made: list[Faulty] = []

    def make(tokenizer: PackageTokenizer) -> Faulty:
        made.append(Faulty(tokenizer))
        return made[0]

    return PackageRenderer.build(tokenizer_json(marked=True), make, name="faulty"), made[0]


def broken(*_given: Any) -> Any:
    """A fault of the package's own."""
    raise IndexError("out of range")


def without(rendered: RenderedTokens, places: set[int]) -> RenderedTokens:
    """`rendered` less some of its tokens."""
    kept = [place for place in range(len(rendered.token_ids)) if place not in places]
    return _with(rendered, kept, {})


def put(rendered: RenderedTokens, place: int, token: int) -> RenderedTokens:
    """`rendered` with another token at `place`."""
    return _with(rendered, list(range(len(rendered.token_ids))), {place: token})


def _with(rendered: RenderedTokens, kept: list[int], other: dict[int, int]) -> RenderedTokens:
    return replace(
        rendered,
        token_ids=[other.get(place, rendered.token_ids[place]) for place in kept],
        message_indices=[rendered.message_indices[place] for place in kept],
        is_content=[rendered.is_content[place] for place in kept],
    )


def reads(call: ParsedToolCall) -> Callable[[ParsedResponse], ParsedResponse]:
    """Lists `call` in place of each call that was found."""
    return lambda found: replace(found, tool_calls=[call for _ in found.tool_calls])
