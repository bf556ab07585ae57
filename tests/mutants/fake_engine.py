"""Mutants of the fake engine: it must be as strict, and its faults as real, as it says."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the fake engine; `test` is below ``tests/policy/testing``."""
    return Mutant(name, f"policy/testing/{file}.py", snippet, replacement, f"tests/policy/testing/test_{test}")


MUTANTS = [
    mutant(
        "greetings are struck by faults",
        "faults",
        "        if not session:\n            return None\n",
        "",
        "front.py::test_a_request_without_a_session_is_neither_scripted_nor_struck",
    ),
    mutant(
        "a fault depends on the number of its requests only",
        "faults",
        'f"{self.seed}/{session}/{number}".encode()',
        'f"{session}/{number}".encode()',
        "faults.py::test_another_seed_strikes_elsewhere",
    ),
    mutant(
        "new weights leave the rest as planned",
        "generation",
        "        del self.tokens[kept:]\n        self.stop, self.matched = Stop.LENGTH, None\n        while",
        "        self.stop, self.matched = Stop.LENGTH, None\n        while",
        "generation.py::test_new_weights_keep_what_is_there_and_plan_the_rest_anew",
    ),
    mutant(
        "a pause takes the generation's time",
        "generation",
        "            self._lost += now - self._frozen_at\n",
        "",
        "generation.py::test_a_pause_stops_its_time",
    ),
    mutant(
        "the whole prompt may be cached",
        "prefix",
        "min(longest, len(prompt) - 1) // self._block",
        "longest // self._block",
        "prefix.py::test_what_is_shared_is_a_common_prefix_of_whole_blocks",
    ),
    mutant(
        "SGLang's unknown sampling fields are taken",
        "sglang",
        'if foreign := unknown(call.body.get("sampling_params"), _SAMPLING):',
        "if foreign := unknown(None, _SAMPLING):",
        "sglang.py::test_an_unknown_sampling_field_is_the_schemas_refusal_and_one_of_the_request_is_dropped",
    ),
    mutant(
        "what vLLM drops is not named",
        "vllm",
        "        call.entry.ignored = (*unknown(call.body, _GENERATE), *inside)\n",
        "",
        "vllm.py::test_what_the_server_drops_is_named",
    ),
    mutant(
        "llama.cpp keeps the probability behind a stop string",
        "llamacpp_replies",
        "return found[:-1] if answer.stop is Stop.STRING else found",
        "return found",
        "llamacpp.py::test_a_stop_string_takes_the_last_probability_away",
    ),
    mutant(
        "samplers that are not listed are applied",
        "llamacpp",
        'top_k=max(body.top_k, 0) if "top_k" in listed else 0,\n            min_p',
        "top_k=max(body.top_k, 0),\n            min_p",
        "llamacpp.py::test_samplers_that_are_not_listed_do_nothing",
    ),
    mutant(
        "a script starts again behind an abort",
        "script",
        "        if place.rest and place.expected == ask.prompt:\n            return list(place.rest)\n",
        "",
        "script.py::test_a_cut_list_goes_on_where_its_prompt_does",
    ),
    mutant(
        "a generation whose client left goes on",
        "scheduler",
        "            if self._deaf:\n",
        "            if True:\n",
        "server.py::test_a_client_that_leaves_is_noticed_or_not[sglang-0]",
    ),
]
