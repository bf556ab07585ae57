"""Mutants of the context policies: what is shared, what keeps its ids, and what a rollout makes of it."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def path(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of how a path goes on."""
    return Mutant(name, "render/context.py", snippet, replacement, f"tests/render/test_context.py::{test}")


def turn(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of what a rollout records of it."""
    return Mutant(name, "rollout/turn.py", snippet, replacement, f"tests/rollout/test_context.py::{test}")


def audited(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the check of reasoning in context."""
    return Mutant(name, "audit/context.py", snippet, replacement, f"tests/audit/test_context.py::{test}")


CLOSE = "test_a_close_goes_with_a_turn_that_keeps_its_ids_and_not_with_one_that_is_written_anew"
SYNTHETIC = "test_a_rewritten_turn_is_synthetic_and_names_what_it_stands_for"
ANEW = "test_what_the_template_drops_is_written_anew_from_there_on"
ORDER = "test_tools_are_the_same_whatever_the_order_of_their_keys"
REFUSED = "test_a_shape_that_the_template_refuses_ends_typed_without_retry_reward_or_vote"

MUTANTS = [
    path(
        "keep looks at history",
        "if policy is ContextPolicy.KEEP and not changed:",
        "if False:",
        "test_under_keep_history_is_not_looked_at",
    ),
    path("template keeps every turn", "fixed = turns if policy is ContextPolicy.KEEP else odd", "fixed = turns", ANEW),
    path(
        "keep writes turns anew where tools change",
        "fixed = turns if policy is ContextPolicy.KEEP else odd",
        "fixed = odd",
        "test_other_tools_make_a_branch_of_their_own",
    ),
    path("a new spelling of the keys is used", "else tools if changed else past.tools", "else tools", ORDER),
    path(
        "the order of tools does not count",
        "canonical_bytes([tool.openai() for tool in other])",
        "canonical_bytes([tool.openai() for tool in sorted(other, key=lambda each: each.name)])",
        ORDER,
    ),
    path(
        "other tools stand in an old tool prompt",
        "if changed and renderer.info.tool_prompt is not None:",
        "if False:",
        "test_other_tools_under_a_tool_prompt_are_refused",
    ),
    path(
        "the ids of what is the same are rendered",
        "old.stored() if old.text == old.now else",
        "old.stored() if False else",
        "test_behind_a_fork_a_turn_of_the_same_text_keeps_its_ids_as_content",
    ),
    path(
        "sampled tokens stand twice",
        "kinds[kinds == RunKind.SAMPLED] = RunKind.CONTENT",
        "pass",
        "test_behind_a_fork_a_turn_of_the_same_text_keeps_its_ids_as_content",
    ),
    path("a close does not go with its turn", "if stored else None", "if False else None", CLOSE),
    path("a close stays behind a turn that is written anew", "if stored else None", "if True else None", CLOSE),
    path(
        "bytes that are no text are written anew",
        "(message.raw is None and all(calls))",
        "all(calls)",
        "test_bytes_that_are_no_text_keep_their_ids",
    ),
    path(
        "text that is left out ends the rollout",
        "        if not alone:\n",
        "        if True:\n",
        "test_text_that_the_template_would_leave_out_keeps_its_ids",
    ),
    turn("a rewritten turn is the policy's", "return Origin.SYNTHETIC", "return Origin.POLICY", SYNTHETIC),
    turn(
        "a rewrite names nothing",
        "if target is not None:\n            state",
        "if False:\n            state",
        SYNTHETIC,
    ),
    turn(
        "an observation that ends the rollout makes a branch",
        "    if isinstance(step, Rewrite):\n        await observe",
        "    if False:\n        await observe",
        "test_a_rollout_that_a_limit_ends_stays_on_the_branch_of_its_last_turn",
    ),
    turn(
        "room is reckoned for the old branch",
        "        leaf = int(graph.path(leaf)[step.shared - 1]) if step.shared else ROOT\n    new =",
        "        pass\n    new =",
        "test_room_is_reckoned_for_the_prompt_that_would_be_sent",
    ),
    turn(
        "what the template refuses is lost",
        "state.leaf = state.trace.graph.add(message, parent=state.leaf, origin=_origin(message))",
        "pass",
        REFUSED,
    ),
    audited(
        "reasoning that the template keeps is warned of",
        "if DROPPED in policy.template_findings",
        "if True",
        "test_reasoning_that_is_not_dropped_there_is_fine",
    ),
    audited(
        "the context policy does not count",
        "trace.head.context_policy is not ContextPolicy.KEEP",
        "False",
        "test_reasoning_that_is_not_dropped_there_is_fine",
    ),
    audited(
        "results count as a user message",
        "message.role is Role.USER",
        "message.role is not Role.ASSISTANT",
        "test_reasoning_that_is_not_dropped_there_is_fine",
    ),
]
