"""Mutants of the token contract."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def contract(snippet: str, replacement: str, case: str) -> Mutant:
    """A rule of `check_completion`."""
    test = f"tests/policy/test_check_completion.py::test_each_rule_refuses_what_breaks_it[{case}]"
    return Mutant(f"contract: {case}", "policy/protocol.py", snippet, replacement, test)


MUTANTS = [
    contract("(ids.dtype == np.int32,", "(True,", "ids are int64"),
    contract("(logprobs.dtype == np.float32,", "(True,", "logprobs are float64"),
    contract("(len(ids) == len(logprobs),", "(True,", "2 ids but 1 logprobs"),
    contract("(bool(np.isfinite(logprobs).all()),", "(True,", "not finite"),
    contract("(not len(logprobs) or float(logprobs.max()) <= LOGPROB_SLACK,", "(True,", "above 0"),
    contract("(not len(ids) or int(ids.min()) >= 0,", "(True,", "a token id is negative"),
    contract("(limit is None or len(ids) <= limit,", "(True,", "2 tokens, more than the 1 asked for"),
    contract("completion.prompt_tokens in (None, len(prompt)),", "True,", "counted 4 prompt tokens, 3 were sent"),
    contract("(not completion.versions or versions == len(ids),", "(True,", "versions cover 1 of 2"),
    contract(
        "all(version >= 0 and count > 0 for version, count in completion.versions),",
        "True,",
        "a version or its count is none",
    ),
    contract("(_rise_within(completion.rescored, len(ids)),", "(True,", "rescored positions do not rise within"),
    contract(
        "(len(ids) > 0 or completion.finish in (Finish.ABORT, Finish.ERROR),", "(True,", "the reply holds no tokens"
    ),
    Mutant(
        "contract: types",
        "policy/protocol.py",
        "    _check_types(completion)\n",
        "",
        "tests/policy/test_protocol.py::test_what_is_no_completion_breaks_the_contract",
    ),
    Mutant(
        "a wait of NaN is a wait",
        "policy/protocol.py",
        "None if retry_after is None or isnan(retry_after) else retry_after",
        "retry_after",
        "tests/policy/test_protocol.py::test_a_wait_is_a_number_of_seconds_that_can_be_waited[nan-None]",
    ),
    Mutant(
        "a wait may be below zero",
        "policy/protocol.py",
        "min(max(asked, 0.0), MAX_RETRY_AFTER)",
        "min(asked, MAX_RETRY_AFTER)",
        "tests/policy/test_protocol.py::test_a_wait_is_a_number_of_seconds_that_can_be_waited[-1.0-0.0]",
    ),
]
