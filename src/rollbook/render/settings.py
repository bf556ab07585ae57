"""What was set of a template beside its text, as the record holds it: plain JSON data, and only what was set.

Template variables reach the template in the form in which they are recorded, so the record says what was used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rollbook.errors import ModelError
from rollbook.render.formats import CallFormat

__all__ = ["plain_variables", "settings_of"]

_MIDNIGHT = "T00:00:00"


def plain_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """`variables` as they come back from a record. Raises `ModelError` where they would not."""
    try:
        return json.loads(json.dumps(dict(variables), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"template variables must be plain JSON data: {error}") from error


def settings_of(
    now: datetime | None = None, variables: Mapping[str, Any] | None = None, call_format: CallFormat | None = None
) -> dict[str, Any]:
    """The settings by name: ``date`` (ISO, with a time where there is one), ``variables``, ``call_format``."""
    found: dict[str, Any] = {}
    if now is not None:
        found["date"] = now.isoformat().removesuffix(_MIDNIGHT)
    if variables:
        found["variables"] = dict(variables)
    if call_format is not None:
        found["call_format"] = call_format.value
    return found
