"""Mutants of the clients of remote engines, above all vLLM's."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

VLLM = "tests/policy/test_vllm.py::"
HTTP = "tests/policy/test_http.py::"
E = "tests/cases/test_e_engines.py::"
G = "tests/cases/test_g_engines.py::"

MUTANTS = [
    Mutant(
        "vllm: a neutral field is left out",
        "policy/vllm_wire.py",
        '        "min_p": sampling.min_p,\n',
        "",
        VLLM + "test_every_field_of_the_sampling_is_sent[/inference/v1/generate]",
    ),
    Mutant(
        "vllm: the stop string is cut off",
        "policy/vllm_wire.py",
        '"include_stop_str_in_output": True,',
        '"include_stop_str_in_output": False,',
        VLLM + "test_every_field_of_the_sampling_is_sent[/v1/completions]",
    ),
    Mutant(
        "vllm: special tokens are added to the prompt",
        "policy/vllm_wire.py",
        '"add_special_tokens": False,',
        '"add_special_tokens": True,',
        VLLM + "test_every_field_of_the_sampling_is_sent[/v1/completions]",
    ),
    Mutant(
        "vllm: a bent temperature is sent",
        "policy/vllm_wire.py",
        "(not 0 < sampling.temperature < low,",
        "(True,",
        VLLM + "test_what_the_engine_would_do_otherwise_is_refused_before_it_is_sent[sampling0]",
    ),
    Mutant(
        "vllm: counts are not compared",
        "policy/vllm_reply.py",
        "if not len(ids) == len(logprobs) == usage.completion_tokens:",
        "if False:",
        VLLM + "test_replies_that_break_the_contract[choice4-the engine counts 3-/v1/completions]",
    ),
    Mutant(
        "vllm: other ids beside the logprobs are let pass",
        "policy/vllm_reply.py",
        "if choice.token_ids is not None and choice.token_ids != ids:",
        "if False:",
        VLLM + "test_another_list_of_ids_beside_the_logprobs_is_refused",
    ),
    Mutant(
        "vllm: the sentinel is a logprob",
        "policy/vllm_reply.py",
        "checked_logprobs(logprobs, SENTINEL)",
        "checked_logprobs(logprobs)",
        VLLM + "test_replies_that_break_the_contract[choice8--9999.0 as a logprob-/inference/v1/generate]",
    ),
    Mutant(
        "vllm: the echo is not read",
        "policy/vllm_reply.py",
        "prompt_ids=_echoed(echo, asked),",
        "prompt_ids=asked.prompt,",
        E + "test_nothing_of_such_a_call_trains[A14]",
    ),
    Mutant(
        "stopping: ids behind a stop string are kept",
        "policy/stopping.py",
        "    if early := [each for each in stop if each in before]:\n",
        "    if early := [each for each in stop if False]:\n",
        E + "test_ids_behind_a_stop_string_are_refused[E05-/v1/completions]",
    ),
    Mutant(
        "stopping: no turn holds its stop string",
        "rollout/asking.py",
        "    if finish is Finish.STOP_STRING:\n",
        "    if False:\n",
        E + "test_ids_behind_a_stop_string_are_refused[E05-/inference/v1/generate]",
    ),
    Mutant(
        "vllm: an overflow is a wrong request",
        "policy/vllm_reply.py",
        "any(phrase in message for phrase in _OVERFLOW)",
        "False",
        VLLM + "test_http_failures[400-This model's maximum context length is 64 tokens. However ...-context_overflow]",
    ),
    Mutant(
        "vllm: the version is read when the reply comes",
        "policy/vllm.py",
        "return completion_of(reply, self._route, asked)",
        "return completion_of(reply, self._route, self._asked(prompt, sampling, asked.limit, self.info))",
        G + "test_tokens_bear_the_version_of_when_they_were_asked_for[G01-/v1/completions]",
    ),
    Mutant(
        "vllm: a start without ids",
        "policy/vllm.py",
        "        check_completion(completion_of(reply, self._route, asked), prompt, probe)\n",
        "",
        E + "test_the_start_fails_where_no_ids_come[E09]",
    ),
    Mutant(
        "remote: another kind of engine is only refused",
        "policy/remote.py",
        "except (RolloutFailure, NoSuchRoute) as failure:",
        "except RolloutFailure as failure:",
        "tests/policy/contract/test_other_kind.py::test_a_client_at_another_kind_of_engine_says_so[vllm-llamacpp]",
    ),
    Mutant(
        "stopping: the engine's word is believed",
        "policy/stopping.py",
        "    if last in ends:\n",
        "    if last in ends or said is Finish.STOP:\n",
        VLLM + "test_replies_that_break_the_contract[choice1-no end of a turn-/inference/v1/generate]",
    ),
    Mutant(
        "stopping: no finish is a cut, wherever it comes",
        "policy/stopping.py",
        "    if tokens == limit:\n",
        "    if tokens == limit or word is None:\n",
        E + "test_stop_reasons_are_mapped_where_they_come_in[D07]",
    ),
    Mutant(
        "versions: gaps between spans",
        "policy/versions.py",
        "if start != at or end < start:",
        "if end < start:",
        "tests/policy/test_versions.py::test_gaps_and_overlaps_are_refused[spans0]",
    ),
    Mutant(
        "experts: the header is believed",
        "policy/experts.py",
        " or prod(shape) * kind.itemsize != len(body)",
        "",
        "tests/policy/test_experts.py::test_a_header_that_its_bytes_do_not_bear_out",
    ),
    Mutant(
        "experts: rows of another prompt",
        "policy/experts.py",
        "if len(routed) not in (tokens, tokens + prompt_tokens - 1):",
        "if False:",
        E + "test_routing_of_another_prompt_is_refused[A14]",
    ),
    Mutant(
        "kind: truncation is not looked for",
        "policy/logprob_kind.py",
        "LogprobKind.TEMPERATURE if whole else LogprobKind.PROCESSED",
        "LogprobKind.TEMPERATURE",
        VLLM + "test_the_kind_of_logprobs_is_found_by_asking[processed-processed-None]",
    ),
    Mutant(
        "control: a failed update resumes",
        "policy/weights.py",
        "    await control.update(weights, version)\n    await control.resume()\n",
        "    try:\n        await control.update(weights, version)\n    finally:\n        await control.resume()\n",
        "tests/policy/test_control.py::test_a_step_that_failed_leaves_the_engine_paused"
        "[VllmControl-/reset_prefix_cache-<lambda>-UsageError-drop its prefix cache]",
    ),
    Mutant(
        "control: a label that did not change",
        "policy/control.py",
        "if (now := await self.version()) != version:",
        "if False and (now := await self.version()) != version:",
        "tests/policy/test_control.py::test_a_step_that_failed_leaves_the_engine_paused"
        "[VllmControl-/weight_info-<lambda>-UsageError-labels its weights 6]",
    ),
    Mutant(
        "http: redirects are followed",
        "policy/http.py",
        "allow_redirects=False",
        "allow_redirects=True",
        HTTP + "test_a_redirect_is_not_followed",
    ),
    Mutant(
        "http: a compressed reply of any size",
        "policy/http.py",
        'if size is not None and "Content-Encoding" not in reply.headers:',
        "if size is not None:",
        HTTP + "test_a_reply_that_is_too_large[compressed]",
    ),
    Mutant(
        "http: descriptors are not checked",
        "policy/http.py",
        "            check_descriptors(self.address.connections)\n",
        "",
        G + "test_descriptors_are_checked_at_the_start_and_named_when_they_run_out[G17]",
    ),
    Mutant(
        "http: descriptors are not named",
        "policy/http.py",
        "    if number in _OUT_OF_DESCRIPTORS:\n",
        "    if False:\n",
        G + "test_descriptors_are_checked_at_the_start_and_named_when_they_run_out[G17]",
    ),
    Mutant(
        "remote: a failed greeting leaves the client open",
        "policy/remote.py",
        "            except (RolloutFailure, NoSuchRoute) as failure:\n                await self._client.close()\n",
        "            except (RolloutFailure, NoSuchRoute) as failure:\n",
        "tests/policy/test_remote.py::test_a_greeting_that_fails_names_the_remedy_and_leaves_nothing_open"
        "[failure1-cannot be reached .refused.]",
    ),
    Mutant(
        "export: truncated sampling leaves",
        "export/fitness.py",
        "elif any(sampling.truncates for sampling in sample.samplings):",
        "elif False:",
        E + "test_what_was_drawn_from_a_part_of_the_vocabulary_does_not_leave[E07]",
    ),
]
