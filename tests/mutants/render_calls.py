"""Mutants of reading a sampled reply: markers, reasoning, and the status of each call."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def calls(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of one call's body."""
    return Mutant(name, "render/calls.py", snippet, replacement, f"tests/render/test_calls.py::{test}")


def reply(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of a whole reply."""
    where = test if "." in test else f"test_reply.py::{test}"
    return Mutant(name, "render/formats/reply.py", snippet, replacement, f"tests/render/formats/{where}")


def form(name: str, family: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of one family, or of the types that raw text gets."""
    return Mutant(
        name, f"render/formats/{family}.py", snippet, replacement, f"tests/render/formats/test_{family}.py::{test}"
    )


EXACT = "test_what_is_not_exact_json"
STATUS = "test_the_first_check_that_fails_gives_the_status"
DEPTH = "test_calls_nest_as_deep_as_the_bound_and_no_deeper"
CUT = "test_a_cut_inside_the_last_value_is_cut_and_not_malformed"
DRAFT = "test_reasoning_is_split_off_before_calls_are_read"
SECTION = "test_calls_stand_in_their_section"
AMBIGUOUS = "test_a_delimiter_on_its_own_line_is_ambiguous"
OPEN = "test_an_open_call_is_unclosed_or_cut"

MUTANTS = [
    calls("NaN is taken", "parse_constant=_refuse_constant", "parse_constant=float", EXACT),
    calls("a key may stand twice", "if len(made) < len(pairs):", "if False:", EXACT),
    calls("calls nest without a bound", "and _depth(text) > MAX_DEPTH:", "and False:", DEPTH),
    calls("calls nest one deeper", "and _depth(text) > MAX_DEPTH:", "and _depth(text) > MAX_DEPTH + 1:", DEPTH),
    calls(
        "what is no object is read on",
        'raise Refused(ParseStatus.NOT_AN_OBJECT, "the tool call is JSON but not an object")',
        "value = {}",
        STATUS,
    ),
    calls("a name may be anything", "if not isinstance(name, str):", "if False:", STATUS),
    calls("arguments may be anything", "if not isinstance(arguments, dict):", "if arguments is None:", STATUS),
    calls("further keys are passed over", "if attempt.surplus is not None:", "if False:", STATUS),
    calls(
        "a tool's name is guessed",
        "if tool.name == attempt.name)",
        "if tool.name == attempt.name.strip().lower())",
        STATUS,
    ),
    calls("arguments need not fit the schema", "if problem is not None:", "if False:", STATUS),
    calls("numbers have no bound", "if holds_big(fields):", "if False:", STATUS),
    calls(
        "a schema fetches what it refers to",
        "tool.parameters, registry=Registry())",
        "tool.parameters)",
        "test_no_connection_is_made_for_a_reference",
    ),
    calls("an error text has no bound", "str(refused)[:MAX_ERROR]", "str(refused)", "test_error_texts_are_short"),
    reply("an open call is read", "ParseStatus.CUT if cut else ended)", "ParseStatus.OK)", "test_hermes.py::" + OPEN),
    reply("a cut is not told", "ParseStatus.CUT if cut else ended)", "ended)", CUT),
    reply(
        "a second opening closes the first",
        "self._close(ParseStatus.OK if self._form.closes is None else ParseStatus.UNCLOSED)",
        "self._close(ParseStatus.OK)",
        "test_a_second_opening_leaves_the_first_unclosed",
    ),
    reply("calls inside reasoning are ok", "ParseStatus.INSIDE_REASONING if self._until else status", "status", DRAFT),
    reply(
        "a spelled marker is a marker",
        "for marker in markers if marker not in added)",
        "for marker in markers)",
        "test_where_markers_are_tokens_their_spelling_is_text",
    ),
    reply(
        "reasoning opens inside a call",
        "and not self._until and self._body is None:",
        "and not self._until:",
        "test_hermes.py::test_reasoning_markers_inside_a_call_are_text",
    ),
    reply(
        "any marker ends reasoning",
        "self._until = frozenset((self._markers.reasoning[part],))",
        "self._until = frozenset(self._markers.reasoning.values())",
        "test_only_its_own_marker_ends_reasoning",
    ),
    Mutant(
        "bytes that are no text are lost",
        "render/reply_message.py",
        'raw=None if "\\ufffd" not in text or text.encode() == content else content',
        "raw=None",
        "tests/render/test_reply_message.py::test_bytes_are_kept_where_they_are_no_text",
    ),
    reply(
        "a call may stand outside its section",
        "misplaced = self._form.section is not None and not self._in_section",
        "misplaced = False",
        SECTION,
    ),
    reply(
        "text between the calls of a section is lost",
        "and not (self._in_section and data.isspace()):",
        "and not self._in_section:",
        SECTION,
    ),
    reply("a section's white space is content", "and not (self._in_section and data.isspace()):", ":", SECTION),
    reply(
        "an id may stand twice",
        "yield made if made.id not in seen else _twice(made, own)",
        "yield made",
        "test_an_id_that_stands_twice",
    ),
    reply(
        "a call inside an open value runs",
        "if part in self._markers.quotable and self._open:",
        "if False:",
        "test_qwen_xml.py::test_calls_inside_a_value_never_run_where_markers_are_text",
    ),
    reply(
        "a call quoted in a string runs",
        "if not self._quoted or",
        "if True or",
        "test_calls_quoted_in_a_value_never_run_where_markers_are_text",
    ),
    reply(
        "an unmarked call of a cut reply runs",
        "_Call([content], ParseStatus.CUT if cut else ParseStatus.OK",
        "_Call([content], ParseStatus.OK",
        "test_llama_json.py::test_a_cut_reply",
    ),
    form("a stray delimiter is passed over", "qwen_xml", "if stray is not None:", "if False:", AMBIGUOUS),
    form("a function may end twice", "qwen_xml", "and _END.search(text, at + 1):", "and False:", AMBIGUOUS),
    form("a parameter may stand twice", "qwen_xml", "if key in values:", "if False:", "test_what_is_not_in_the_form"),
    form(
        "markers inside a value are passed over",
        "glm",
        "if framed and",
        "if False and",
        "test_markers_inside_a_value_are_ambiguous",
    ),
    form("text between pairs is lost", "glm", " or any(gaps):", ":", "test_what_does_not_run"),
    form("a key of a pair may stand twice", "glm", "if key in values:", "if False:", "test_what_does_not_run"),
    form(
        "a wrong id names a tool",
        "kimi",
        "functions\\.(",
        "(?:functions\\.)?(",
        "test_an_id_without_its_separators_names_no_tool",
    ),
    form("any id is taken", "mistral", "or _ID.fullmatch(native) is None:", "or False:", "test_lists_that_do_not_run"),
    form("any kind of call is a function", "deepseek", 'kind != "function" or', "", "test_a_fenced_block"),
    form(
        "every JSON reply is a call",
        "llama_json",
        "if _STARTS.match(content) is None:",
        "if False:",
        "test_other_replies_are_content",
    ),
    form(
        "an argument may stand twice",
        "llama_pythonic",
        "if key in arguments:",
        "if False:",
        "test_what_is_no_list_of_calls",
    ),
    form(
        "lists nest without a bound",
        "llama_pythonic",
        "if self._depth > MAX_DEPTH:",
        "if False:",
        "test_lists_nest_as_deep_as_the_bound",
    ),
    form(
        "numbers of Python calls have no bound",
        "llama_pythonic",
        "if big:",
        "if False:",
        "test_numbers_that_are_too_large",
    ),
    form(
        "untyped text gets a type",
        "typed",
        'return found or {"string"}',
        "return found or set(_ORDER)",
        "test_the_table",
    ),
    form(
        "text comes before types", "typed", '"object", "array", "string")', '"object", "array")[::-1]', "test_the_table"
    ),
    form(
        "large integers are rounded or kept",
        "typed",
        "and not holds_big(value := read_json(text)):",
        "and (value := read_json(text)) is not None:",
        "test_what_fits_nothing_is_told",
    ),
    form("strings inside lists keep their type", "typed", 'if "string" in allowed:', "if True:", "test_the_table"),
    form("a value need not fit its branch", "typed", "if takes.is_valid(value)", "if True", "test_the_table"),
    form(
        "values are compared without their types",
        "readback",
        "json.dumps([name, arguments], sort_keys=True)",
        "str(name)",
        "test_other_calls_are_not_read_back",
    ),
    form(
        "any type beside a call is taken",
        "llama_json",
        '(key, said) != ("type", "function")',
        'key != "type"',
        "test_attempts_that_do_not_run",
    ),
]
