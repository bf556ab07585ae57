"""What tells one family's replies from another's: its markers, and how the body of a call is read.

A body is a list of parts: bytes, and the markers inside it, which are `str`. A reader takes the body apart into
attempts (mostly one) without knowing of tools; the state machine that finds bodies is `rollbook.render.formats.reply`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from rollbook.render.calls import Attempt, Refused
from rollbook.trace.message import ParseStatus

__all__ = ["Body", "Form", "Found", "Part", "malformed", "raw_of", "refused"]

Part: TypeAlias = bytes | str
"""Sampled bytes, or a marker."""
Body: TypeAlias = list[Part]


@dataclass(frozen=True, slots=True)
class Found:
    """One attempted call in a body."""

    raw: bytes
    """The attempt as it was sampled."""
    read: Callable[[], Attempt]
    """Reads it; raises `Refused`."""


class Form(ABC):
    """One family's way to write calls. Stateless."""

    opens: ClassVar[str]
    """Opens a call."""
    closes: ClassVar[str | None] = None
    """Closes a call; None: the next opening or the end of the reply does."""
    inner: ClassVar[Sequence[str]] = ()
    """Markers inside a call; elsewhere they are text."""
    section: ClassVar[tuple[str, str] | None] = None
    """Markers around all calls of a reply; a call outside them is malformed."""
    reasoning: ClassVar[Sequence[tuple[str, str]]] = (("<think>", "</think>"),)
    """Pairs of reasoning markers that the family's templates write."""
    quotes: ClassVar[bool] = False
    """True where a call can do without quotes, so that one quoted in a JSON string of another could pass for a call:
    where markers are found in the text, an opening inside an open string is text."""

    @abstractmethod
    def find(self, body: Body) -> list[Found]:
        """The attempts of a closed body, in order; at least one."""

    def unmarked(self, content: bytes, names: Set[str]) -> bool:
        """True where `content`, all that the reply says outside reasoning, is calls without a marker. `names`: the
        tools that are offered."""
        return False

    def weight(self, part: Part) -> int:
        """By how much `part` opens (above 0) or closes (below 0) values that are raw text, where a marker that is
        found in the text is text itself."""
        return 0

    def call_id(self, prefix: str, n: int) -> str:
        """The id of the nth call of a reply, where the policy writes none."""
        return f"{prefix}{n}"


def raw_of(body: Body) -> bytes:
    """The body as it was sampled."""
    return b"".join(part if isinstance(part, bytes) else part.encode() for part in body)


def malformed(why: str, *, name: str | None = None, native_id: str | None = None) -> Refused:
    """The body is not in the family's form."""
    return Refused(ParseStatus.INVALID_JSON, f"the tool call is malformed: {why}", name=name, native_id=native_id)


def refused(raw: bytes, why: Refused) -> Found:
    """An attempt whose reading has already failed."""

    def read() -> Attempt:
        raise why

    return Found(raw, read)
