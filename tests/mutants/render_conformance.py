"""Mutants of the conformance kit: a behaviour that no longer looks finds no bent renderer out."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(behaviour: str, file: str, snippet: str, replacement: str) -> Mutant:
    """What `behaviour` looks at, taken away."""
    test = f"tests/render/test_conformance.py::test_a_bent_renderer_is_found_out[{behaviour}]"
    return Mutant(f"{behaviour} is not looked at", f"render/conformance/{file}.py", snippet, replacement, test)


MUTANTS = [
    mutant("stops_are_tokens", "rendering", "if not 0 <= stop < info.vocab_size]", "if False]"),
    mutant("encoding_keeps_text", "rendering", 'same_text(back, text) or "\\\\x" in back', "True"),
    mutant("lone_surrogates_are_shown", "rendering", "len(shown) > len(plain)", "True"),
    mutant("runs_cover_ids", "rendering", "len(kinds_of(one)) == len(one.token_ids) and ", ""),
    mutant("content_is_marked", "rendering", "for one in made if not one.added):", "for one in ()):"),
    mutant("prompt_stands_apart", "rendering", "one == other,", "True,"),
    mutant("same_again", "continuing", "ids_of(one) == ids_of(other)", "True"),
    mutant("nothing_is_no_message", "continuing", 'raise NotConforming("no message at all', 'str("no message at all'),
    mutant(
        "blocks_are_refused",
        "continuing",
        'raise NotConforming("a message with an image',
        'str("a message with an image',
    ),
    mutant("empty_reply_reads", "replies", "parsed.closed == bool(ids)", "True"),
    mutant("calls_read_back", "replies", "told == meant,", "True,"),
    mutant("cut_invents_no_call", "replies", "found == meant[: len(found)]", "True"),
    mutant("reasoning_calls_nothing", "replies", "ParseStatus.OK not in statuses", "True"),
    mutant("quoted_calls_are_text", "replies", 'hold(not wrong, f"a quoted', 'hold(True, f"a quoted'),
    Mutant(
        "a renderer is not asked for its control tokens",
        "render/conformance/behaviour.py",
        "if isinstance(renderer, TextSide):",
        "if False:",
        "tests/render/test_conformance.py::test_harmony_conforms",
    ),
]
