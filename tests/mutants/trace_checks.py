"""Mutants of the record: what must hold of a node before it enters a graph."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

GRAPH, CHECKS = "tests/trace/test_graph.py", "tests/trace/test_checks.py"
ADD = f"{GRAPH}::test_what_breaks_an_invariant_is_refused_and_changes_nothing"
MANY = f"{CHECKS}::test_each_rule_over_many_nodes"


def node(name: str, snippet: str, replacement: str, case: str) -> Mutant:
    """A rule of one new node."""
    return Mutant(f"one node: {name}", "trace/checks.py", snippet, replacement, f"{ADD}[{case}]")


def columns(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of many stored nodes."""
    return Mutant(f"many nodes: {name}", "trace/checks.py", snippet, replacement, test)


NODE = [
    node(
        "types",
        "if not (token_ids.dtype == runs.dtype == rescored.dtype == versions.dtype == segments.dtype == _INT32):",
        "if False:",
        "ids of another type",
    ),
    node("kind of a run", "kind not in _KINDS or count <= 0", "count <= 0", "kind 4"),
    node("positive runs", "kind not in _KINDS or count <= 0", "kind not in _KINDS", "negative run"),
    node("runs cover the ids", "if covered != len(token_ids):", "if False:", "runs too short"),
    node("ids below 0", "if covered and token_ids.min() < 0:", "if False:", "negative id"),
    node("logprobs at all", "        _check_logprobs(logprobs, sampled)\n", "        pass\n", "a logprob short"),
    node("type of logprobs", "logprobs.dtype != _FLOAT32 or len", "len", "logprobs in double"),
    node("one logprob each", " or len(logprobs) != sampled:", ":", "a logprob short"),
    node("logprobs above 0", "values.max() <= LOGPROB_SLACK and ", "", "logprob above 0"),
    node("logprobs of -inf", " and values.min() > -np.inf", "", "logprob -inf"),
    node("rescored has logprobs", "    if logprobs is None:\n", "    if False:\n", "rescored without logprobs"),
    node("rescored from 0", "rescored[0] < 0 or ", "", "rescored before the start"),
    node("rescored to the end", "rescored[-1] >= sampled or ", "", "rescored behind the end"),
    node("rescored rises", " or bool((rescored[1:] <= rescored[:-1]).any())", "", "rescored twice"),
    node("versions", '    _check_spans("versions", versions, sampled)\n', "", "versions too short"),
    node("segments", '    _check_spans("segments", segments, sampled)\n', "", "segments too long"),
    node("values of spans", "value < 0 or count <= 0", "count <= 0", "negative version"),
    node("counts of spans", "value < 0 or count <= 0", "value < 0", "versions that cancel out"),
    node("spans cover the sampled", "    if covered != sampled:\n", "    if False:\n", "versions too short"),
]

COLUMNS = [
    columns(
        "a row each",
        "counts.shape != (len(texts), TABLE_WIDTH) or ",
        "",
        f"{CHECKS}::test_the_table_has_a_row_for_each_message",
    ),
    columns("no negative count", " or counts[:, TOKENS:].min(initial=0) < 0", "", f"{MANY}[does not fit the messages]"),
    columns(
        "counts fit the columns",
        "if totals[kind] != len(columns[name]):",
        "if False:",
        f"{MANY}[does not fit the column 'tokens']",
    ),
    columns(
        "counts do not wrap",
        "ends = counts.cumsum(axis=0, dtype=np.int64)",
        "ends = counts.cumsum(axis=0, dtype=np.int32)",
        f"{CHECKS}::test_counts_that_would_wrap_in_32_bits_do_not_fit",
    ),
    columns("kinds of runs", " and kinds.max(initial=0) <= RunKind.FORCED", "", f"{MANY}[unknown kind of run]"),
    columns("positive runs", "(lengths.min(initial=1) > 0,", "(True,", f"{MANY}[a run is empty]"),
    columns(
        "runs cover the ids",
        "(_totals(lengths, run_ends) == ends[:, TOKENS]).all()",
        "True",
        f"{MANY}[runs do not cover]",
    ),
    columns(
        "the sampled count",
        "(_totals(sampled_runs, run_ends) == ends[:, SAMPLED]).all()",
        "True",
        f"{MANY}[another count of sampled tokens]",
    ),
    columns("ids below 0", 'columns["tokens"].min(initial=0) >= 0', "True", f"{MANY}[a token id is negative]"),
    columns(
        "one logprob each",
        "((logprob_rows == sampled) | (logprob_rows == 0)).all()",
        "True",
        f"{CHECKS}::test_half_the_logprobs_are_refused",
    ),
    columns("finite logprobs", '_are_logprobs(columns["logprobs"])', "True", f"{MANY}[a logprob is not finite]"),
    columns(
        "rescored positions",
        "not len(rescored) or _rescored_fit(rescored, counts)",
        "True",
        f"{MANY}[rescored positions do not rise]",
    ),
    columns("rescored rises", ".all() and rises.all())", ".all())", f"{MANY}[rescored positions do not rise]"),
    columns(
        "rescored has logprobs",
        "counts[owner, LOGPROBS]",
        "counts[owner, SAMPLED]",
        f"{CHECKS}::test_rescored_positions_need_logprobs",
    ),
    columns(
        "versions",
        "_covers(versions, counts[:, VERSIONS], ends[:, VERSIONS], sampled)",
        "True",
        f"{MANY}[versions do not cover]",
    ),
    columns(
        "segments",
        "_covers(segments, counts[:, SEGMENTS], ends[:, SEGMENTS], sampled)",
        "True",
        f"{MANY}[segments do not cover]",
    ),
    columns("values of spans", "spans[:, 0].min() >= 0 and ", "", f"{CHECKS}::test_spans_hold_no_negative_value"),
    columns("counts of spans", "spans[:, 1].min() > 0 and ", "", f"{CHECKS}::test_spans_that_cancel_out_do_not_cover"),
    columns("known origins", " and origins.max(initial=0) < len(ORIGINS)", "", f"{MANY}[unknown origin]"),
    columns(
        "only the policy samples",
        "((sampled == 0) | (origins == POLICY)).all()",
        "True",
        f"{CHECKS}::test_only_the_policy_samples_among_many",
    ),
    columns(
        "parents come before",
        "if not ROOT <= parent < node:",
        "if False:",
        f"{MANY}[parent 1 of node 1 does not come before it]",
    ),
    columns(
        "forks have reasons",
        "if text.fork is None and parent in seen:",
        "if False:",
        f"{MANY}[forks at -1 without a reason]",
    ),
    columns("origins agree", "if text.origin is not ORIGINS[origin]:", "if False:", f"{MANY}[of another in the table]"),
    columns(
        "marks on turns",
        "            check_mark(text.mark, text.origin)\n",
        "",
        f"{CHECKS}::test_only_turns_of_the_policy_are_marked",
    ),
    columns(
        "redacted text",
        " or text.message != Message(role=text.message.role)",
        "",
        f"{CHECKS}::test_what_is_marked_redacted_holds_neither_text_nor_ids[0]",
    ),
    columns(
        "redacted ids",
        "(tokens or text.message",
        "(text.message",
        f"{CHECKS}::test_what_is_marked_redacted_holds_neither_text_nor_ids[1]",
    ),
]

MUTANTS = [*NODE, *COLUMNS]
