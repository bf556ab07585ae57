"""Llama 3.2 and 4: the reply is a list of Python calls, ``[f(a=1, b="x"), g()]``, in Llama 4 perhaps between
``<|python_start|>`` and ``<|python_end|>``.

Nothing is ever evaluated. A lexer takes only names, plain strings, numbers and brackets, at most `MAX_DEPTH` deep; a
reader for lists of calls stands on it: keyword arguments only, each once, and values that are strings, numbers,
``True``, ``False``, ``None``, lists, and dicts with string keys. Only the text of one string at a time goes through
`ast.literal_eval`, and only when it has no prefix, no raw line end and no escape that Python does not know. What is
not in this form is one malformed attempt; numbers beyond 64 bits are `bad_arguments`.

What the reply says outside reasoning is calls where, white space aside, it starts with a bracket, a name and a
parenthesis; then all of it is read. Any other list is content, and so is a list with text before it. Between Llama
4's markers all is calls.

Source: the model cards of Llama 3.2 and Llama 4 (section on zero-shot function calling); vLLM's ``pythonic`` and
``llama4_pythonic`` parsers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Set
from typing import Any

from rollbook.render.calls import MAX_DEPTH, Attempt, Refused, holds_big, read_json
from rollbook.render.formats.form import Body, Form, Found, malformed, raw_of, refused
from rollbook.trace.message import ParseStatus

__all__ = ["LlamaPythonic"]

_ESCAPE = (
    r"\\(?:[\\'\"abfnrtv]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4})"
)
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.]))
    |(?P<string>"(?:[^"\\\r\n\0]++|{_ESCAPE})*+"|'(?:[^'\\\r\n\0]++|{_ESCAPE})*+')
    |(?P<mark>[\[\](){{}},=:]))""",
    re.VERBOSE,
)
_STARTS = re.compile(rb"\s*\[\s*[^\W\d][\w.]*\s*\(")
_CONSTANTS: dict[str, Any] = {"None": None, "True": True, "False": False}


class LlamaPythonic(Form):
    """The reply is a list of Python calls."""

    opens = "<|python_start|>"
    closes = "<|python_end|>"

    def find(self, body: Body) -> list[Found]:
        raw = raw_of(body)
        try:
            return _Reader(raw.decode("utf-8")).calls()
        except UnicodeDecodeError as problem:
            return [refused(raw, malformed(str(problem)))]
        except Refused as why:
            return [refused(raw, why)]

    def unmarked(self, content: bytes, names: Set[str]) -> bool:
        return _STARTS.match(content) is not None


class _Reader:
    """Reads from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._kind, self._word, self._start, self._end = "", "", 0, 0
        self._step()

    def calls(self) -> list[Found]:
        """The whole text as a list of calls."""
        found: list[Found] = []
        self._listed("[", "]", lambda: found.append(self._call()))
        if self._kind != "end":
            raise malformed(f"something stands behind the list (character {self._start})")
        if not found:
            raise malformed("the list is empty")
        return found

    def _call(self) -> Found:
        start, name = self._start, self._take("name")
        arguments: dict[str, Any] = {}

        def argument() -> None:
            key = self._take("name")
            self._take("mark", "=")
            if key in arguments:
                raise malformed(f"the argument {key[:60]!r} stands twice")
            arguments[key] = self._value()

        end = self._listed("(", ")", argument)
        big = holds_big(arguments)

        def read() -> Attempt:
            if big:
                why = "a number is too large (more than 64 bits)"
                raise Refused(ParseStatus.BAD_ARGUMENTS, why, name=name)
            return Attempt(name=name, arguments=arguments)

        return Found(self._text[start:end].encode(), read)

    def _value(self) -> Any:
        match self._kind:
            case "string":
                return ast.literal_eval(self._take("string"))
            case "number":
                return read_json(self._take("number"))
            case "name" if self._word in _CONSTANTS:
                return _CONSTANTS[self._take("name")]
            case "mark" if self._word == "[":
                items: list[Any] = []
                self._listed("[", "]", lambda: items.append(self._value()))
                return items
            case _:
                pairs: dict[str, Any] = {}
                self._listed("{", "}", lambda: self._pair(pairs))
                return pairs

    def _pair(self, pairs: dict[str, Any]) -> None:
        key = ast.literal_eval(self._take("string"))
        self._take("mark", ":")
        if key in pairs:
            raise malformed(f"the key {key[:60]!r} stands twice")
        pairs[key] = self._value()

    def _listed(self, opens: str, closes: str, item: Callable[[], None]) -> int:
        """Items between brackets, commas between them and none behind the last; where the bracket ends."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise malformed(f"it nests deeper than {MAX_DEPTH}")
        self._take("mark", opens)
        if (self._kind, self._word) != ("mark", closes):
            item()
            while (self._kind, self._word) == ("mark", ","):
                self._step()
                item()
        self._depth -= 1
        end = self._end
        self._take("mark", closes)
        return end

    def _take(self, kind: str, word: str | None = None) -> str:
        """The token at hand, which must be of this kind; then the next is at hand."""
        if self._kind != kind or (word is not None and self._word != word):
            shown = self._word[:40] if self._kind != "end" else "the end"
            raise malformed(f"{word or 'a ' + kind} expected, not {shown!r} (character {self._start})")
        taken = self._word
        self._step()
        return taken

    def _step(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            rest = self._text[self._at : self._at + 40].strip(" \t\r\n")
            if rest or self._text[self._at :].strip(" \t\r\n"):
                raise malformed(f"no literal starts with {rest[:20]!r} (character {self._at})")
            self._kind, self._word, self._start = "end", "", len(self._text)
            return
        self._kind, self._word = found.lastgroup, found[found.lastgroup]
        self._start, self._end = found.span(found.lastgroup)
        self._at = found.end()
