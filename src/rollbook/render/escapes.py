"""What a tokenizer cannot spell is shown to the model as an escape, never dropped; the record keeps the original.

No tokenizer can encode a lone surrogate, a byte-level vocabulary may lack single bytes (SmolLM2's has no 0x04 and no
0xF1), and a SentencePiece-style one without byte fallback lacks most characters: the tokenizers library would leave
them out in silence, or put its unknown token in their place. They become ``\\ud835``, ``\\x04`` or ``\\U00040000``, as
Python writes them. Unigram vocabularies take the text ``<0x41>`` for the byte that it names, so its ``<`` is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

from rollbook.errors import ModelError
from rollbook.render.tracked import Tracked, concat, tags_of

__all__ = ["Escapes"]

_SURROGATES = "\ud800-\udfff"
_MAX_ASKED = 4096


@dataclass(frozen=True, slots=True)
class Escapes:
    """The characters that one tokenizer cannot spell."""

    pattern: re.Pattern[str] = re.compile(f"([{_SURROGATES}])")
    """Finds characters that may have to be escaped."""
    spells: Callable[[str], bool] | None = None
    """Says of a character found that the tokenizer spells it after all, perhaps in the form that its own normalizer
    gives it; None: it spells none of them."""

    @classmethod
    def for_missing(cls, missing: Collection[int]) -> Escapes:
        """For a vocabulary without the bytes `missing`. Raises `ModelError` where it lacks what most text needs."""
        needed = [byte for byte in missing if byte in range(0x20, 0x7F) or byte in range(0x80, 0xC0)]
        if needed:
            raise ModelError(f"the tokenizer's vocabulary cannot spell byte {min(needed):#04x}; it is not fit for text")
        return cls(re.compile(f"([{_SURROGATES}{''.join(map(_characters, missing))}])"))

    @classmethod
    def for_unspelled(cls, known: Collection[str], spells: Callable[[str], bool]) -> Escapes:
        """For a vocabulary of characters, of which those in `known` are its own; `spells` is asked about the others.
        Raises `ModelError` where an escape could not be spelled either."""
        needed = set("\\xuU0123456789abcdef") - set(known)
        if needed:
            raise ModelError(f"the tokenizer's vocabulary cannot spell {min(needed)!r}; it is not fit for text")

        @lru_cache(_MAX_ASKED)
        def asked(char: str) -> bool:
            return not "\ud800" <= char <= "\udfff" and spells(char)

        return cls(re.compile(f"([^{re.escape(''.join(sorted(known)))}])"), asked)

    @classmethod
    def for_byte_names(cls) -> Escapes:
        """For a vocabulary that reads the name of a byte as that byte."""
        return cls(re.compile(f"([{_SURROGATES}]|<(?=0x[0-9A-F]{{2}}>))"))

    def plain(self, text: str) -> str:
        """`text` with escapes."""
        return self.apply(Tracked(text)).plain

    def apply(self, text: Tracked) -> Tracked:
        """`text` with escapes, which keep the tag of the character that they stand for."""
        if not self.pattern.search(text):
            return text
        pieces: list[Tracked] = []
        done = 0
        for match in self.pattern.finditer(text):
            if self.spells is not None and self.spells(match[0]):
                continue
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
