"""Mutants of gpt-oss: its vocabulary file, what is rendered, and how a reply is read."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def ranks(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the vocabulary file."""
    return Mutant(name, "models/harmony_ranks.py", snippet, replacement, f"tests/models/test_harmony_ranks.py::{test}")


def shown(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of rendering."""
    return Mutant(name, "render/harmony.py", snippet, replacement, f"tests/render/test_harmony.py::{test}")


def reply(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of a reply."""
    return Mutant(name, "render/harmony_reply.py", snippet, replacement, f"tests/render/test_harmony_reply.py::{test}")


DROPPED = "test_reasoning_is_left_out_as_the_library_does"
RUNS = "test_runs_tell_content_from_scaffold_to_the_token"
STRAY = "test_what_has_no_proper_header_is_content_as_it_stands"
NAMELESS = "test_a_call_that_names_no_recipient_properly_has_no_name"
OPEN = "test_a_call_that_does_not_end_in_call_is_unclosed_or_cut"
FOREIGN = "test_a_call_to_what_was_not_offered_there_does_not_run"

MUTANTS = [
    ranks(
        "any vocabulary is taken",
        ".hexdigest() != RANKS_SUM:",
        '.hexdigest() == "":',
        "test_another_vocabulary_is_refused_before_anything_is_written",
    ),
    ranks(
        "a damaged file is kept",
        "if not path.is_file() or path.read_bytes() != data:",
        "if not path.is_file():",
        "test_a_damaged_file_is_written_anew_and_a_whole_one_is_left_alone",
    ),
    ranks(
        "a spelled marker is enough",
        "    if not all(marker.encode() in tokenizer_json for marker in _MARKERS):\n        return False\n",
        "    return all(marker.encode() in tokenizer_json for marker in _MARKERS)\n",
        "test_gpt_oss_is_known_by_its_added_tokens",
    ),
    shown("reasoning is never dropped", "if not spoken or spoken[-1] != _FINAL:", "if True:", DROPPED),
    shown("all reasoning is dropped", "at > first or head != _ANALYSIS", "head != _ANALYSIS", DROPPED),
    shown(
        "reasoning is dropped before calls, too", "if not spoken or spoken[-1] != _FINAL:", "if not spoken:", DROPPED
    ),
    shown("a preamble is a final text", "yield _PREAMBLE if message.tool_calls else _FINAL", "yield _FINAL", DROPPED),
    shown("a later text is no content", "RunKind.CONTENT] * len(content)", "RunKind.SCAFFOLD] * len(content)", RUNS),
    shown(
        "instructions begin a token too late",
        "if begin < end and at > start else RunKind.SCAFFOLD",
        "if begin < end and begin >= start + 1 else RunKind.SCAFFOLD",
        RUNS,
    ),
    shown(
        "a returned turn gets an end",
        "if last_id != self._end and last_id not in self._info.stop_ids:",
        "if last_id != self._end:",
        "test_a_turn_that_ended_in_nothing_gets_a_forced_end",
    ),
    shown(
        "an ended message gets another end",
        "if last_id != self._end and last_id not in self._info.stop_ids:",
        "if last_id not in self._info.stop_ids:",
        "test_a_turn_that_ended_in_nothing_gets_a_forced_end",
    ),
    shown(
        "a built-in name hides an offered tool",
        " and all(tool.name != name for tool in tools)",
        "",
        "test_an_offered_tool_may_have_the_name_of_a_built_in_one",
    ),
    shown(
        "the configuration is not in the hash",
        "        config.effort,\n        config.identity,",
        "        config.identity,",
        "test_each_setting_is_in_the_template_hash",
    ),
    reply(
        "a foreign role speaks",
        "        if match is None:\n            raise _Foreign",
        "        if False:\n            raise _Foreign",
        STRAY,
    ),
    reply("the role may go on", "if text and not text[:1].isspace():", "if False:", NAMELESS),
    reply("any word may follow the role", "if not all(word.startswith(_TO) for word in words):", "if False:", STRAY),
    reply(
        "any channel will do",
        '_CHANNEL = re.compile(rb"(analysis|commentary|final)',
        '_CHANNEL = re.compile(rb"(\\\\w+)',
        STRAY,
    ),
    reply("two recipients will do", 'if len(named) > 1 or b"" in named:', "if False:", NAMELESS),
    reply("a recipient behind the type will do", "if kinds and words[-1].startswith(_TO):", "if False:", NAMELESS),
    reply(
        "a call needs no recipient",
        'elif section.end is Mark.CALL and header.channel != "final":',
        "elif False:",
        NAMELESS,
    ),
    reply(
        "an open call runs",
        "status = None if section.end is Mark.CALL else",
        "status = None if section.body else",
        OPEN,
    ),
    reply("an ended call counts as cut", "if cut and section.end is None else", "if cut else", OPEN),
    reply(
        "any channel takes calls", 'if name == recipient or channel != "commentary":', "if name == recipient:", FOREIGN
    ),
    reply(
        "a bare name is a function",
        'if name == recipient or channel != "commentary":',
        'if channel != "commentary":',
        FOREIGN,
    ),
    reply(
        "a call that is no text loses its name",
        "return msgspec.structs.replace(found, name=name)",
        "return found",
        "test_bytes_that_are_no_text_are_kept",
    ),
    reply(
        "text behind an end is lost",
        "                if at > start:\n                    yield",
        "                if at < start:\n                    yield",
        "test_what_stands_behind_a_call_is_read_on",
    ),
]
