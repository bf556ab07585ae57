"""Messages to token ids and sampled ids back to messages (the rules stand in `rollbook.render.protocol`)."""

from rollbook.render.chat import ChatRenderer, RendererConfig
from rollbook.render.protocol import Parsed, RenderedMessage, Renderer, RendererInfo, Rendering
from rollbook.render.stream import TextStream
from rollbook.render.text_side import TextSide
from rollbook.render.toolprompt import HERMES_EXAMPLES, NATIVE_TOOLS, Example, ToolPrompt

__all__ = [
    "HERMES_EXAMPLES",
    "NATIVE_TOOLS",
    "ChatRenderer",
    "Example",
    "Parsed",
    "RenderedMessage",
    "Renderer",
    "RendererConfig",
    "RendererInfo",
    "Rendering",
    "TextSide",
    "TextStream",
    "ToolPrompt",
]
