"""A safe calculator: reads an expression itself, runs no code, and counts exactly.

Grammar, loosest first: ``+ -``; ``* / // %``; signs; ``**`` (binds to the right, and before a sign on its left, as in
Python); numbers like ``12`` and ``0.5``; brackets. Everything is a fraction, so nothing is rounded inside. Bounds,
checked before work is done: length of the text, depth of nesting, size of a result. Anything else is a `BadExpression`.
"""

from __future__ import annotations

import decimal
import re
from fractions import Fraction

from rollbook.errors import RollbookError

__all__ = ["BadExpression", "evaluate", "show"]

MAX_LENGTH = 200
MAX_DEPTH = 20
MAX_BITS = 512
"""Size of the numerator and of the denominator of any result."""
SHOWN_DIGITS = 12

_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|(\*\*|//|[-+*/%()]))")


class BadExpression(RollbookError):
    """The text is no arithmetic, or asks for too much."""


def evaluate(text: str) -> Fraction:
    """The value of an expression. Raises `BadExpression`."""
    reader = _Reader(_tokens(text))
    value = reader.sum(0)
    if reader.peek is not None:
        raise BadExpression(f"unexpected {reader.peek!r}")
    return value


def show(value: Fraction) -> str:
    """`value` as text: whole numbers exactly, others as a decimal rounded to 12 significant digits, never with an
    exponent."""
    if value.denominator == 1:
        return str(value.numerator)
    with decimal.localcontext(prec=SHOWN_DIGITS):
        rounded = decimal.Decimal(value.numerator) / decimal.Decimal(value.denominator)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _tokens(text: str) -> list[str]:
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"an expression has at most {MAX_LENGTH} characters, this one has {len(text)}")
    tokens: list[str] = []
    text, at = text.rstrip(), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadExpression(f"cannot read {text[at:].lstrip()[:1]!r}; use numbers, + - * / // % ** and brackets")
        tokens.append(found[1] or found[2])
        at = found.end()
    if not tokens:
        raise BadExpression("the expression is empty")
    return tokens


class _Reader:
    """Recursive descent over the tokens; each method reads one level of the grammar."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        if self.at == len(self.tokens):
            raise BadExpression("the expression ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while self.peek in ("+", "-"):
            operator = self.take()
            right = self.product(depth)
            value = _bounded(value + right if operator == "+" else value - right)
        return value

    def product(self, depth: int) -> Fraction:
        value = self.signed(depth)
        while self.peek in ("*", "/", "//", "%"):
            operator = self.take()
            value = _bounded(_product(value, operator, self.signed(depth)))
        return value

    def signed(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise BadExpression(f"nested deeper than {MAX_DEPTH}")
        if self.peek in ("+", "-"):
            sign = self.take()
            value = self.signed(depth + 1)
            return value if sign == "+" else -value
        return self.power(depth)

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth)
        if self.peek != "**":
            return base
        self.take()
        return _power(base, self.signed(depth + 1))

    def atom(self, depth: int) -> Fraction:
        token = self.take()
        if token == "(":  # noqa: S105 (a bracket, not a secret)
            value = self.sum(depth + 1)
            if self.peek != ")":
                raise BadExpression("a bracket is not closed")
            self.take()
            return value
        if token[0] not in "0123456789.":
            raise BadExpression(f"unexpected {token!r}")
        return _bounded(Fraction(token))


def _product(left: Fraction, operator: str, right: Fraction) -> Fraction:
    if operator == "*":
        return left * right
    if right == 0:
        raise BadExpression("division by zero")
    match operator:
        case "/":
            return left / right
        case "//":
            return Fraction(left // right)
        case _:
            return left % right


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise BadExpression("an exponent must be a whole number")
    if base == 0 and exponent < 0:
        raise BadExpression("division by zero")
    if abs(base) not in (0, 1) and abs(exponent.numerator) * _bits(base) > MAX_BITS:
        raise BadExpression("the result is too large")
    return _bounded(Fraction(base**exponent.numerator))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise BadExpression("the result is too large")
    return value
