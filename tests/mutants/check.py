"""Mutants of the handshake with an engine, and of how an engine's tokenizer is found."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

CHECK = "tests/policy/test_check.py"
FOUND = f"{CHECK}::test_each_promise_taken_back_is_found"
SERVED, FITNESS = "tests/run/test_served.py", "tests/run/test_fitness.py"


def judged(name: str, snippet: str, replacement: str, test: str = FOUND) -> Mutant:
    """A judgement."""
    return Mutant(name, "policy/check_judge.py", snippet, replacement, test)


MUTANTS = [
    judged("a count is an echo", "if all(reply.prompt_ids is not None for reply in replies):", "if True:"),
    judged("tokens behind the end are fine", "if inside is not None:", "if False:"),
    judged("any last id ends a turn", "if ids[-1] not in stop_ids:", "if False:"),
    judged("a word that was passed is no matter", "    elif word in text_of(answer.token_ids):\n", "    elif False:\n"),
    judged("ids behind a word are no matter", "verdict, detail = BROKEN, failure.detail", "pass"),
    judged("every kind is raw", "if (np.abs(risen) < allowed).all():", "if True:"),
    judged("what is processed is certain", "return LogprobKind.PROCESSED if told else None", "return None"),
    judged("the client's word is taken", "    if found is not said:\n", "    if False:\n"),
    judged("rescored logprobs are not told", "    if again:\n", "    if False:\n"),
    judged("seeds may all give the same", "    if len(different) == 1:\n", "    if False:\n"),
    judged(
        "a prompt that was cut is a reply",
        "verdict=BROKEN, detail=detail)\n    if answer.reason is Reason.CONTEXT",
        "verdict=FINE, detail=detail)\n    if answer.reason is Reason.CONTEXT",
    ),
    judged(
        "foreign ids are the model's own",
        "    if foreign:\n",
        "    if False:\n",
        f"{CHECK}::test_ids_that_the_tokenizer_lacks_in_an_ordinary_reply_are_another_model",
    ),
    judged(
        "a broken reply tells nothing",
        "verdict=BROKEN, detail=answer.detail)\n    why",
        "verdict=UNKNOWN, detail=answer.detail)\n    why",
        f"{CHECK}::test_a_broken_reply_breaks_every_promise_and_a_lost_one_tells_nothing",
    ),
    Mutant(
        "a reply is not held to the contract",
        "policy/check_asking.py",
        "        check_completion(reply, prompt, sampling)\n",
        "",
        FOUND,
    ),
    Mutant(
        "a busy engine is given up at once",
        "policy/check_asking.py",
        "if not left:",
        "if True:",
        f"{CHECK}::test_an_engine_that_is_busy_is_asked_again_and_not_for_ever",
    ),
    Mutant(
        "a truncation may be ignored",
        "policy/check_fields.py",
        "return _Seen.IGNORED\n    return _Seen.NOT_SEEN if hides",
        "return _Seen.HONOURED\n    return _Seen.NOT_SEEN if hides",
        FOUND,
    ),
    Mutant(
        "what must be known may be unknown",
        "policy/check_report.py",
        "return not self.broken and not self.undecided",
        "return not self.broken",
        f"{CHECK}::test_what_must_be_known_and_is_not_makes_no_engine_fit",
    ),
    Mutant(
        "an unfit engine may run",
        "run/fitness.py",
        "    if report.broken:\n",
        "    if False:\n",
        f"{FITNESS}::test_ids_that_are_altered_or_dropped_are_refused",
    ),
    Mutant(
        "a script is asked",
        "run/fitness.py",
        "    if not isinstance(loaded.policy, RemotePolicy):\n        return\n",
        "",
        f"{FITNESS}::test_what_is_no_engine_behind_a_url_is_not_asked",
    ),
    Mutant(
        "any path is this machine's",
        "run/served.py",
        "if not path.is_absolute() or not _is_there(path):",
        "if False:",
        f"{SERVED}::test_what_cannot_be_found_says_what_to_do",
    ),
    Mutant(
        "the first of several models is taken",
        "run/served.py",
        "rows[0] if len(rows) == 1 else None",
        "rows[0] if rows else None",
        f"{SERVED}::test_one_of_several_models_is_named",
    ),
    Mutant(
        "the key is shown",
        "run/access.py",
        "api_key: str | None = field(default=None, repr=False)",
        "api_key: str | None = None",
        f"{SERVED}::test_the_key_is_sent_and_not_shown",
    ),
    Mutant(
        "the client has no key",
        "run/remote.py",
        "url=url, api_key=access.api_key",
        "url=url, api_key=None",
        f"{SERVED}::test_the_client_sends_the_key_too",
    ),
    Mutant(
        "a tokenizer beside one is taken",
        "run/served.py",
        "    if source.tokenizer is not None:\n        raise",
        "    if False:\n        raise",
        f"{SERVED}::test_what_has_a_tokenizer_gets_no_other",
    ),
    Mutant(
        "the reply to the run's own sampling is not held to the contract",
        "run/fitness.py",
        'check_completion(await loaded.policy.sample(prompt, one, session="check"), prompt, one)',
        'await loaded.policy.sample(prompt, one, session="check")',
        f"{FITNESS}::test_the_runs_own_sampling_is_held_to_the_contract_too[altered_ids]",
    ),
]
