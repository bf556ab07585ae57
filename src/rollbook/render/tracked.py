"""Text that knows where each character came from.

A parallel tag string of the same length holds one tag a character: `SCAFFOLD` for the template's own literals,
anything else for content (one tag a message, so that a message can be found again in the rendered text). Only
`scaffold()` makes scaffold. Every operation gives the text that a plain `str` gives; where an operation cannot keep
tags it returns a plain `str`, and a plain `str` counts as content: tracking is lost towards the safe side, and
content never becomes scaffold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

__all__ = ["CONTENT", "MAX_TEXT", "SCAFFOLD", "Tracked", "call_tag", "concat", "message_tag", "scaffold", "tags_of"]

SCAFFOLD = "s"
"""Tag of a character that the template wrote."""
CONTENT = "c"
"""Tag of a character from anywhere else."""


MAX_TEXT = 1 << 26
"""The most characters of one text: a template that doubles a text in a loop ends before the memory does."""


def message_tag(index: int) -> str:
    """The content tag of message `index` of a batch."""
    return chr(0x100 + index) if index < 0xD000 else CONTENT


def call_tag(index: int) -> str:
    """The tag of the names that message `index` of a batch calls."""
    return chr(0x10000 + index) if index < 0xD000 else CONTENT


def tags_of(text: str) -> str:
    """One tag a character; a plain string is content."""
    # the name begins with "_" so that no template can read it
    return text._tags if isinstance(text, Tracked) else CONTENT * len(text)  # pyright: ignore[reportPrivateUsage]


def scaffold(text: str) -> Tracked:
    """`text` as the template's own words."""
    return Tracked(text, SCAFFOLD * len(text))


def concat(pieces: Iterable[Any]) -> Tracked:
    """All pieces as one text; what is not a string counts as content, as `str` spells it."""
    texts = [piece if isinstance(piece, str) else str(piece) for piece in pieces]
    return _made("".join(texts), "".join(map(tags_of, texts)))


def _made(text: str, tags: str) -> Tracked:
    if len(tags) > MAX_TEXT:
        raise ValueError(f"a text of more than {MAX_TEXT} characters")
    made = str.__new__(Tracked, text)
    made._tags = tags  # pyright: ignore[reportPrivateUsage] (as in `tags_of`)
    return made


class Tracked(str):
    """A string with one tag a character."""

    __slots__ = ("_tags",)
    _tags: str

    def __new__(cls, text: object = "", tags: str | None = None) -> Tracked:
        """`text` with `tags`, which must be as long; without tags it is content, whatever it was before."""
        made = super().__new__(cls, text)
        made._tags = CONTENT * len(made) if tags is None else tags
        if len(made._tags) != len(made):
            raise ValueError(f"{len(made)} characters but {len(made._tags)} tags")
        return made

    @property
    def plain(self) -> str:
        """The text alone."""
        return str.__str__(self)

    def _cut(self, start: int, end: int) -> Tracked:
        return _made(str.__getitem__(self, slice(start, end)), self._tags[start:end])

    def _spread(self, pieces: Iterable[str]) -> list[str]:
        """Pieces that stand in this text in order, none inside a gap, with their tags."""
        found: list[str] = []
        position = 0
        for piece in pieces:
            position = self.find(piece, position)
            found.append(self._cut(position, position + len(piece)))
            position += len(piece)
        return found

    def __str__(self) -> Tracked:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> Tracked:
        return _made(str.__getitem__(self, key), self._tags[key])

    def __iter__(self) -> Iterator[str]:  # pyright: ignore[reportIncompatibleMethodOverride] (a str all the same)
        return map(_made, str.__iter__(self), self._tags)

    def __add__(self, other: str) -> Tracked:
        if not isinstance(other, str):  # pyright: ignore[reportUnnecessaryIsInstance] (templates are not typed)
            return NotImplemented
        return _made(str.__add__(self, other), self._tags + tags_of(other))

    def __radd__(self, other: str) -> Tracked:
        if not isinstance(other, str):  # pyright: ignore[reportUnnecessaryIsInstance] (likewise)
            return NotImplemented
        return _made(str.__add__(other, self), tags_of(other) + self._tags)

    def __mul__(self, times: SupportsIndex) -> Tracked:
        return _made(str.__mul__(self, times), self._tags * times)

    def __rmul__(self, times: SupportsIndex) -> Tracked:
        return self * times

    def strip(self, chars: str | None = None, /) -> Tracked:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Tracked:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Tracked:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> Tracked:
        return self._cut(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str, /) -> Tracked:
        return self._cut(0, len(self) - len(suffix) if self.endswith(suffix) else len(self))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._separated(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._separated(str.rsplit(self, sep, maxsplit), sep)

    def _separated(self, pieces: list[str], sep: str | None) -> list[str]:
        if sep is None:
            return self._spread(pieces)
        found: list[str] = []
        position = 0
        for piece in pieces:
            found.append(self._cut(position, position + len(piece)))
            position += len(piece) + len(sep)
        return found

    def splitlines(self, keepends: bool = False) -> list[str]:
        found: list[str] = []
        position = 0
        for kept, line in zip(str.splitlines(self, True), str.splitlines(self, keepends), strict=True):
            found.append(self._cut(position, position + len(line)))
            position += len(kept)
        return found

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return self._parted(str.partition(self, sep))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        return self._parted(str.rpartition(self, sep))

    def _parted(self, parts: tuple[str, str, str]) -> tuple[str, str, str]:
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        return self._cut(0, first), self._cut(first, second), self._cut(second, len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return str.replace(self, old, new, count)
        pieces = self.split(old, count)
        return concat([pieces[0], *(part for piece in pieces[1:] for part in (new, piece))])

    def join(self, iterable: Iterable[str], /) -> Tracked:
        items = list(iterable)
        if not all(isinstance(item, str) for item in items):  # pyright: ignore[reportUnnecessaryIsInstance] (likewise)
            str.join(self, items)  # raises the TypeError that str would raise
        return concat([part for item in items for part in (self, item)][1:])

    def _recased(self, text: str) -> str:
        """Letters map one to one or grow, so equal length means that every character kept its place."""
        return _made(text, self._tags) if len(text) == len(self) else text

    def lower(self) -> str:
        return self._recased(str.lower(self))

    def upper(self) -> str:
        return self._recased(str.upper(self))

    def title(self) -> str:
        return self._recased(str.title(self))

    def capitalize(self) -> str:
        return self._recased(str.capitalize(self))

    def swapcase(self) -> str:
        return self._recased(str.swapcase(self))

    def casefold(self) -> str:
        return self._recased(str.casefold(self))
