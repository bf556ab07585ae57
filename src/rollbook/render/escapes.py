"""What a tokenizer cannot spell is shown to the model as an escape, never dropped; the record keeps the original.

No tokenizer can encode a lone surrogate, and a byte-level vocabulary may lack single bytes (SmolLM2's has no 0x04
and no 0xF1): the tokenizers library would leave such characters out in silence. They become ``\\ud835``, ``\\x04``
or ``\\U00040000``, as Python writes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from rollbook.errors import ModelError
from rollbook.render.tracked import Tracked, concat, tags_of

__all__ = ["Escapes"]

_SURROGATES = "\ud800-\udfff"


@dataclass(frozen=True, slots=True)
class Escapes:
    """The characters that one tokenizer cannot spell."""

    pattern: re.Pattern[str] = re.compile(f"([{_SURROGATES}])")

    @classmethod
    def for_missing(cls, missing: Collection[int]) -> Escapes:
        """For a vocabulary without the bytes `missing`. Raises `ModelError` where it lacks what most text needs."""
        needed = [byte for byte in missing if byte in range(0x20, 0x7F) or byte in range(0x80, 0xC0)]
        if needed:
            raise ModelError(f"the tokenizer's vocabulary cannot spell byte {min(needed):#04x}; it is not fit for text")
        return cls(re.compile(f"([{_SURROGATES}{''.join(map(_characters, missing))}])"))

    def apply(self, text: Tracked) -> Tracked:
        """`text` with escapes, which keep the tag of the character that they stand for."""
        if not self.pattern.search(text):
            return text
        pieces: list[Tracked] = []
        done = 0
        for match in self.pattern.finditer(text):
            at = match.start()
            shown = _spell(ord(match[0]))
            pieces += [text[done:at], Tracked(shown, tags_of(text)[at] * len(shown))]
            done = at + 1
        return concat([*pieces, text[done:]])


def _spell(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _characters(byte: int) -> str:
    """The range of characters, for a regular expression, whose UTF-8 starts with `byte`; nothing for a byte that
    starts none."""
    if byte < 0x80:
        return re.escape(chr(byte))
    if byte in range(0xC2, 0xE0):
        first, size = (byte & 0x1F) << 6, 1 << 6
    elif byte in range(0xE0, 0xF0):
        first, size = (byte & 0x0F) << 12, 1 << 12
    elif byte in range(0xF0, 0xF5):
        first, size = (byte & 0x07) << 18, 1 << 18
    else:
        return ""
    return f"{chr(first)}-{chr(min(first + size, 0x110000) - 1)}"
