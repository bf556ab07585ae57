"""Mutants of the audit's checks of rendering: what they find, and what they leave unjudged."""

from __future__ import annotations

from tests.mutants import Mutant
from tests.mutants.audit import mutant

__all__ = ["MUTANTS"]

CONTENT = "control.py::test_the_first_node_is_found_too"
OUTSIDE = "control.py::test_what_the_policy_says_and_what_rollbook_adds_is_not_from_outside"
LATER = "begin.py::test_one_later_on_breaks"
SHORT = "separators.py::test_a_generation_prompt_that_is_short_is_found"
LAST = "template.py::test_a_last_turn_that_the_template_has_no_form_for_is_left_out"

MUTANTS: list[Mutant] = [
    mutant(
        "control tokens may be content",
        "control",
        "places: list[int] = content[",
        "places: list[int] = content[:0][",
        CONTENT,
    ),
    mutant(
        "a rewritten turn is text from outside",
        "control",
        "content = np.flatnonzero(kept & (",
        "content = np.flatnonzero((kept | True) & (",
        "control.py::test_a_turn_of_the_policy_that_stands_as_content_keeps_its_control_tokens",
    ),
    mutant(
        "what the template writes is content",
        "control",
        "== RunKind.CONTENT)",
        ">= RunKind.SCAFFOLD)",
        "control.py::test_scaffold_and_sampled_control_tokens_are_no_content",
    ),
    mutant(
        "what Rollbook adds is from outside",
        "control",
        "(Origin.POLICY, Origin.SYNTHETIC)",
        "(Origin.POLICY,)",
        OUTSIDE,
    ),
    mutant(
        "reasoning spells nothing",
        "control",
        'yield message.reasoning or ""',
        'yield ""',
        "control.py::test_reasoning_that_is_given_is_text_from_outside",
    ),
    mutant(
        "any drift forges a control token",
        "control",
        "if not extra:",
        "if not extra and len(reencoder.reencode(kept)) == len(kept):",
        "control.py::test_drift_without_a_new_control_token_is_not_severe",
    ),
    mutant(
        "ordinary tokens make markers in content",
        "markers",
        "sure = count - ordinary[spelled]",
        "sure = count",
        "markers.py::test_a_marker_that_was_read_is_no_text_although_content_spells_it_too",
    ),
    mutant(
        "a token that ends turns is a marker",
        "markers",
        "sorted(reencoder.control_ids - reencoder.info.stop_ids)",
        "sorted(reencoder.control_ids)",
        "markers.py::test_a_token_that_ends_turns_is_no_marker",
    ),
    mutant(
        "the place of a marker is guessed",
        "markers",
        "places[0] if sure == len(places) else None",
        "places[0]",
        "markers.py::test_a_closing_marker_of_nothing_beside_a_call_is_found_without_a_place",
    ),
    mutant(
        "a sampled begin token breaks",
        "begin",
        "& (kinds != RunKind.SAMPLED)",
        "",
        "begin.py::test_one_that_was_sampled_is_the_policys",
    ),
    mutant("a begin token may come later", "begin", "if place >= led:", "if False:", LATER),
    mutant(
        "a doubled begin token is fine",
        "begin",
        "if led != begin.written:",
        "if led < begin.written:",
        "begin.py::test_a_doubled_one_breaks",
    ),
    mutant(
        "a missing begin token is fine",
        "begin",
        "if led != begin.written:",
        "if led > begin.written:",
        "begin.py::test_a_missing_one_breaks",
    ),
    mutant(
        "a marker of turns breaks",
        "begin",
        "if not begin.inside:",
        "if True:",
        "begin.py::test_a_token_that_begins_every_turn_is_judged_at_the_start_only",
    ),
    mutant(
        "the generation prompt is not compared",
        "separators",
        "if at.following is not None:\n            parts",
        "if False:\n            parts",
        SHORT,
    ),
    mutant(
        "the last observation is not compared",
        "separators",
        "if not sampled and node in parents:",
        "if not sampled:",
        "separators.py::test_an_observation_at_the_end_is_judged_too",
    ),
    mutant("a prefill is a fault", "separators", "view.runs[0, 0] == RunKind.SCAFFOLD", "False", SHORT),
    mutant(
        "rewritten history is judged as new",
        "separators",
        'return "rewritten"',
        "pass",
        "separators.py::test_history_that_the_template_rewrote_is_not_judged_here",
    ),
    mutant(
        "all boundaries are looked at",
        "separators",
        "spread(len(found), MOST)",
        "range(len(found))",
        "separators.py::test_a_long_trace_is_sampled_and_says_so",
    ),
    mutant(
        "other ids are template drift",
        "template",
        "if stored.text == now:",
        "if ids.tolist() == written.tolist():",
        "template.py::test_other_ids_of_the_same_text_are_no_template_drift",
    ),
    mutant(
        "a cut turn must end",
        "template",
        "return written[:-1] if cut else written",
        "return written",
        "template.py::test_a_last_turn_that_was_cut_is_not_expected_to_end",
    ),
    mutant(
        "a bad last turn takes its branch along",
        "template",
        "if written is None and len(nodes) > 1",
        "if False and len(nodes) > 1",
        LAST,
    ),
    mutant(
        "another template judges",
        "origin",
        "why = why or _foreign(",
        "why = why and _foreign(",
        "origin.py::test_why_tokens_are_foreign",
    ),
    mutant(
        "another tool prompt judges",
        "origin",
        'return "other_tool_prompt"',
        "return None",
        "origin.py::test_why_tokens_are_foreign",
    ),
    mutant(
        "line ends at the seams of a turn are template drift",
        "template",
        "[as_written(trace.graph.messages[node]) for node in nodes]",
        "[trace.graph.messages[node] for node in nodes]",
        "template.py::test_under_the_context_policy_template_only_the_first_branch_differs",
    ),
]
