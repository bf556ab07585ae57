"""What only a template with its tokenizer can tell: the tokens of harmless text, the start token, control tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from rollbook.render.encode import Encoder
from rollbook.render.findings import Property, TemplateFinding, Verdict
from rollbook.render.probe import Probe
from rollbook.render.specimens import say, tagged

__all__ = ["token_findings"]


def token_findings(seen: Probe, encoder: Encoder) -> Iterator[TemplateFinding]:
    """Findings about tokens."""
    yield _tokens(seen, encoder)
    yield _start(seen, encoder)
    yield _control(seen, encoder)


def _tokens(seen: Probe, encoder: Encoder) -> TemplateFinding:
    """Piecewise encoding must give what the tokenizer makes of harmless text."""
    sample = seen.facts.sample
    ours = encoder.encode(sample, ())[0].token_ids.tolist()
    theirs = encoder.encode_parsed(sample.plain).tolist()
    if ours == theirs:
        meaning = "Text that is encoded piece by piece gives the tokenizer's own tokens of the whole."
        return TemplateFinding(about=Property.TOKENS, value="exact", meaning=meaning)
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    meaning = (
        "the tokenizer reads text between control tokens differently when it stands alone; this kind is not "
        f"supported (token {at}: {theirs[at : at + 3]} in the whole, {ours[at : at + 3]} alone)"
    )
    return TemplateFinding(
        about=Property.TOKENS, value="differ", verdict=Verdict.UNSOUND, meaning=meaning, forbids=True
    )


def _start(seen: Probe, encoder: Encoder) -> TemplateFinding:
    text = seen.increments.template.special_tokens.get("bos_token")
    token = encoder.added.get(text or "")
    ids: list[int] = encoder.encode(seen.facts.sample, ())[0].token_ids.tolist()
    count = sum(1 for _ in takewhile(lambda each: each == token, ids))
    if token is None or not count:
        return TemplateFinding(about=Property.BOS, value="none", meaning="A conversation begins with no start token.")
    if count > 1:
        return TemplateFinding(
            about=Property.BOS,
            value="double",
            verdict=Verdict.UNSOUND,
            meaning=f"a conversation begins with {count} start tokens {text}; the model was trained with one",
            forbids=True,
        )
    meaning = f"A conversation begins with one {text}, written by the template; the tokenizer adds none of its own."
    return TemplateFinding(about=Property.BOS, value="one", meaning=meaning)


def _control(seen: Probe, encoder: Encoder) -> TemplateFinding:
    """A message that spells every control token must come out with the control tokens of a harmless one."""

    def control(text: str) -> list[int]:
        made = seen.increments.template.render(tagged([say("user", text)]), None, prompt=True)
        ids = encoder.encode(encoder.escapes.apply(made), ())[0].token_ids.tolist()
        return [token for token in ids if token in encoder.control]

    spelled = sorted(encoder.added)
    if control(" ".join(spelled)) == control("harmless"):
        meaning = f"A message that spells all {len(spelled)} added tokens makes none of them."
        return TemplateFinding(about=Property.CONTROL, value="safe", meaning=meaning)
    return TemplateFinding(
        about=Property.CONTROL,
        value="from content",
        verdict=Verdict.UNSOUND,
        meaning="a message that spells control tokens makes some, or changes what the template writes",
        forbids=True,
    )
