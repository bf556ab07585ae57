"""Mutants of reading a sampled reply: markers, reasoning, and the status of each call."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def calls(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of one call's body."""
    return Mutant(name, "render/calls.py", snippet, replacement, f"tests/render/test_calls.py::{test}")


def hermes(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of a whole reply."""
    return Mutant(name, "render/hermes.py", snippet, replacement, f"tests/render/test_hermes.py::{test}")


EXACT = "test_what_is_not_exact_json"
STATUS = "test_the_first_check_that_fails_gives_the_status"
DEPTH = "test_calls_nest_as_deep_as_the_bound_and_no_deeper"
OPEN = "test_an_open_call_is_unclosed_or_cut"

MUTANTS = [
    calls("NaN is taken", "parse_constant=_refuse_constant", "parse_constant=float", EXACT),
    calls("a key may stand twice", "if len(made) < len(pairs):", "if False:", EXACT),
    calls("calls nest without a bound", "and _depth(text) > MAX_DEPTH:", "and False:", DEPTH),
    calls("calls nest one deeper", "and _depth(text) > MAX_DEPTH:", "and _depth(text) > MAX_DEPTH + 1:", DEPTH),
    calls(
        "what is no object is read on",
        'raise _Refused(ParseStatus.NOT_AN_OBJECT, "the tool call is JSON but not an object")',
        "return {}",
        STATUS,
    ),
    calls("a name may be anything", "if not isinstance(name, str):", "if False:", STATUS),
    calls("arguments may be anything", "if not isinstance(arguments, dict):", "if arguments is None:", STATUS),
    calls("further keys are passed over", "if further:", "if False:", STATUS),
    calls("a tool's name is guessed", "if tool.name == name)", "if tool.name == name.strip().lower())", STATUS),
    calls("arguments need not fit the schema", "if problem is not None:", "if False:", STATUS),
    calls("numbers have no bound", "if _holds_big(fields):", "if False:", STATUS),
    calls(
        "a schema fetches what it refers to",
        "tool.parameters, registry=Registry())",
        "tool.parameters)",
        "test_no_connection_is_made_for_a_reference",
    ),
    calls("an error text has no bound", "str(refused)[:MAX_ERROR]", "str(refused)", "test_error_texts_are_short"),
    hermes("an open call is read", "ParseStatus.CUT if cut else ParseStatus.UNCLOSED", "ParseStatus.OK", OPEN),
    hermes("a cut is not told", "ParseStatus.CUT if cut else ParseStatus.UNCLOSED", "ParseStatus.UNCLOSED", OPEN),
    hermes(
        "a second opening closes the first",
        "self.close(ParseStatus.UNCLOSED)",
        "self.close(ParseStatus.OK)",
        "test_a_second_opening_leaves_the_first_unclosed",
    ),
    hermes(
        "calls inside reasoning are ok",
        "ParseStatus.INSIDE_REASONING if self._thinking else status",
        "status",
        "test_calls_inside_reasoning_only_count",
    ),
    hermes(
        "a spelled marker is a marker",
        "for marker in Marker if marker not in added]",
        "for marker in Marker]",
        "test_where_markers_are_tokens_their_spelling_is_text",
    ),
    hermes(
        "reasoning opens inside a call",
        "if not self._thinking and self._body is None:",
        "if not self._thinking:",
        "test_reasoning_markers_inside_a_call_are_text",
    ),
    hermes(
        "bytes that are no text are lost",
        'raw=None if "\\ufffd" not in text or text.encode() == content else content',
        "raw=None",
        "test_bytes_that_are_not_utf8_are_kept",
    ),
]
