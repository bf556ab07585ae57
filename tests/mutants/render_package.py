"""Mutants of the renderer over another package: what its guards hold."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def guard(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of content."""
    return Mutant(name, "render/package_guard.py", snippet, replacement, f"tests/render/test_package_guard.py::{test}")


def reply(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of calls."""
    return Mutant(name, "render/package_reply.py", snippet, replacement, f"tests/render/test_package_reply.py::{test}")


def whole(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the renderer."""
    return Mutant(name, "render/renderers_package.py", snippet, replacement, f"tests/render/{test}")


def masks(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the tokenizer that the package is given."""
    file, tests = "render/package_tokenizer.py", "tests/render/test_package_tokenizer.py"
    return Mutant(name, file, snippet, replacement, f"{tests}::{test}")


SAME = "test_a_reply_is_the_message_that_we_read"
RUNS = "test_no_call_runs_that_ours_would_not_run"
REPAIRED = "test_a_repaired_call_does_not_run"
MASKED = "test_masked_text_makes_no_control_token_and_spells_what_it_was"
CUT = "test_package_guard.py::test_a_cut_turn_that_is_not_closed_or_closed_with_more"

MUTANTS = [
    guard("marks may be missing", "len(rendered.is_content) != total", "False", "test_tokens_without_marks"),
    guard("owners may be missing", "len(rendered.message_indices) != total", "False", "test_tokens_without_marks"),
    guard(
        "a token may have no message",
        "if len(given) and (given.min() < -1 or given.max() >= self.count):",
        "if False:",
        "test_tokens_of_a_message_that_is_not_there",
    ),
    guard("owners may step back", "if len(back):", "if False:", "test_tokens_out_of_order"),
    guard("a message may have no tokens", "if len(missing):", "if False:", "test_a_message_that_is_left_out"),
    guard(
        "content may be a control token",
        "if owner >= len(messages) or messages[owner].role is not Role.ASSISTANT:",
        "if False:",
        "test_a_control_token_marked_as_content",
    ),
    guard(
        "control tokens are not compared",
        "if found == list(expected):",
        "if True:",
        "test_a_control_token_that_is_lost",
    ),
    guard("texts may be left out", "if lost is not None:", "if False:", "test_a_text_that_is_left_out"),
    guard("calls may be left out", "yield from _strings(call.arguments)", "pass", "test_a_call_that_is_left_out"),
    guard(
        "tokens may be unknown",
        "if len(ids) and (ids.min() < 0 or ids.max() >= len(self._is_control)):",
        "if False:",
        "test_tokens_that_the_tokenizer_does_not_have",
    ),
    reply("reasoning is not looked at", "if inside:\n", "if False:\n", SAME),
    reply("a cut call is unclosed", "ParseStatus.CUT if cut else ParseStatus.UNCLOSED", "ParseStatus.UNCLOSED", SAME),
    reply("an open call is read", 'if call.status == "unclosed_block" or (', "if (", SAME),
    reply(
        "calls may nest",
        "if bisect_left(openers, start + 1) == bisect_left(openers, end)  # none opens inside it",
        "if True",
        RUNS,
    ),
    reply("what is passed over is forgotten", "sorted([*listed, *passed],", "sorted([*listed],", RUNS),
    reply("the package's reading is enough", "if same or read.status is not ParseStatus.OK:", "if True:", REPAIRED),
    reply(
        "what the package does not take runs",
        "return replace(ours, status=status, error",
        "return replace(ours, error",
        "test_what_the_package_does_not_take_does_not_run",
    ),
    reply(
        "the two do not differ in sight",
        'error=f"{ours.error} ({PACKAGE} took it)"',
        "error=ours.error",
        "test_where_the_package_takes_a_call_and_we_do_not_the_error_says_so",
    ),
    masks("nothing is masked", "        if not starts:", "        if True:", MASKED),
    masks("overlaps are not masked", 'f"(?={', 'f"(?:{', "test_every_spelling_is_masked_where_they_overlap"),
    whole(
        "a bridge may give nothing",
        "if rendered is None:\n            roles",
        "if False:\n            roles",
        "test_renderers_package.py::test_a_bridge_that_would_render_anew_is_refused",
    ),
    whole(
        "history may change",
        "if rendered.token_ids[: len(held)] != held:",
        "if False:",
        "test_package_guard.py::test_a_history_that_is_changed",
    ),
    whole("a cut turn may stay open", "if close not in self._info.stop_ids:", "if False:", CUT),
    whole("a cut turn may get more", "if not np.array_equal(owned.ids[1:], ", "if np.array_equal(1, ", CUT),
    whole(
        "tools may be left out",
        "if tool.name not in text:",
        "if False:",
        "test_package_guard.py::test_tools_that_are_left_out",
    ),
    whole(
        "blocks are passed on",
        '"content": message_text(message)}',
        '"content": message.content}',
        "test_renderers_package.py::test_content_that_is_no_text_is_refused",
    ),
]
