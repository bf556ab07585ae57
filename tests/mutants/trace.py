"""Mutants of the record."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

GRAPH, WIRE = "tests/trace/test_graph.py", "tests/trace/test_wire.py"
SAMPLE, TRACE, ENDING = "tests/trace/test_sample.py", "tests/trace/test_trace.py", "tests/trace/test_ending.py"
REDACT, CALL, INVARIANTS = "tests/trace/test_redact.py", "tests/trace/test_call.py", "tests/trace/test_invariants.py"


def graph(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the message graph."""
    return Mutant(f"graph: {name}", "trace/graph.py", snippet, replacement, f"{GRAPH}::{test}")


def trace(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the trace."""
    return Mutant(f"trace: {name}", "trace/trace.py", snippet, replacement, f"{TRACE}::{test}")


def sample(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the samples."""
    return Mutant(f"samples: {name}", "trace/sample.py", snippet, replacement, f"{SAMPLE}::{test}")


def owner(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of who owns what."""
    return Mutant(f"samples: {name}", "trace/ownership.py", snippet, replacement, f"{SAMPLE}::{test}")


def wire(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the wire form."""
    return Mutant(f"wire: {name}", "trace/wire.py", snippet, replacement, f"{WIRE}::{test}")


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
        "if not all(map(is_reward, values if tail.reward is None else (*values, tail.reward))):",
        "if False:",
        "test_a_reward_is_finite[inf]",
    ),
    trace(
        "no reward where scoring failed",
        "if tail.scoring.status is ScoringStatus.FAILED and",
        "if False and",
        "test_there_is_no_reward_where_scoring_failed",
    ),
    trace("turn rewards on turns", " or origins[each.node] != POLICY", "", "test_a_turn_reward_belongs_to_a_turn[0]"),
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
    owner(
        "seat",
        "if not self.trace.head.agent.trainable:",
        "if False:",
        "test_a_seat_that_does_not_train_and_a_branch_over_length_lose_their_tokens",
    ),
    owner(
        "vote",
        "if self.disposition is not None and not self.disposition.votes:",
        "if False:",
        "test_a_disposition_without_a_vote_trains_nothing",
    ),
    owner(
        "rejected",
        "if not self.rejected.isdisjoint(nodes):",
        "if False:",
        "test_the_earliest_surviving_branch_owns_a_shared_turn",
    ),
    Mutant(
        "samples: redacted",
        "trace/ownership.py",
        "if Mark.REDACTED in {self.graph.marks.get(node) for node in nodes}:",
        "if False:",
        f"{REDACT}::test_its_branch_does_not_train_and_the_count_drops",
    ),
    owner(
        "over length",
        " if int(self.counts[branch.nodes, TOKENS].sum()) > self.max_tokens",
        " if False",
        "test_a_seat_that_does_not_train_and_a_branch_over_length_lose_their_tokens",
    ),
    owner(
        "owned once",
        "                free[branch.nodes] = False\n                if len(branches) > 1:",
        "                if len(branches) > 1:",
        "test_the_earliest_surviving_branch_owns_a_shared_turn",
    ),
    owner(
        "lost once",
        "self.sampled_counts[branch.nodes[free[branch.nodes]]]",
        "self.sampled_counts[branch.nodes]",
        "test_the_earliest_surviving_branch_owns_a_shared_turn",
    ),
    owner(
        "demoted",
        "if mark is Mark.DEMOTED",
        "if False",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    owner(
        "untrainable policy",
        "        if untrainable:\n",
        "        if False:\n",
        "test_an_untrainable_policy_is_context_only",
    ),
    sample(
        "turn rewards with their owner",
        " if node in owned",
        "",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    sample(
        "unbound turn rewards",
        " if turn not in bound",
        " if False",
        "test_a_turn_reward_goes_only_with_its_owner_and_is_reported_when_nobody_trains_it",
    ),
    sample(
        "a cut takes the rewards of cut turns",
        "            if whole[each.node]\n",
        "",
        "test_what_lies_behind_a_cut_does_not_train_and_its_reward_is_unbound",
    ),
    owner(
        "what is cut off is lost",
        "if self.kept_counts is not self.sampled_counts:",
        "if False:",
        "test_what_lies_behind_a_cut_does_not_train_and_its_reward_is_unbound",
    ),
    sample(
        "each trained turn has an advantage",
        "if bare := trained[np.isnan(by_turn[trained])].tolist():",
        "if bare := []:",
        "test_advantages_of_turns",
    ),
    sample("calls are known", "all_given and ", "", "test_logprobs_without_a_known_call_never_fit"),
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
    wire(
        "plain data only",
        "except (*_UNREADABLE, TypeError) as error:",
        "except _UNREADABLE as error:",
        "test_what_is_not_plain_data_is_refused_when_it_is_stored",
    ),
    wire(
        "what would not read back",
        "            _read_text(data, type(value))\n",
        "            pass\n",
        "test_what_would_not_read_back_is_refused_when_it_is_stored",
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
        "case Reason.CANCELLED | Reason.TEMPLATE_REFUSED:",
        "case Reason.TEMPLATE_REFUSED:",
        f"{ENDING}::test_rules_that_nobody_changed[cancelled]",
    ),
    Mutant(
        "endings: what a template refuses is not tried again",
        "trace/ending.py",
        "case Reason.CANCELLED | Reason.TEMPLATE_REFUSED:",
        "case Reason.CANCELLED:",
        f"{ENDING}::test_rules_that_nobody_changed[template_refused]",
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
        "if not is_reward(self.amount):",
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

MUTANTS = [*GRAPHS, *TRACES, *SAMPLES, *WIRES, *REDACTIONS, *ENDINGS]
