"""Mutants of the audit: what a check finds, what it leaves unjudged, and what the gate makes of it."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the audit; `test` is below ``tests/audit``."""
    return Mutant(name, f"audit/{file}.py", snippet, replacement, f"tests/audit/test_{test}")


def command(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of ``rollbook audit``."""
    return Mutant(f"command: {name}", "cli/audit.py", snippet, replacement, f"tests/cli/test_audit.py::{test}")


VALUES = "logprobs.py::test_a_logprob_that_is_none_is_found_at_its_token"
EXITS = "judge.py::test_a_broken_limit_gives_1_and_an_empty_batch_2"
GUARDS = "gate.py::test_what_guards_nothing_is_refused"
SEGMENTS = "logprobs.py::test_segments_that_do_not_fit_are_found"

MUTANTS = [
    mutant(
        "a faulty call may run",
        "execution",
        "elif call.status is not ParseStatus.OK:",
        "elif False:",
        "execution.py::test_a_faulty_call_with_a_result_breaks",
    ),
    mutant(
        "a call of a cut turn may run",
        "execution",
        "and finish not in _FINISHED:",
        "and False:",
        "execution.py::test_a_cut_turn_executes_nothing",
    ),
    mutant(
        "a stop string is a cut",
        "execution",
        "_FINISHED = (Finish.STOP, Finish.STOP_STRING)",
        "_FINISHED = (Finish.STOP,)",
        "execution.py::test_a_turn_that_stopped_at_a_stop_string_is_not_cut",
    ),
    mutant(
        "a result needs no call",
        "execution",
        "        elif call is None:\n",
        "        elif call is None:\n            return\n        elif False:\n",
        "execution.py::test_a_result_without_its_call_breaks",
    ),
    mutant(
        "telling the policy of its fault is an execution",
        "execution",
        "elif message.fault is Fault.POLICY:",
        "elif False:",
        "execution.py::test_telling_the_policy_of_its_fault_is_no_execution",
    ),
    mutant(
        "another branch may hold the call",
        "execution",
        "above = trace.graph.parent(above)",
        "above -= 1",
        "execution.py::test_a_call_on_another_branch_is_not_the_one_that_was_answered",
    ),
    mutant(
        "what a redaction took away is judged",
        "execution",
        "marks.get(node) is Mark.REDACTED or (call is None and _redacted_above(trace, node))",
        "False",
        "execution.py::test_what_a_redaction_took_away_cannot_be_told",
    ),
    mutant(
        "an error may vote",
        "measure",
        "trace.ending is None or trace.ending.kind is EndingKind.ERROR",
        "trace.ending is None",
        "baseline.py::test_an_error_in_a_baseline_breaks",
    ),
    mutant(
        "a failed scoring may vote",
        "measure",
        "if trace.tail.scoring.status is ScoringStatus.FAILED:",
        "if False:",
        "baseline.py::test_a_failed_scoring_in_a_baseline_breaks",
    ),
    mutant(
        "no reward may vote",
        "measure",
        'return "it has no reward" if trace.reward is None else None',
        "return None",
        "baseline.py::test_a_rollout_without_a_reward_in_a_baseline_breaks",
    ),
    mutant(
        "a disposition without a vote may vote",
        "measure",
        "disposition is not None and not disposition.votes",
        "False",
        "baseline.py::test_a_rollout_whose_disposition_has_no_vote_breaks",
    ),
    mutant(
        "members without a vote count as voters",
        "baseline",
        "tuple(fact.values) for fact",
        "tuple(fact.members) for fact",
        "baseline.py::test_a_member_without_a_vote_is_not_in_the_baseline",
    ),
    mutant(
        "voters that were not seen are fine",
        "baseline",
        "if unseen and not self.wrong:",
        "if False:",
        "baseline.py::test_voters_that_are_not_in_the_batch_leave_it_unjudged_unless_something_is_wrong_anyway",
    ),
    mutant(
        "no baseline is a right one",
        "baseline",
        "if not self.baselines:",
        "if False:",
        "baseline.py::test_without_advantages_it_is_not_judged",
    ),
    mutant("a logprob may be no number", "logprobs", "~np.isfinite(values) |", "", VALUES),
    mutant("a logprob may be above zero", "logprobs", "| (values > LOGPROB_SLACK)", "", VALUES),
    mutant(
        "float error above zero breaks",
        "logprobs",
        "(values > LOGPROB_SLACK)",
        "(values > 0)",
        "logprobs.py::test_float_error_above_zero_is_none",
    ),
    mutant(
        "logprobs may be missing in part",
        "logprobs",
        "(logprobs != 0) & (logprobs != sampled)",
        "(logprobs < 0)",
        "logprobs.py::test_a_missing_logprob_is_found",
    ),
    mutant(
        "runs may leave ids out",
        "logprobs",
        "if covered != tokens:",
        "if False:",
        "logprobs.py::test_runs_that_do_not_cover_the_ids_are_found",
    ),
    mutant(
        "the mask may count otherwise",
        "logprobs",
        "if marked != sampled:",
        "if False:",
        "logprobs.py::test_a_count_that_does_not_fit_the_mask_is_found",
    ),
    mutant("segments may leave tokens out", "logprobs", "len(segments) and covered != sampled", "False", SEGMENTS),
    mutant(
        "a segment may be of another turn",
        "logprobs",
        "elif trace.calls[call].node != node:",
        "elif False:",
        "logprobs.py::test_a_segment_of_another_turn_is_found",
    ),
    mutant(
        "without tokens all is aligned",
        "logprobs",
        "        if not self.tokens:\n",
        "        if False:\n",
        "logprobs.py::test_without_sampled_tokens_alignment_is_not_judged",
    ),
    mutant(
        "logprobs of no call fit",
        "logprobs",
        "        if call is None:\n",
        "        if call is None:\n            return\n        if False:\n",
        "logprobs.py::test_logprobs_of_no_call_do_not_fit",
    ),
    mutant(
        "a prompt may have another length",
        "prompts",
        "if call.prompt_tokens != stored:",
        "if False:",
        "prompts.py::test_a_count_that_is_off_is_found",
    ),
    mutant(
        "a reply may stand behind another prompt",
        "prompts",
        "if call.after != trace.graph.parent(node):",
        "if False:",
        "prompts.py::test_a_reply_that_stands_behind_another_prompt_is_found",
    ),
    mutant(
        "a continued turn starts anew",
        "prompts",
        "stored + start)",
        "stored)",
        "prompts.py::test_the_prompt_of_a_continued_turn_holds_its_earlier_segments",
    ),
    mutant(
        "an engine that does not count is right",
        "prompts",
        "if not self.judged:",
        "if False:",
        "prompts.py::test_an_engine_that_does_not_count_leaves_it_unjudged",
    ),
    mutant(
        "a prompt behind a redaction is judged",
        "prompts",
        "if above is None or redacted else",
        "if above is None else",
        "prompts.py::test_a_prompt_behind_a_redaction_cannot_be_told",
    ),
    mutant(
        "drift is none without a re-encoder",
        "drift",
        "Measure.none(NO_RENDERER, forks_by_drift=self.forks)",
        "Measure.count(0, 0)",
        "drift.py::test_without_a_reencoder_it_is_not_judged_and_not_zero",
    ),
    mutant(
        "another tokenizer judges",
        "origin",
        "if foreign is None:",
        "if True:",
        "drift.py::test_turns_of_another_or_an_unknown_tokenizer_are_not_judged",
    ),
    mutant(
        "a shorter spelling is the same",
        "drift",
        "return None if len(kept) == len(found) else shared",
        "return None",
        "drift.py::test_a_shorter_spelling_differs_where_it_ends",
    ),
    mutant(
        "an id may come twice",
        "duplicates",
        "if trace.id in self.seen:",
        "if False:",
        "duplicates.py::test_the_same_id_twice_breaks",
    ),
    mutant(
        "equal tokens of other groups are duplicates",
        "duplicates",
        "(trace.head.group, trace.head.agent.seat, digest)",
        '("", "", digest)',
        "duplicates.py::test_equal_tokens_within_a_group_are_found",
    ),
    mutant(
        "turns do not part tokens",
        "duplicates",
        'hashlib.blake2b(ends.astype("<i4").tobytes(), digest_size=16)',
        "hashlib.blake2b(digest_size=16)",
        "duplicates.py::test_the_same_tokens_cut_into_other_turns_are_no_duplicates",
    ),
    mutant(
        "what was not sampled is compared",
        "duplicates",
        "if not trace.graph.sampled_count:",
        "if False:",
        "duplicates.py::test_rollouts_without_sampled_tokens_are_not_compared",
    ),
    mutant(
        "tools may be missing in the prompt",
        "tools",
        "if not head.tools_rendered:",
        "if False:",
        "tools.py::test_tools_that_do_not_stand_in_the_prompt_break",
    ),
    mutant(
        "a prompt in tokens need not know its tools",
        "tools",
        "if not head.tools_rendered:",
        "if head.tools_rendered is False:",
        "tools.py::test_tools_that_do_not_stand_in_the_prompt_break",
    ),
    mutant(
        "what a text engine rendered is known",
        "tools",
        "if self.unknown and not self.given:",
        "if False:",
        "tools.py::test_what_a_text_engine_rendered_is_not_known",
    ),
    mutant(
        "a rollout without a prompt dropped its tools",
        "tools",
        "head.tools_rendered is None and not len(trace.graph)",
        "False",
        "tools.py::test_a_rollout_that_stopped_before_its_first_prompt_is_not_judged",
    ),
    mutant("a broken limit passes", "report", "        if self.broke:\n", "        if False:\n", EXITS),
    mutant("an empty batch passes", "report", "if unanswered or not self.rollouts else", "if unanswered else", EXITS),
    mutant(
        "a missing answer passes",
        "report",
        "if unanswered or not self.rollouts else",
        "if not self.rollouts else",
        "judge.py::test_a_demanded_answer_that_is_missing_gives_2",
    ),
    mutant(
        "a missing answer outweighs a broken limit",
        "report",
        "        if self.broke:\n            return 1\n",
        "        if self.broke and not self.not_judged:\n            return 1\n",
        "judge.py::test_a_broken_limit_outweighs_a_missing_answer",
    ),
    mutant(
        "what is misaligned is read on",
        "judge",
        "if aligned or not row.reads_tokens:",
        "if True:",
        "judge.py::test_a_misaligned_trace_is_kept_from_the_checks_that_read_tokens",
    ),
    mutant(
        "the most that is allowed is too much",
        "judge",
        "measure.value <= limit",
        "measure.value < limit",
        "gate.py::test_a_limit_is_the_most_that_is_allowed",
    ),
    mutant(
        "an interruption is an error",
        "endings",
        " and ending.reason is not Reason.INTERRUPTED",
        "",
        "endings.py::test_an_interruption_is_no_error_of_the_infrastructure",
    ),
    mutant(
        "a group of one voter is judged",
        "groups",
        "len(group.votes) >= 2",
        "len(group.votes) >= 1",
        "groups.py::test_a_group_of_one_voter_is_not_judged",
    ),
    mutant(
        "the gate takes any key",
        "gate",
        '        if unknown:\n            raise ConfigError(f"gate: unknown key',
        '        if False:\n            raise ConfigError(f"gate: unknown key',
        GUARDS,
    ),
    mutant("a limit of no check is taken", "gate", '_refuse_unknown("limits", self.limits)', "pass", GUARDS),
    mutant(
        "an answer of no check is demanded", "gate", '_refuse_unknown("must_judge", self.must_judge)', "pass", GUARDS
    ),
    mutant(
        "a limit may be below zero",
        "gate",
        "(math.isfinite(limit) and limit >= 0)",
        "math.isfinite(limit)",
        GUARDS,
    ),
    mutant(
        "a limit may be no number",
        "gate",
        "(math.isfinite(limit) and limit >= 0)",
        "(limit >= 0)",
        GUARDS,
    ),
    mutant(
        "alignment need not be judged",
        "gate",
        'must_judge: tuple[str, ...] = ("alignment",)',
        "must_judge: tuple[str, ...] = ()",
        "judge.py::test_a_demanded_answer_that_is_missing_gives_2",
    ),
    command(
        "every audit passes",
        "ctx.exit(found.exit_code)",
        "ctx.exit(0)",
        "test_an_empty_run_cannot_be_judged",
    ),
    command(
        "another tokenizer than the run's is used",
        "if renderer.info.tokenizer_hash != record.tokenizer_hash:",
        "if False:",
        "test_another_tokenizer_than_the_runs_is_not_used",
    ),
    mutant(
        "chance stands out in the selection",
        "selection",
        "return higher if higher > CHANCE * error else None",
        "return higher",
        "selection.py::test_too_few_or_chance_do_not",
    ),
    mutant(
        "a few attempts stand out in the selection",
        "selection",
        "if row.attempts < LEAST or attempts < LEAST:",
        "if not attempts:",
        "selection.py::test_too_few_or_chance_do_not",
    ),
    mutant(
        "a staleness that nobody knows is 0",
        "selection",
        "            self.unknown += 1\n            return\n",
        "            self.unknown += 1\n",
        "selection.py::test_an_unknown_staleness_is_not_zero",
    ),
]
