"""The gate: the limits that a batch must keep to go on to a trainer.

Rules: a limit is the most that is allowed; a check that the gate does not name keeps the limit of the table; unknown
names are refused, for a limit that is misspelled guards nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

import msgspec

from rollbook.audit.table import CHECKS, Row
from rollbook.errors import ConfigError

__all__ = ["DEFAULT_GATE", "Gate"]

_NAMES = frozenset(row.name for row in CHECKS)
_KEYS = ("limits", "must_judge", "findings")


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Limits by check. Raises `ConfigError` for names that are no checks and limits that are no numbers >= 0."""

    limits: dict[str, float | None] = {}
    """Overrides only; None: no limit."""
    must_judge: tuple[str, ...] = ("alignment",)
    """Checks without whose answer the batch cannot be judged (exit code 2)."""
    findings: int = 20
    """The most findings kept for each check."""

    def __post_init__(self) -> None:
        _refuse_unknown("limits", self.limits)
        _refuse_unknown("must_judge", self.must_judge)
        for name, limit in self.limits.items():
            if limit is not None and not (math.isfinite(limit) and limit >= 0):
                raise ConfigError(f"gate: the limit of '{name}' is {limit}; want a finite number >= 0")
        if self.findings < 0:
            raise ConfigError(f"gate: findings is {self.findings}; want a whole number >= 0")

    def limit(self, row: Row) -> float | None:
        """The limit that holds for a check; None: no limit."""
        return self.limits.get(row.name, row.limit)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Gate:
        """A gate from a TOML or JSON document: ``limits`` (check name -> number; null or ``"none"``: no limit),
        ``must_judge`` (list of names), ``findings``. Unknown keys are refused."""
        unknown = sorted(set(mapping) - set(_KEYS))
        if unknown:
            raise ConfigError(f"gate: unknown key {unknown[0]!a}{_close(unknown[0], _KEYS)}; known: {', '.join(_KEYS)}")
        plain = dict(mapping)
        if isinstance(plain.get("limits"), Mapping):
            limits = cast("Mapping[str, Any]", plain["limits"])
            plain["limits"] = {name: None if limit == "none" else limit for name, limit in limits.items()}
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"gate: {error}") from error


def _refuse_unknown(where: str, names: Iterable[str]) -> None:
    unknown = sorted(set(names) - _NAMES)
    if unknown:
        raise ConfigError(
            f"gate: {where} names {unknown[0]!a}, which is not a check{_close(unknown[0], _NAMES)}; the checks are: "
            f"{', '.join(sorted(_NAMES))}"
        )


def _close(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


DEFAULT_GATE = Gate()
"""The limits of the table."""
