"""Policy versions as engines label them.

Rule: a label is read, never guessed. ``default`` is what engines call weights that nobody has updated, so it is 0; else
the digits at a label's end are the version (``v7``, ``step-12``, ``12``); a label without them has no version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["FIRST_LABEL", "Spans", "label_of", "spans_of", "version_of"]

FIRST_LABEL = "default"
"""What vLLM and SGLang call the weights that they started with."""
_END = 2**31
Spans = tuple[tuple[int, int], ...]
"""Run-length (version, tokens) over the sampled tokens."""
_DIGITS = re.compile(r"(-?)([0-9]+)\Z", re.ASCII)


def version_of(label: str) -> int | None:
    """The version that `label` names; None where it names none.

    Raises `RolloutFailure` (`engine_contract`) for one that the record cannot hold: versions are from 0 to 2**31 - 1.
    """
    if label == FIRST_LABEL:
        return 0
    found = _DIGITS.search(label)
    if found is None:
        return None
    sign, digits = found.groups()
    negative = sign and found.start() == 0  # the hyphen of "step-12" is none
    if negative or len(digits) > 20 or int(digits) >= _END:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"{label[:60]!r} is no policy version from 0 to {_END - 1}")
    return int(digits)


def label_of(version: int) -> str:
    """The label that a trainer gives an engine with new weights; `version_of` reads it back."""
    return str(version)


def spans_of(spans: Iterable[tuple[str, int, int]], tokens: int) -> Spans:
    """The versions that an engine's (label, start, end) name, half-open over `tokens` sampled tokens.

    Empty where a label names no version. Raises `RolloutFailure` (`engine_contract`) where the spans leave out a token
    or count one twice.
    """
    versions: list[tuple[int | None, int]] = []
    at = 0
    for label, start, end in spans:
        if start != at or end < start:
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"a version's span is {start} to {end} behind token {at}")
        version, count = version_of(label), end - start
        if versions and versions[-1][0] == version:
            count += versions.pop()[1]
        if count:
            versions.append((version, count))
        at = end
    if at != tokens:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the versions' spans cover {at} of {tokens} tokens")
    known = tuple((version, count) for version, count in versions if version is not None)
    return known if len(known) == len(versions) else ()
