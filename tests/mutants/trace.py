"""Mutants of the record."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

GRAPH, CHECKS, WIRE = "tests/trace/test_graph.py", "tests/trace/test_checks.py", "tests/trace/test_wire.py"
SAMPLE, TRACE, ENDING = "tests/trace/test_sample.py", "tests/trace/test_trace.py", "tests/trace/test_ending.py"
REDACT, CALL, INVARIANTS = "tests/trace/test_redact.py", "tests/trace/test_call.py", "tests/trace/test_invariants.py"
ADD = f"{GRAPH}::test_what_breaks_an_invariant_is_refused_and_changes_nothing"
MANY = f"{CHECKS}::test_each_rule_over_many_nodes"
LIES = f"{WIRE}::test_what_names_nothing_is_refused"


def node(name: str, snippet: str, replacement: str, case: str) -> Mutant:
    """A rule of one new node."""
    return Mutant(f"one node: {name}", "trace/checks.py", snippet, replacement, f"{ADD}[{case}]")


def columns(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of many stored nodes."""
    return Mutant(f"many nodes: {name}", "trace/checks.py", snippet, replacement, test)


def graph(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the message graph."""
    return Mutant(f"graph: {name}", "trace/graph.py", snippet, replacement, f"{GRAPH}::{test}")


def trace(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the trace."""
    return Mutant(f"trace: {name}", "trace/trace.py", snippet, replacement, f"{TRACE}::{test}")


def sample(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the samples."""
    return Mutant(f"samples: {name}", "trace/sample.py", snippet, replacement, f"{SAMPLE}::{test}")


def wire(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the wire form."""
    return Mutant(f"wire: {name}", "trace/wire.py", snippet, replacement, f"{WIRE}::{test}")


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
        "((sampled == 0) | (origins == _POLICY)).all()",
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

GRAPHS = [
    graph(
        "parent exists",
        "if not ROOT <= parent < len(self.messages):",
        "if False:",
        "test_what_breaks_an_invariant_is_refused_and_changes_nothing[parent ahead]",
    ),
    graph(
        "only the policy samples",
        "if sampled and origin is not Origin.POLICY:",
        "if False:",
        "test_what_breaks_an_invariant_is_refused_and_changes_nothing[sampled by the environment]",
    ),
    graph(
        "forks have reasons",
        "if fork is None and parent in self._parents:",
        "if False:",
        "test_a_second_child_needs_a_reason",
    ),
    graph(
        "a mark stays",
        "if self._marks.setdefault(node, mark) is not mark:",
        "self._marks[node] = mark\n        if False:",
        "test_marks",
    ),
    graph(
        "marks on nodes",
        "if not 0 <= node < len(self.messages):\n            raise RecordError",
        "if False:\n            raise RecordError",
        "test_marks",
    ),
    graph("marks on turns", "        check_mark(mark, self.origin(node))\n", "", "test_marks"),
    graph("no bare redaction", "if mark is Mark.REDACTED:", "if False:", "test_marks"),
    Mutant(
        "graph: sealed",
        "trace/graph.py",
        "if self.sealed:",
        "if False:",
        f"{INVARIANTS}::test_invariant_7_a_sealed_trace_never_changes",
    ),
    Mutant(
        "fork: drift says where",
        "trace/node.py",
        "if self.reason is ForkReason.DRIFT and None in",
        "if False and None in",
        f"{INVARIANTS}::test_invariant_4_a_drift_says_where_and_both_spellings[position]",
    ),
    Mutant(
        "fork: position",
        "trace/node.py",
        "if self.position is not None and self.position < 0:",
        "if False:",
        f"{INVARIANTS}::test_invariant_4_a_drift_says_where_and_both_spellings[kept]",
    ),
    Mutant(
        "columns: read-only",
        "trace/columns.py",
        "view.flags.writeable = False",
        "pass",
        "tests/trace/test_columns.py::test_views_are_read_only",
    ),
    Mutant(
        "columns: end at their size",
        "trace/columns.py",
        "min(stop, self._size)",
        "stop",
        "tests/trace/test_columns.py::test_a_column_holds_what_was_put_in",
    ),
]

TRACES = [
    trace(
        "first cause wins",
        "        if self.tail.ending is not None:\n            self.note",
        "        if False:\n            self.note",
        "test_the_first_ending_wins_and_later_ones_are_noted",
    ),
    trace(
        "update keeps the ending",
        'if "ending" in fields and self.tail.ending is not None:',
        "if False:",
        "test_the_first_ending_wins_and_later_ones_are_noted",
    ),
    trace(
        "sealing needs an ending",
        "        if self.tail.ending is None:\n            raise",
        "        if False:\n            raise",
        "test_a_trace_without_an_ending_stays_open",
    ),
    trace(
        "sealed",
        "        if self.sealed:\n            raise",
        "        if False:\n            raise",
        "test_a_trace_without_an_ending_stays_open",
    ),
    trace(
        "sealing checks",
        "            self.check()\n",
        "            pass\n",
        "test_calls_and_segments_name_each_other[2-0-gave another node]",
    ),
    Mutant(
        "trace: sealing closes the graph",
        "trace/trace.py",
        "self.sealed = self.graph.sealed = True",
        "self.sealed = True",
        f"{INVARIANTS}::test_invariant_7_a_sealed_trace_never_changes",
    ),
    trace(
        "update checks rewards",
        "            self._check_rewards(tail)\n        self.tail",
        "            pass\n        self.tail",
        "test_a_reward_is_finite[nan]",
    ),
    trace(
        "finite rewards",
        "if not all(map(isfinite, values if tail.reward is None else (*values, tail.reward))):",
        "if False:",
        "test_a_reward_is_finite[inf]",
    ),
    trace(
        "no reward where scoring failed",
        "if tail.scoring.status is ScoringStatus.FAILED and",
        "if False and",
        "test_there_is_no_reward_where_scoring_failed",
    ),
    trace("turn rewards on turns", " or origins[each.node] != _POLICY", "", "test_a_turn_reward_belongs_to_a_turn[0]"),
    trace(
        "turn rewards on nodes",
        "if not 0 <= each.node < len(origins) or origins",
        "if origins",
        "test_a_turn_reward_belongs_to_a_turn[2]",
    ),
    trace(
        "policies of calls",
        "if not 0 <= call.policy < policies:",
        "if False:",
        "test_a_call_names_what_is_there[given0-names policy 1; the table has 1]",
    ),
    trace(
        "prompts of calls",
        "if not ROOT <= call.after < nodes:",
        "if False:",
        "test_a_call_names_what_is_there[given2-comes after node 2; there are 2]",
    ),
    trace(
        "nodes of calls",
        "if call.node is not None and not call.after < call.node < nodes + may_follow:",
        "if False:",
        "test_a_call_names_what_is_there[given4-gave node 3]",
    ),
    trace(
        "nodes of edges",
        "if ref.rollout in (None, self.id) and not",
        "if False and not",
        "test_an_edge_names_what_is_there",
    ),
    trace(
        "what rewrites is not sampled",
        "if ends[source.node] > (ends[source.node - 1] if source.node else 0):",
        "if False:",
        "test_what_rewrites_another_node_is_not_sampled",
    ),
    trace(
        "calls of segments exist",
        "if len(named) and named.max() >= len(self.calls):",
        "if False:",
        "test_calls_and_segments_name_each_other[2-5-names call 5; there are 2]",
    ),
    trace(
        "segments name their call",
        'if (gave[named] != ends.searchsorted(np.arange(len(named)), side="right")).any():',
        "if False:",
        "test_calls_and_segments_name_each_other[2-0-gave another node]",
    ),
    trace(
        "calls stand in segments",
        "if (np.diff(ends, prepend=0)[unnamed] > 0).any():",
        "if False:",
        "test_a_call_that_gave_a_node_stands_in_its_segments",
    ),
    trace(
        "text-only holds no ids",
        "if len(self.graph.tokens) and not self.head.tokens:",
        "if False:",
        "test_a_text_only_trace_holds_no_token_ids",
    ),
]

SAMPLES = [
    sample(
        "seat",
        "if not self.trace.head.agent.trainable:",
        "if False:",
        "test_a_seat_that_does_not_train_and_a_branch_over_length_lose_their_tokens",
    ),
    sample(
        "vote",
        "if self.disposition is not None and not self.disposition.votes:",
        "if False:",
        "test_a_disposition_without_a_vote_trains_nothing",
    ),
    sample(
        "rejected", "if Mark.REJECTED in marks:", "if False:", "test_the_earliest_surviving_branch_owns_a_shared_turn"
    ),
    Mutant(
        "samples: redacted",
        "trace/sample.py",
        "if Mark.REDACTED in marks:",
        "if False:",
        f"{REDACT}::test_its_branch_does_not_train_and_the_count_drops",
    ),
    sample(
        "over length",
        "if self.max_tokens is not None and int",
        "if False and int",
        "test_a_seat_that_does_not_train_and_a_branch_over_length_lose_their_tokens",
    ),
    sample(
        "owned once",
        "            free[branch.nodes] = False\n            trained",
        "            trained",
        "test_the_earliest_surviving_branch_owns_a_shared_turn",
    ),
    sample(
        "lost once",
        "branch.nodes[free[branch.nodes]]",
        "branch.nodes",
        "test_the_earliest_surviving_branch_owns_a_shared_turn",
    ),
    sample(
        "demoted",
        "if mark is Mark.DEMOTED",
        "if False",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    sample(
        "untrainable policy",
        "        if untrainable:\n",
        "        if False:\n",
        "test_an_untrainable_policy_is_context_only",
    ),
    sample(
        "turn rewards with their owner",
        " if pair[0] in owned_turns",
        "",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    sample(
        "unbound turn rewards",
        " if turn not in bound",
        " if False",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    sample("calls are known", "bool((given > 0).all()) and ", "", "test_logprobs_without_a_known_call_never_fit"),
    sample(
        "raw fits only untransformed",
        "return not call.sampling.changes_distribution",
        "return True",
        "test_logprobs_fit_the_distribution_that_was_sampled[raw-sampling2-False]",
    ),
    sample(
        "temperature fits only untruncated",
        "return not call.sampling.truncates",
        "return True",
        "test_logprobs_fit_the_distribution_that_was_sampled[temperature-sampling5-False]",
    ),
    sample(
        "no ids, no samples",
        "    if not trace.head.tokens:\n",
        "    if False:\n",
        "test_a_trace_without_token_ids_cannot_be_trained_from",
    ),
]

WIRES = [
    wire(
        "parts follow each other",
        "if Cursor(text.first, calls.first_call, calls.first_edge) != Cursor.end_of(trace):",
        "if False:",
        "test_parts_follow_each_other",
    ),
    wire(
        "sections are there",
        "    if missing:\n",
        "    if False:\n",
        "test_a_part_without_one_of_its_sections_is_refused[tokens]",
    ),
    wire("newer versions", "if version > WIRE_VERSION:", "if False:", "test_versions"),
    wire(
        "what was sealed is checked",
        "        trace.seal()\n",
        "        trace.sealed = True\n",
        "test_what_names_nothing_is_refused[calls-fields0-names call 0; there are 0]",
    ),
    wire(
        "what was running is checked",
        "        trace.check()\n",
        "        pass\n",
        "test_a_running_trace_that_lies_is_refused",
    ),
    wire(
        "bad samplings",
        ", RecursionError, ConfigError)",
        ", RecursionError)",
        "test_what_names_nothing_is_refused[calls-fields11-damaged: Sampling: temperature]",
    ),
    wire(
        "deep nesting",
        "ValueError, RecursionError, ConfigError)",
        "ValueError, ConfigError)",
        "test_hostile_lengths_and_nesting_are_refused_at_once[the same behind the mark of odd text-head]",
    ),
    Mutant(
        "wire: unknown fields",
        "trace/call.py",
        "class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True,",
        "class Call(msgspec.Struct, frozen=True,",
        f"{WIRE}::test_an_unknown_field_of_a_call_is_refused",
    ),
]

REDACTIONS = [
    Mutant(
        "redact: ids",
        "trace/redact.py",
        "counts[gone, TOKENS:] = 0",
        "pass",
        f"{REDACT}::test_nothing_of_a_redacted_node_is_stored",
    ),
    Mutant(
        "redact: spellings",
        "trace/redact.py",
        "fork = _unspelled(text.fork) if text.fork is not None and beside else text.fork",
        "fork = text.fork",
        f"{REDACT}::test_only_spellings_beside_the_node_go",
    ),
    Mutant(
        "redact: missing nodes",
        "trace/redact.py",
        "    if missing:\n",
        "    if False:\n",
        f"{REDACT}::test_a_node_that_is_not_there[4]",
    ),
]

ENDINGS = [
    Mutant(
        "endings: cancelled never retries",
        "trace/ending.py",
        "if isinstance(self.rows.get(Reason.CANCELLED), Retry):",
        "if False:",
        f"{ENDING}::test_what_is_cancelled_is_never_retried",
    ),
    Mutant(
        "endings: cancelled drops",
        "trace/ending.py",
        "    if reason is Reason.CANCELLED:\n        return Drop()\n",
        "",
        f"{ENDING}::test_rules_that_nobody_changed[cancelled]",
    ),
    Mutant(
        "endings: only used votes",
        "trace/ending.py",
        "return self.fate in (Fate.USED, Fate.PENALISED)",
        "return True",
        f"{ENDING}::test_only_what_is_used_votes",
    ),
    Mutant(
        "endings: finite amounts",
        "trace/ending.py",
        "if not isfinite(self.amount):",
        "if False:",
        f"{ENDING}::test_amounts_and_counts_make_sense",
    ),
    Mutant(
        "endings: retries",
        "trace/ending.py",
        "if self.times < 0:",
        "if False:",
        f"{ENDING}::test_amounts_and_counts_make_sense",
    ),
    Mutant(
        "sampling: checks",
        "trace/call.py",
        "            if not fine:\n",
        "            if False:\n",
        f"{CALL}::test_a_sampling_that_makes_no_sense_is_refused",
    ),
]

MUTANTS = [*NODE, *COLUMNS, *GRAPHS, *TRACES, *SAMPLES, *WIRES, *REDACTIONS, *ENDINGS]
