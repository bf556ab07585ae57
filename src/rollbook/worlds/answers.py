"""Reading a number out of a final answer, strictly and in one documented way.

A number is written in ASCII digits, with thousands grouped by commas or not at all, with or without decimals, and
touches no letter. A minus (``-`` or U+2212) is its sign unless it stands right behind a digit, letter or bracket,
where it subtracts. The *last* number of the text counts.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["last_number"]

_NUMBER = re.compile(
    r"(?<![\w.,])"
    r"(?P<sign>(?<![\w)\]])[-\u2212])?"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?P<decimals>\.[0-9]+)?"
    r"(?![\w]|[.,][0-9])"
)
MAX_DIGITS = 100


def last_number(text: str) -> Fraction | None:
    """The last number in `text`; None where there is none."""
    found: re.Match[str] | None = None
    for each in _NUMBER.finditer(text):
        found = each
    if found is None or len(found[0]) > MAX_DIGITS:
        return None
    value = Fraction(found["digits"].replace(",", "") + (found["decimals"] or ""))
    return -value if found["sign"] else value
