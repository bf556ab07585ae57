"""Mutants of the clients of SGLang, llama.cpp's server and text-only endpoints."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

SGLANG = "tests/policy/test_sglang.py::"
WIRE = "tests/policy/test_sglang_wire.py::"
TEXT = "tests/policy/test_text.py::"
TURN = "tests/rollout/test_text_turn.py::"

MUTANTS = [
    Mutant(
        "a server that cuts prompts is taken",
        "policy/sglang.py",
        "        if server.allow_auto_truncate:\n",
        "        if server.allow_auto_truncate is None:\n",
        SGLANG + "test_a_server_that_would_alter_the_data_is_refused_at_the_start",
    ),
    Mutant(
        "a request's name has no end",
        "policy/sglang.py",
        'return f"{session}.{self._client}{next(self._numbers)}."',
        'return f"{session}.{next(self._numbers)}"',
        SGLANG + "test_the_names_of_requests_never_begin_like_each_other",
    ),
    Mutant(
        "a cancelled request runs on",
        "policy/sglang.py",
        "        except asyncio.CancelledError:\n            await _abort(http, rid)\n",
        "        except asyncio.CancelledError:\n",
        SGLANG + "test_a_cancelled_request_is_aborted_by_its_own_name",
    ),
    Mutant(
        "one label counts whatever happened",
        "policy/sglang.py",
        "if meta.weight_version == known else None",
        "if known is not None else None",
        SGLANG + "test_one_label_counts_only_where_nothing_changed_meanwhile",
    ),
    Mutant(
        "ids beside the logprobs are not looked at",
        "policy/sglang_wire.py",
        "        if list(beside) != ids:\n",
        "        if len(beside) != len(ids):\n",
        "tests/cases/test_a_engines.py::test_ids_that_the_client_encoded_are_not_those_beside_the_logprobs[A10]",
    ),
    Mutant(
        "top-k is left to the server",
        "policy/sglang_wire.py",
        '        "top_k": sampling.top_k or -1,\n',
        "",
        WIRE + "test_the_default_request_leaves_the_distribution_alone_and_says_everything",
    ),
    Mutant(
        "a greedy call has the kind of a warm one",
        "policy/sglang_wire.py",
        "    if sampling.temperature == 0.0 or sampling.top_k == 1:\n",
        "    if sampling.temperature == 0.0:\n",
        WIRE + "test_the_kind_of_one_call",
    ),
    Mutant(
        "a sentinel is a logprob",
        "policy/align.py",
        "    fine = (wide > floor) & (wide <= LOGPROB_SLACK)",
        "    fine = wide <= LOGPROB_SLACK",
        SGLANG + "test_a_fault_has_its_reason",
    ),
    Mutant(
        "a setting without a field is dropped",
        "policy/text_wire.py",
        "        if value != _NEUTRAL[name]:\n",
        "        if value is None:\n",
        TEXT + "test_what_the_route_has_no_field_for_is_never_sent",
    ),
    Mutant(
        "a used-up quota is waited for",
        "policy/text_wire.py",
        "if reply.status == HTTPStatus.TOO_MANY_REQUESTS and _NO_QUOTA",
        "if reply.status == HTTPStatus.OK and _NO_QUOTA",
        TEXT + "test_a_used_up_quota_is_not_waited_for",
    ),
    Mutant(
        "a filtered reply is a turn",
        "rollout/text_turn.py",
        "    if reply.finish is Finish.ERROR:\n",
        "    if reply.engine_finish is None:\n",
        TURN + "test_a_filtered_reply_is_no_turn_and_an_aborted_one_is_asked_again",
    ),
    Mutant(
        "a limit without counts holds",
        "rollout/text_turn.py",
        "if reply.completion_tokens is None and state.budget.limits.max_tokens is not None:",
        "if False:",
        TURN + "test_tokens_that_nobody_counts_cannot_be_limited",
    ),
    Mutant(
        "a text-only trace claims ids",
        "rollout/rollout.py",
        "        tokens=loaded.text is None,\n",
        "",
        TURN + "test_a_whole_rollout_with_tools_holds_messages_and_no_ids",
    ),
    Mutant(
        "a text-only policy trains",
        "rollout/loaded.py",
        "return PolicyRecord(name=info.name, engine=info.engine, trainable=False)",
        "return PolicyRecord(name=info.name, engine=info.engine)",
        TURN + "test_a_whole_rollout_with_tools_holds_messages_and_no_ids",
    ),
    Mutant(
        "a cut call is only malformed",
        "rollout/text_turn.py",
        "ParseStatus.CUT if cut and read.status is ParseStatus.INVALID_JSON else read.status",
        "read.status",
        TURN + "test_a_cut_reply_executes_nothing",
    ),
    Mutant(
        "a remote server of llama.cpp has a version of its own",
        "policy/llamacpp.py",
        "versions=() if told is None else",
        "versions=((0, len(found.token_ids)),) if told is None else",
        "tests/policy/test_llamacpp.py::test_a_real_server_says_what_it_is_and_samples_over_pieces",
    ),
]
