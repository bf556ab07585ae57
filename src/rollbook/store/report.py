"""Damage: what could not be read, where, and what was done about it. Nothing is dropped without such a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

__all__ = ["Damage", "DamageReason", "RecoveryReport"]


class DamageReason(StrEnum):
    """What is wrong at a place of a file."""

    UNFINISHED = "unfinished"
    """The file ends inside a frame: the writer died there, or is still writing it."""
    FRAME = "frame"
    """One frame does not fit its CRC; the next one was found and reading went on there."""
    LOST = "lost"
    """From here on no frame can be told apart; the rest of the file was not read."""
    SECTION = "section"
    """The frame's head is fine, but a section does not fit its CRC or cannot be decoded."""
    FOOTER = "footer"
    """The index of a sealed segment is damaged; its traces were found by reading all heads."""
    GAP = "gap"
    """Turns of a running rollout that do not follow what was stored before them; they were left out."""
    FOREIGN = "foreign"
    """The file is not of this format."""
    UNKNOWN = "unknown"
    """A frame or section of a kind that this version does not know; reading went on behind it."""

    @property
    def passed(self) -> bool:
        """True where reading goes on behind it."""
        return self in (DamageReason.FRAME, DamageReason.UNKNOWN)


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One place that could not be read."""

    file: str
    """Relative to the run folder, or the path as it was given."""
    offset: int
    bytes: int
    """How many bytes it concerns."""
    reason: DamageReason
    detail: str = ""
    cut: bool = False
    """True: these bytes were removed from the file, so that writing can go on behind the last whole frame."""

    def __str__(self) -> str:
        done = "cut off" if self.cut else "not read"
        return f"{self.file} at byte {self.offset}: {self.reason}, {self.bytes} bytes {done}. {self.detail}".rstrip()


@dataclass(slots=True)
class RecoveryReport:
    """What opening or reading a run found."""

    in_flight: list[str] = field(default_factory=list[str])
    """Rollouts that were begun and not sealed (only when opened for writing)."""
    _rows: dict[tuple[str, int, DamageReason], Damage] = field(
        default_factory=dict[tuple[str, int, DamageReason], Damage]
    )

    @property
    def damages(self) -> list[Damage]:
        """All rows, in the order in which they were found."""
        return list(self._rows.values())

    @property
    def clean(self) -> bool:
        """True where everything could be read."""
        return not self._rows

    @property
    def bytes_cut(self) -> int:
        """Bytes removed from file ends."""
        return sum(damage.bytes for damage in self.damages if damage.cut)

    def add(self, damage: Damage) -> None:
        """Keep one row; a newer one about the same place replaces it."""
        self._rows[damage.file, damage.offset, damage.reason] = damage

    def forget_unfinished(self, file: str) -> None:
        """Drop the row of an unfinished tail: the file is being looked at again."""
        for place in [each for each in self._rows if each[0] == file and each[2] is DamageReason.UNFINISHED]:
            del self._rows[place]

    def __str__(self) -> str:
        return "\n".join(map(str, self.damages)) or "no damage"
